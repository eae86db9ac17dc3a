package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

const wallZero fsm.Wall = 1_700_000_000_000

// apply is how a replica applies an entry; canaries put something faulty in its place.
type apply func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result

func faithful(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result { return s.Apply(index, e) }

// run is one sequence of random entries against a replica that is captured and restored now and
// then, a replica that never is, and the model.
type run struct {
	seed    uint64
	r       *rand.Rand
	apply   apply
	a, b    *fsm.State
	model   *Model
	index   uint64
	epoch   uint64
	wall    fsm.Wall
	lease   fsm.Lease
	version uint64
	life    fsm.Incarnation

	bound int // of the work of a Tick, 0 for that of a broker: see bounded

	tokens  []fsm.LockToken
	numbers []fsm.SequenceNumber
	moves   []uint64
	shared  []fsm.SessionProof   // session tokens
	former  []fsm.SessionProof   // of receivers from which a session was taken over
	plan    []func() fsm.Command // what is done with the session queue soon, so that take-overs are of use
	uploads uploads
	proofs  map[fsm.EntityID][]fsm.SessionProof
	counter map[uint64]uint64
	last    map[uint64]fsm.Request
	trace   []string
	// reserved are the numbers that a Reserve gave and no command has named yet.
	reserved map[fsm.EntityID][]fsm.SequenceNumber
	// never is a number that no entity has given out. Numbers that begin anew have all been given out once.
	never fsm.SequenceNumber
}

// begin makes a run of one seed, with its entities.
func begin(seed uint64, f apply) (*run, error) {
	x := &run{
		seed:  seed,
		never: 1 << 40,
		r:     rand.New(rand.NewPCG(seed, 1)), apply: f, a: fsm.New(1), b: fsm.New(1), model: New(1),
		wall: wallZero, life: 1, proofs: map[fsm.EntityID][]fsm.SessionProof{},
		reserved: map[fsm.EntityID][]fsm.SequenceNumber{},
		counter:  map[uint64]uint64{}, last: map[uint64]fsm.Request{},
		uploads: uploads{known: map[fsm.EntityID][]fsm.Upload{}},
	}
	if seed%4 == 1 {
		x.bound = 1 + int(seed/4%5)
		x.a.TickAtMost(x.bound)
	}
	err := x.step(&fsm.Entry{Requests: []fsm.Request{{Command: &fsm.BecomeLeader{}}}})
	for id := fsm.EntityID(1); id < 8 && err == nil; id++ {
		e := &fsm.Entry{Epoch: x.epoch, Requests: []fsm.Request{{Command: x.put(id)}}}
		if x.bound > 0 {
			alone(e)
		}
		err = x.step(e)
	}
	if err == nil && seed%3 == 0 { // numbers begin anew after some messages
		x.never = 1<<63 + 1
		for id, last := range map[fsm.EntityID]uint64{1: 1<<63 - 1, 2: 1<<63 - 1, 3: 1<<48 - 1} {
			last -= seed / 3 % 24
			x.a.StartAfter(id, last)
			x.b.StartAfter(id, last)
			x.model.StartAfter(id, last)
		}
	}
	return x, err
}

// failed adds to an error where it was found.
func (x *run) failed(err error) error {
	if err == nil {
		return nil
	}
	tail := x.trace[max(0, len(x.trace)-12):]
	return fmt.Errorf("seed %d, entry %d: %w\nlast entries: %s", x.seed, x.index, err, tail)
}

// sequence runs steps entries from one seed and returns the first difference.
func sequence(seed uint64, steps int, f apply) error {
	x, err := begin(seed, f)
	for i := 0; i < steps && err == nil; i++ {
		if x.bound > 0 {
			err = x.bounded(x.entry())
		} else {
			err = x.step(x.entry())
		}
		if err == nil && x.r.IntN(4) == 0 {
			err = x.ask()
		}
		if err == nil && (x.r.IntN(16) == 0 || i == steps-1) {
			err = x.audit()
		}
	}
	return x.failed(err)
}

func (x *run) step(e *fsm.Entry) error {
	x.next(e)
	got := x.apply(x.a, x.index, e)
	twin := x.b.Apply(x.index, e)
	if err := x.model.Apply(Step{x.index, e, got}); err != nil {
		return err
	}
	if !reflect.DeepEqual(got, twin) {
		return fmt.Errorf("replicas answer differently:\n%+v\n%+v", got, twin)
	}
	x.learnAll(e, &got)
	return x.a.CheckInvariants()
}

// next gives an entry its place in the log.
func (x *run) next(e *fsm.Entry) {
	x.index += 1 + uint64(x.r.IntN(2)) // entries of raft itself lie between
	binary.LittleEndian.PutUint64(e.Seed[:], x.index*31+uint64(x.r.IntN(2)))
	if _, ok := e.Requests[0].Command.(*fsm.BecomeLeader); ok && e.Epoch == 0 {
		x.epoch = x.index
	}
	for i := range e.Requests {
		x.trace = append(x.trace, fmt.Sprintf("\n%d wall=%d lease=%d %v %d%s %T %+v", x.index,
			e.Wall-wallZero, e.Lease, e.Requests[i].ID, e.Requests[i].Entity, e.Requests[i].Sub,
			e.Requests[i].Command, e.Requests[i].Command))
	}
}

func (x *run) learnAll(e *fsm.Entry, got *fsm.Result) {
	for i := range got.Outcomes {
		x.learn(e.Requests[i].Entity, &got.Outcomes[i])
		if id := e.Requests[i].Entity; !got.Outcomes[i].Repeated {
			if _, ok := e.Requests[i].Command.(*fsm.Reserve); ok {
				x.reserved[id] = append(x.reserved[id], got.Outcomes[i].Numbers...)
			}
		}
		for _, o := range got.Outcomes[i].Ops {
			x.learn(0, &o)
		}
	}
}

// learn keeps what a client would know, the old as well as the new.
func (x *run) learn(id fsm.EntityID, got *fsm.Outcome) {
	o := *got
	for _, d := range o.Locked {
		x.tokens = append(x.tokens, d.Token)
	}
	x.numbers = append(x.numbers, o.Numbers...)
	for _, m := range o.Moves {
		x.moves = append(x.moves, m.Number)
	}
	if i := slices.IndexFunc(x.shared, func(p fsm.SessionProof) bool {
		return !o.Shared.IsZero() && p.Token == o.Shared
	}); i >= 0 {
		for _, p := range x.proofs[id] {
			if p.ID == o.Session.ID && p.Token != o.Session.Token { // the last one was taken over
				x.former = append(x.former, p)
			}
		}
		x.plan = append(x.plan, x.release)
	} else if !o.Shared.IsZero() && x.r.IntN(3) == 0 {
		x.plan = append(x.plan, func() fsm.Command { return &fsm.Lock{Max: 2, Session: o.Session} },
			func() fsm.Command {
				return &fsm.AcceptSession{ID: o.Session.ID, Shared: true, Presented: o.Shared}
			})
	}
	if !o.Session.Token.IsZero() {
		x.proofs[id] = append(x.proofs[id], o.Session)
	}
	if !o.Shared.IsZero() {
		x.shared = append(x.shared, fsm.SessionProof{ID: o.Session.ID, Token: o.Shared})
	}
}

// audit compares the replicas, and restores one of them from its own image.
func (x *run) audit() error {
	if a, b := x.a.Digest(), x.b.Digest(); a != b {
		return fmt.Errorf("digests %x and %x", a, b)
	}
	var img bytes.Buffer
	if _, err := x.a.Capture().WriteTo(&img); err != nil {
		return err
	}
	if x.r.IntN(2) == 0 {
		x.a = fsm.New(1)
		if x.bound > 0 {
			x.a.TickAtMost(x.bound)
		}
	}
	if err := x.a.Restore(&img); err != nil {
		return err
	}
	if a, b := x.a.Digest(), x.b.Digest(); a != b {
		return fmt.Errorf("restored digest %x, should be %x", a, b)
	}
	return x.a.CheckInvariants()
}

// ask compares the answers to questions.
func (x *run) ask() error {
	if err := x.model.Drops(x.a.Dropped(1000)); err != nil {
		return err
	}
	id := x.entity()
	sub := []fsm.SubQueue{fsm.Main, fsm.DeadLetter, fsm.Main, fsm.DeadLetter, fsm.TransferDeadLetter}[x.r.IntN(5)]
	from := fsm.SequenceNumber(0)
	if id == 3 {
		from = 1 << 48
	}
	cursor := x.number(id) + fsm.SequenceNumber(x.r.IntN(2))
	room := uint32(x.r.IntN(2) * x.r.IntN(20))
	for _, q := range []fsm.Query{
		&fsm.Browse{Max: uint32(1 + x.r.IntN(4)), MaxBytes: room, States: uint8(x.r.IntN(8)),
			From: []fsm.SequenceNumber{0, cursor}[x.r.IntN(2)], HasSession: x.r.IntN(3) == 0, Session: x.sessionID(),
			After: uint64(x.r.IntN(9))},
		&fsm.Counts{}, &fsm.Idle{}, &fsm.ListLocks{Max: uint32(1 + x.r.IntN(4))},
		&fsm.Peek{Max: uint32(1 + x.r.IntN(5)), From: from + fsm.SequenceNumber(x.r.IntN(20))},
		&fsm.Peek{Max: uint32(1 + x.r.IntN(5)), From: cursor, MaxBytes: room},
		&fsm.Peek{Max: 100},
		&fsm.Peek{Max: uint32(1 + x.r.IntN(5)), HasSession: true, Session: x.sessionID()},
		&fsm.ListSessions{Max: uint32(1 + x.r.IntN(4)), After: x.sessionID(), HasAfter: x.r.IntN(2) == 0,
			UpdatedAfter: []fsm.Wall{0, x.wall - 9000}[x.r.IntN(2)]},
		&fsm.GetSessionState{Session: x.proof(id)},
	} {
		if l, ok := q.(*fsm.ListSessions); ok && !l.HasAfter {
			l.After = ""
		}
		req := fsm.QueryRequest{Entity: id, Sub: sub, Query: q}
		got, want := x.a.Query(req), x.model.Query(req)
		got.Detail = ""
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%T %+v\nwant %+v\ngot  %+v", q, q, want, got)
		}
	}
	for _, sub := range []fsm.SubQueue{fsm.Main, fsm.DeadLetter, fsm.TransferQueue} {
		q := &fsm.Moving{After: uint64(x.r.IntN(6)), Max: uint32(1 + x.r.IntN(4)), MaxBytes: room}
		req := fsm.QueryRequest{Entity: id, Sub: sub, Query: q}
		got, want := x.a.Query(req), x.model.Query(req)
		got.Detail = ""
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%T %+v of %q\nwant %+v\ngot  %+v", q, q, sub, want, got)
		}
	}
	for _, k := range []fsm.HistoryKind{fsm.Processed, fsm.Accepted, fsm.Releases} {
		c := &fsm.History{Kind: k, Max: 1000}
		a := x.a.Query(fsm.QueryRequest{Entity: id, Query: c})
		if err := x.model.History(id, k, a.History); err != nil {
			return err
		}
	}
	could := x.model.takeable(false)
	for k := range could {
		if !x.a.Deliverable(k) {
			return fmt.Errorf("%+v is not deliverable", k)
		}
	}
	plain := fsm.WaitKey{Entity: 1}
	if q := x.model.queue(1); q != nil && q.d.Status == fsm.Active && !q.rests() && x.a.Deliverable(plain) &&
		!x.model.takeable(true)[plain] {
		return fmt.Errorf("%+v is deliverable", plain)
	}
	return nil
}

