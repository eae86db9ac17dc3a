package model

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

const tenMinutes fsm.Millis = 600_000

// Model is the state of one partition.
type Model struct {
	id        fsm.PartitionID
	index     uint64
	epoch     uint64
	wall      fsm.Wall
	lease     fsm.Lease
	queues    []*queue // by id
	reclaimed map[fsm.EntityID][]fsm.BodyRef
	pumps     map[pump]*memory
	lost      map[fsm.Incarnation]bool
	issued    map[fsm.LockToken]bool
	bodies    map[fsm.BodyRef]bool          // submitted and not yet reported as free
	needed    map[fsm.BodyRef]bool          // of the last audit; kept because a new map takes longer
	by        fsm.RequestID                 // of the request being done
	parts     map[fsm.BodyRef][]fsm.BodyRef // of bodies of which only the beginning is in their place
	deleted   uint64                        // messages of entities that were deleted
	forwardsHeld
}

type pump struct {
	node fsm.Incarnation
	pump uint64
}

type memory struct {
	counter  uint64
	until    fsm.Lease
	request  fsm.Request
	outcome  fsm.Outcome
	answered bool
	removed  bool
}

type queue struct {
	d        fsm.Descriptor
	prefix   fsm.PartitionID
	arrivals uint64
	touched  fsm.Wall
	hears    bool // somebody receives
	active   fsm.Lease
	history  [3][]*line
	known    []identity
	messages []*message // in the order of arrival
	sessions []*session
	born     int // sessions so far
	ready    []*session
	away     []*message // in the transfer queue
	origins  map[source]*arrivals
	moves    [4]transits
	drops    fsm.Drops
	uploads  []*uploaded // in the order they began
	marks
}

type message struct {
	arrival   uint64
	number    fsm.SequenceNumber
	sub       fsm.SubQueue
	state     fsm.MessageState
	session   *session
	finished  uint32
	enqueued  fsm.Wall
	expires   fsm.Wall
	ttl       fsm.Millis
	scheduled fsm.Wall
	body      fsm.BodyRef
	parts     []fsm.BodyRef // behind body
	reason    string
	text      string
	props     []fsm.Property
	token     fsm.LockToken // zero if not locked
	id        string
	known     bool // a history was on when it came
	taken     fsm.Wall
	diedIn    *string       // session
	rest      fsm.Lease     // not delivered until then; 0 if not at rest
	restMin   fsm.Lease     // when that may be over, for chance shortens it
	by        fsm.RequestID // who has it
	deadline  fsm.Lease
	first     fsm.SequenceNumber // of a copy: number in the topic; of a moved message: where it was sent
	hops      uint8              // moves so far
	source    string             // where it was a dead letter
	group     *string            // at a topic: session id
	to        fsm.EntityID       // of a transfer
	reserved  fsm.SequenceNumber // of a transfer: its number there
	moving    bool               // in transit
	stuck     bool               // its destination will not have it
}

// identity is a message id that was accepted.
type identity struct {
	key     string
	at      fsm.Wall
	message *message
}

type session struct {
	id       string
	order    int
	token    fsm.LockToken // zero if not held
	deadline fsm.Lease
	node     fsm.Incarnation
	shared   fsm.LockToken // zero if held exclusively
	left     leaver
	rest     fsm.Lease     // as of a message
	state    []byte        // nil if none
	parts    []fsm.BodyRef // of a large state, which is empty then
	stateAt  fsm.Wall
}

// New returns an empty model.
func New(p fsm.PartitionID) *Model {
	return &Model{
		id: p, reclaimed: map[fsm.EntityID][]fsm.BodyRef{}, pumps: map[pump]*memory{},
		lost: map[fsm.Incarnation]bool{}, issued: map[fsm.LockToken]bool{},
		bodies: map[fsm.BodyRef]bool{}, needed: map[fsm.BodyRef]bool{}, parts: map[fsm.BodyRef][]fsm.BodyRef{},
	}
}

// Step is an entry, and what a replica made of it.
type Step struct {
	Index  uint64
	Entry  *fsm.Entry
	Result fsm.Result
}

// Apply does the entries, too, and says where the results differ from what they should be. The keys that are woken
// and the bodies that are freed may be told by any of them.
func (m *Model) Apply(steps ...Step) error {
	could, held := m.takeable(true), m.holders()
	var woken []fsm.WaitKey
	var freed []fsm.BodyRef
	led := false
	for i := range steps {
		s := &steps[i]
		woken, freed = append(woken, s.Result.Wake...), append(freed, s.Result.Freed...)
		leads, err := m.entry(s.Index, s.Entry, s.Result)
		if err != nil {
			return err
		}
		led = led || leads
	}
	// order-free: any of the keys makes it an error.
	for k := range m.takeable(false) {
		if !led || k.HasSession && !held[m.queue(k.Entity).session(k.Session).token] {
			continue // who accepts looks for messages of himself
		}
		if !could[k] && !slices.Contains(woken, k) {
			return fmt.Errorf("nobody is woken for %+v, only %+v", k, woken)
		}
	}
	return m.audit(freed)
}

