package partition

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"flag"
	"fmt"
	"io"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

var verbose = flag.Bool("replica.log", false, "with -v, show the logs of the replicas")

// small is a state machine just large enough to see what this room does to it: one plain queue per
// entity, locks without an end, remembered results, epochs and clocks.
type small struct {
	S smallState
}

type smallState struct {
	Index, Epoch uint64
	Wall         fsm.Wall
	Lease        fsm.Lease
	Due          fsm.Lease // lease deadline, 0 if none
	Seq          uint64
	Entities     map[fsm.EntityID]uint64 // version; empty: every entity is known
	Ready        map[fsm.EntityID][]smallMessage
	Locked       map[fsm.SequenceNumber]smallMessage
	Results      map[[2]uint64]smallResult
	Leases       []fsm.Lease // lease stamp of every entry
	Ticks        int
	Enqueues     int
}

type smallMessage struct {
	Seq uint64
	Ref fsm.BodyRef
}

type smallResult struct {
	Counter uint64
	Outcome fsm.Outcome
}

func newSmall() *small {
	return &small{smallState{
		Entities: map[fsm.EntityID]uint64{}, Ready: map[fsm.EntityID][]smallMessage{},
		Locked: map[fsm.SequenceNumber]smallMessage{}, Results: map[[2]uint64]smallResult{},
	}}
}

func (s *small) Apply(index uint64, e *fsm.Entry) fsm.Result {
	st := &s.S
	if index <= st.Index {
		panic(fmt.Sprintf("entry %d after %d", index, st.Index))
	}
	st.Index = index
	r := fsm.Result{Outcomes: make([]fsm.Outcome, len(e.Requests))}
	epoch := e.Epoch
	if _, ok := e.Requests[0].Command.(*fsm.BecomeLeader); ok {
		epoch, st.Epoch = index, index
	}
	if epoch != st.Epoch {
		for i := range r.Outcomes {
			r.Outcomes[i].Refusal = fsm.NotLeader
		}
		return r
	}
	st.Wall, st.Lease = max(st.Wall, e.Wall), max(st.Lease, e.Lease)
	st.Leases = append(st.Leases, st.Lease)
	for i := range e.Requests {
		q := &e.Requests[i]
		key := [2]uint64{uint64(q.ID.Node), q.ID.Pump}
		if old, ok := st.Results[key]; ok && !q.ID.IsZero() && old.Counter == q.ID.Counter {
			r.Outcomes[i] = old.Outcome
			r.Outcomes[i].Repeated = true
			continue
		}
		o, keep := s.one(index, i, q, &r)
		r.Outcomes[i] = o
		if !q.ID.IsZero() && keep {
			st.Results[key] = smallResult{q.ID.Counter, o}
		}
	}
	return r
}

// wake notes that the request at that place of the entry woke who waits on an entity.
func wake(r *fsm.Result, place int, id fsm.EntityID) {
	k := fsm.WaitKey{Entity: id}
	if at := slices.Index(r.Wake, k); at >= 0 {
		r.WokenBy[at] = place
		return
	}
	r.Wake, r.WokenBy = append(r.Wake, k), append(r.WokenBy, place)
}