func (x *run) entry() *fsm.Entry {
	step := fsm.Millis(x.r.IntN(1500))
	x.wall = x.wall.After(step)
	x.lease = x.lease.After(step)
	e := &fsm.Entry{Epoch: x.epoch}
	switch x.r.IntN(40) {
	case 0: // a new leader, its clocks up to 30 s before or behind
		x.wall += fsm.Wall(x.r.IntN(60_000) - 30_000)
		x.lease = max(0, x.lease+fsm.Lease(x.r.IntN(33_000)-30_000))
		e.Epoch = 0
		e.Requests = append(e.Requests, fsm.Request{Command: &fsm.BecomeLeader{}})
	case 1: // an entry of the deposed leader
		e.Epoch = x.epoch - 1
	case 2: // nobody was there for long
		x.lease += 400_000
	}
	e.Wall, e.Lease = x.wall, x.lease
	for range 1 + x.r.IntN(3)*x.r.IntN(2) {
		e.Requests = append(e.Requests, x.request())
	}
	offset := uint32(0)
	for i := range e.Requests {
		switch c := e.Requests[i].Command.(type) {
		case *fsm.Enqueue:
			e.Requests[i].Command = placed(c, &offset)
		case *fsm.Transfer:
			e.Requests[i].Command = placedAway(c, &offset)
		case *fsm.BodyPart:
			again := *c
			again.BodyOffset = offset
			offset += uint32(len(c.Body))
			e.Requests[i].Command = &again
		case *fsm.Commit:
			again := &fsm.Commit{Ops: append([]fsm.Op(nil), c.Ops...)}
			for j := range again.Ops {
				switch sent := again.Ops[j].Command.(type) {
				case *fsm.Enqueue:
					again.Ops[j].Command = placed(sent, &offset)
				case *fsm.Transfer:
					again.Ops[j].Command = placedAway(sent, &offset)
				}
			}
			e.Requests[i].Command = again
		}
	}
	return e
}