// entry does one entry, unless it is one of a leader who was deposed.
func (m *Model) entry(index uint64, e *fsm.Entry, got fsm.Result) (leads bool, err error) {
	m.index = index
	if len(got.Outcomes) != len(e.Requests) {
		return false, fmt.Errorf("%d outcomes for %d requests", len(got.Outcomes), len(e.Requests))
	}
	for _, r := range e.Requests {
		fsm.EachMessage(r.Command, func(x *fsm.Message) { m.bodies[m.ref(x)] = true })
		if c, ok := r.Command.(*fsm.BodyPart); ok {
			m.bodies[m.partRef(c)] = true
		}
	}
	_, begins := e.Requests[0].Command.(*fsm.BecomeLeader)
	if begins && e.Epoch == 0 {
		m.epoch = index
	} else if e.Epoch != m.epoch {
		for _, o := range got.Outcomes {
			if o.Refusal != fsm.NotLeader {
				return false, fmt.Errorf("an entry of another epoch did something: %+v", o)
			}
		}
		return false, nil
	}
	m.wall, m.lease = max(m.wall, e.Wall), max(m.lease, e.Lease)
	for i := range e.Requests {
		o := got.Outcomes[i]
		want := m.request(&e.Requests[i], &o)
		blank(&o)
		blank(&want)
		if !reflect.DeepEqual(want, o) {
			return false, fmt.Errorf("%T\nwant %+v\ngot  %+v", e.Requests[i].Command, want, o)
		}
	}
	return true, nil
}

// takeable says what a waiter could take now, or maybe.
func (m *Model) takeable(maybe bool) map[fsm.WaitKey]bool {
	keys := map[fsm.WaitKey]bool{}
	var last fsm.WaitKey // messages of one key follow each other
	for _, q := range m.queues {
		for _, x := range q.messages {
			if !x.here() && !(maybe && x.mayWake(m.lease)) || q.forwards(x.sub) && (x.stuck || !q.receives()) {
				continue
			}
			k := fsm.WaitKey{Entity: q.d.ID, Sub: x.sub}
			switch {
			case x.session == nil:
			case x.session.token.IsZero():
				k.Kind = fsm.WaitSession
			case x.session.awaits():
				continue
			default:
				k.HasSession, k.Session = true, x.session.id
			}
			if k != last {
				keys[k], last = true, k
			}
		}
		if slices.ContainsFunc(q.away, q.goes) {
			keys[fsm.WaitKey{Entity: q.d.ID, Sub: fsm.TransferQueue}] = true
		}
	}
	return keys
}

// holders returns the tokens of all held sessions.
func (m *Model) holders() map[fsm.LockToken]bool {
	held := map[fsm.LockToken]bool{}
	for _, q := range m.queues {
		for _, s := range q.sessions {
			held[s.token] = true
		}
	}
	return held
}

// blank takes away the texts, which are for people.
func blank(o *fsm.Outcome) {
	o.Detail = ""
	o.Ops = slices.Clone(o.Ops) // the replica remembers them
	for i := range o.Ops {
		blank(&o.Ops[i])
	}
}

// request answers from memory or does the command; tokens come from got.
func (m *Model) request(r *fsm.Request, got *fsm.Outcome) fsm.Outcome {
	m.by = r.ID
	defer m.grow()
	if r.ID.IsZero() {
		return m.command(r, got)
	}
	if m.lost[r.ID.Node] {
		return fsm.Outcome{Refusal: fsm.NodeExpired}
	}
	key := pump{r.ID.Node, r.ID.Pump}
	mem := m.pumps[key]
	if mem != nil && r.ID.Counter < mem.counter {
		return fsm.Outcome{Refusal: fsm.InvalidArgument}
	}
	if mem != nil && r.ID.Counter == mem.counter && mem.answered {
		if o, ok := m.again(mem); ok {
			o.Repeated = true
			return o
		}
	}
	o := m.command(r, got)
	mem = &memory{counter: r.ID.Counter, until: m.lease.After(tenMinutes), request: *r}
	mem.answered = o.Refusal != fsm.Stale && o.Refusal != fsm.NoSession && o.Refusal != fsm.UploadLost && o.Refusal != fsm.Busy &&
		!(o.Refusal == fsm.TransactionAborted && len(o.Ops) > 0 && o.Ops[len(o.Ops)-1].Refusal == fsm.UploadLost)
	switch c := r.Command.(type) {
	case *fsm.Lock:
		mem.answered = mem.answered && (o.Refusal != fsm.None || len(o.Locked) > 0)
		mem.removed = c.Delete
	case *fsm.WatchSession:
		mem.answered = mem.answered && o.Refusal != fsm.None
	case *fsm.Receive:
		mem.removed = c.Delete
	}
	if mem.answered {
		mem.outcome = o
	}
	if mem.removed { // a repetition tells the first number of every message
		mem.outcome.Locked = slices.Clone(o.Locked)
		for i := range mem.outcome.Locked {
			mem.outcome.Locked[i].EnqueuedSeq = o.Locked[i].First()
		}
	}
	m.pumps[key] = mem
	return o
}