func (s *small) one(index uint64, i int, q *fsm.Request, r *fsm.Result) (o fsm.Outcome, keep bool) {
	st := &s.S
	if _, ok := st.Entities[q.Entity]; q.Entity != 0 && len(st.Entities) > 0 && !ok {
		if _, put := q.Command.(*fsm.PutEntity); !put {
			return fsm.Outcome{Refusal: fsm.Stale}, false
		}
	}
	switch c := q.Command.(type) {
	case *fsm.Enqueue:
		st.Enqueues++
		for _, m := range c.Messages {
			st.Seq++
			ref := fsm.BodyRef{Index: index, Offset: m.BodyOffset, Length: uint32(len(m.Body))}
			st.Ready[q.Entity] = append(st.Ready[q.Entity], smallMessage{st.Seq, ref})
			o.Numbers = append(o.Numbers, fsm.SequenceNumber(st.Seq))
		}
		wake(r, i, q.Entity)
		return o, true
	case *fsm.Lock:
		n := min(int(c.Max), len(st.Ready[q.Entity]))
		for _, m := range st.Ready[q.Entity][:n] {
			var token fsm.LockToken
			binary.BigEndian.PutUint64(token[8:], m.Seq)
			o.Locked = append(o.Locked, fsm.Delivery{Seq: fsm.SequenceNumber(m.Seq), Token: token, Ref: m.Ref})
			st.Locked[fsm.SequenceNumber(m.Seq)] = m
		}
		st.Ready[q.Entity] = st.Ready[q.Entity][n:]
		return o, n > 0
	case *fsm.AcceptSession:
		return fsm.Outcome{Refusal: fsm.NoSession}, false
	case *fsm.Settle:
		for _, it := range c.Items {
			seq := fsm.SequenceNumber(binary.BigEndian.Uint64(it.Token[8:]))
			m, ok := st.Locked[seq]
			switch {
			case !ok:
				o.Refusals = append(o.Refusals, fsm.MessageLockLost)
				continue
			case it.Verdict == fsm.Complete:
				r.Freed = append(r.Freed, m.Ref)
			default:
				st.Ready[q.Entity] = append([]smallMessage{m}, st.Ready[q.Entity]...)
				wake(r, i, q.Entity)
			}
			delete(st.Locked, seq)
			o.Refusals = append(o.Refusals, fsm.None)
		}
		return o, true
	case *fsm.PutEntity:
		st.Entities[q.Entity] = max(st.Entities[q.Entity], c.Descriptor.Version)
	case *fsm.DropEntity:
		delete(st.Entities, q.Entity)
		r.Dropped = append(r.Dropped, q.Entity)
	case *fsm.Renew:
		st.Due = st.Lease + 5000
	case *fsm.Tick:
		st.Ticks++
		if st.Due != 0 && st.Lease >= st.Due {
			st.Due = 0
		}
	case *fsm.Cancel:
		panic("a broken invariant, on purpose")
	}
	return o, true
}

func (s *small) Query(q fsm.QueryRequest) fsm.Answer {
	switch q.Query.(type) {
	case *fsm.Counts:
		return fsm.Answer{Counts: fsm.EntityCounts{Active: uint64(len(s.S.Ready[q.Entity]))}}
	case *fsm.Peek:
		var a fsm.Answer
		for _, m := range s.S.Ready[q.Entity] {
			a.Messages = append(a.Messages, fsm.Delivery{Seq: fsm.SequenceNumber(m.Seq), Ref: m.Ref})
		}
		return a
	}
	return fsm.Answer{Refusal: fsm.InvalidOperation}
}

func (s *small) Deliverable(k fsm.WaitKey) bool { return len(s.S.Ready[k.Entity]) > 0 }

func (s *small) Clocks() (wall fsm.Wall, lease fsm.Lease) { return s.S.Wall, s.S.Lease }

func (s *small) NextDeadline() (wall fsm.Wall, lease fsm.Lease) { return 0, s.S.Due }

func (s *small) Known() []fsm.KnownEntity {
	var out []fsm.KnownEntity
	for id, v := range s.S.Entities {
		out = append(out, fsm.KnownEntity{ID: id, Version: v})
	}
	return out
}

func (s *small) Capture() io.WriterTo {
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	if err := gob.NewEncoder(&b).Encode(&s.S); err != nil {
		panic(err)
	}
	binary.BigEndian.PutUint64(b.Bytes(), uint64(b.Len()-8))
	return &b
}

func (s *small) Restore(r io.Reader) error {
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	b := make([]byte, binary.BigEndian.Uint64(head))
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	s.S = newSmall().S
	return gob.NewDecoder(bytes.NewReader(b)).Decode(&s.S)
}