// placed returns a copy of c whose bodies have places of their own in the entry.
func placed(c *fsm.Enqueue, offset *uint32) *fsm.Enqueue {
	again := &fsm.Enqueue{Messages: append([]fsm.Message(nil), c.Messages...), Origin: c.Origin}
	for j := range again.Messages {
		again.Messages[j].BodyOffset = *offset
		*offset += uint32(len(again.Messages[j].Body))
	}
	return again
}

func placedAway(c *fsm.Transfer, offset *uint32) *fsm.Transfer {
	return &fsm.Transfer{To: c.To, Messages: placed(&fsm.Enqueue{Messages: c.Messages}, offset).Messages}
}

// request is a new one, or one that was sent before.
func (x *run) request() fsm.Request {
	pump := uint64(x.r.IntN(5))
	if pump == 0 {
		return x.new()
	}
	if old, ok := x.last[pump]; ok && x.r.IntN(4) == 0 {
		if x.r.IntN(8) == 0 {
			old.ID.Counter--
		}
		return old
	}
	q := x.new()
	if _, forwarder := q.Command.(*fsm.Forward); forwarder {
		return q // it asks the state and not its own memory
	}
	x.counter[pump]++
	q.ID = fsm.RequestID{Node: x.life + fsm.Incarnation(pump%2), Pump: pump, Counter: x.counter[pump]}
	x.last[pump] = q
	return q
}

// new makes a request that was not sent before.
func (x *run) new() fsm.Request {
	if x.r.IntN(8) == 0 {
		return x.part()
	}
	q := x.fresh()
	x.enlarge(&q)
	return q
}

func (x *run) entity() fsm.EntityID { return fsm.EntityID(1 + x.r.IntN(7)) }

func (x *run) sessionID() string { return []string{"", "a", "b", "c"}[x.r.IntN(4)] }

func pickOne[T any](x *run, list []T) (v T) {
	if len(list) > 0 {
		v = list[len(list)-1-x.r.IntN(min(len(list), 8))]
	}
	return v
}

func (x *run) proof(id fsm.EntityID) fsm.SessionProof {
	if x.r.IntN(10) == 0 {
		return fsm.SessionProof{ID: x.sessionID()}
	}
	return pickOne(x, x.proofs[id])
}