// again is the remembered answer, as far as its locks hold.
func (m *Model) again(mem *memory) (fsm.Outcome, bool) {
	o := mem.outcome
	_, accepted := mem.request.Command.(*fsm.AcceptSession)
	accepted = accepted && o.Refusal == fsm.None
	if !accepted && (mem.removed || len(o.Locked) == 0) {
		return o, true
	}
	q := m.queue(mem.request.Entity)
	if q == nil {
		return o, false
	}
	m.expire(q)
	if accepted {
		for _, s := range q.sessions {
			if s.token == o.Session.Token {
				o.LockedUntil = m.wall.After(s.deadline.Since(m.lease))
				return o, true
			}
		}
		return o, false
	}
	var held []fsm.Delivery
	for _, d := range mem.outcome.Locked {
		if x := q.byToken(mem.request.Sub, d.Token); x != nil {
			held = append(held, m.delivery(x))
		}
	}
	return fsm.Outcome{Locked: held}, len(held) > 0
}

func (m *Model) queue(id fsm.EntityID) *queue {
	for _, q := range m.queues {
		if q.d.ID == id {
			return q
		}
	}
	return nil
}

func (m *Model) fresh(got fsm.LockToken, q *queue) fsm.LockToken {
	if m.issued[got] || got.Prefix() != q.prefix {
		return fsm.LockToken{} // makes the comparison fail
	}
	m.issued[got] = true
	return got
}

func (m *Model) delivery(x *message) fsm.Delivery {
	d := fsm.Delivery{
		Seq: x.number, EnqueuedSeq: x.first, Token: x.token, EnqueuedAt: x.enqueued,
		ExpiresAt: x.expires, ScheduledAt: x.scheduled, Attempts: x.finished, State: x.state,
		Reason: x.reason, Description: x.text, Source: x.source, Properties: x.props, Ref: x.body,
		Rest: x.parts,
	}
	if !x.token.IsZero() {
		deadline := x.deadline
		if x.session != nil {
			deadline = x.session.deadline
		}
		d.LockedUntil = m.wall.After(deadline.Since(m.lease))
	}
	return d
}

func (q *queue) byToken(sub fsm.SubQueue, t fsm.LockToken) *message {
	for _, x := range q.messages {
		if !t.IsZero() && x.token == t && x.sub == sub {
			return x
		}
	}
	return nil
}

func (q *queue) session(id string) *session {
	for _, s := range q.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (q *queue) held(p fsm.SessionProof) *session {
	if s := q.session(p.ID); s != nil && !s.token.IsZero() && s.token == p.Token {
		return s
	}
	return nil
}

func (q *queue) size() uint64 {
	var n int
	for _, x := range slices.Concat(q.messages, q.away) {
		n += int(x.size()) + x.luggage()
		if x.diedIn != nil {
			n += len(*x.diedIn)
		}
	}
	for _, s := range q.sessions {
		if s.state != nil {
			n += len(s.state) + int(lengthOf(s.parts)) + len(s.id)
		}
	}
	for _, u := range q.uploads {
		n += int(lengthOf(u.parts))
	}
	return uint64(n)
}

func (q *queue) full(more uint64) bool {
	limit := q.d.MaxSizeBytes / uint64(len(q.d.Partitions))
	return q.d.MaxSizeBytes > 0 && q.size()+more > limit
}

// tidy brings the list of ready sessions up to date. A session that has something and is held by nobody is in it, at
// its end if it was not before. Sessions without anything end.
func (q *queue) tidy() {
	has := func(s *session) bool {
		return s.token.IsZero() && slices.ContainsFunc(q.messages, func(x *message) bool {
			return x.session == s && x.here()
		})
	}
	q.ready = slices.DeleteFunc(q.ready, func(s *session) bool { return !has(s) })
	for _, s := range q.sessions {
		if has(s) && !slices.Contains(q.ready, s) {
			q.ready = append(q.ready, s)
		}
	}
	q.sessions = slices.DeleteFunc(q.sessions, func(s *session) bool {
		return s.token.IsZero() && s.state == nil &&
			!slices.ContainsFunc(q.messages, func(x *message) bool { return x.session == s })
	})
}
