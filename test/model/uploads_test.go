package model

import (
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// uploads is what the driver has uploaded, as a router would know it: some of it is gone already.
type uploads struct {
	last  fsm.UploadID
	known map[fsm.EntityID][]fsm.Upload
}

// maxKnown is how many uploads of an entity the driver remembers, gone ones too.
const maxKnown = 3

// part goes on with an upload, or begins another one. Now and then a part is missing, comes again, belongs
// nowhere or is larger than the entity takes.
func (x *run) part() fsm.Request {
	q := fsm.Request{Entity: []fsm.EntityID{1, 2, 2, 3, 4, 4, 7}[x.r.IntN(7)]}
	c := &fsm.BodyPart{Body: make([]byte, 1+x.r.IntN(9))}
	q.Command = c
	switch known := x.uploads.known[q.Entity]; {
	case x.r.IntN(2) == 0 || len(known) == 0:
		x.uploads.last++
		c.Upload = x.uploads.last
		known = append(known, fsm.Upload{ID: c.Upload, Parts: 1, Bytes: uint32(len(c.Body))})
		x.uploads.known[q.Entity] = known[max(0, len(known)-maxKnown):]
	default:
		u := &known[x.latest(len(known))]
		c.Upload, c.Number = u.ID, u.Parts
		u.Parts++
		u.Bytes += uint32(len(c.Body))
	}
	switch x.r.IntN(40) {
	case 0:
		c.Number++
	case 1:
		c.Number = 0
	case 2:
		c.Upload = 0
	case 3:
		c.Body = make([]byte, 700)
	case 4:
		q.Sub = fsm.DeadLetter
	}
	return q
}

// latest is mostly the last of n.
func (x *run) latest(n int) int {
	if x.r.IntN(4) > 0 {
		return n - 1
	}
	return x.r.IntN(n)
}

// enlarge has some commands refer to what was uploaded.
func (x *run) enlarge(q *fsm.Request) {
	if x.r.IntN(3) == 0 {
		return
	}
	switch c := q.Command.(type) {
	case *fsm.Enqueue:
		x.refer(q.Entity, c.Messages)
	case *fsm.Transfer:
		x.refer(q.Entity, c.Messages)
	case *fsm.SetSessionState:
		known := x.uploads.known[q.Entity]
		if len(known) == 0 {
			return
		}
		if c.Rest = known[x.latest(len(known))]; x.r.IntN(12) > 0 {
			c.State, c.Clear = nil, false
		}
	case *fsm.Commit:
		for i := range c.Ops {
			op := fsm.Request{Entity: c.Ops[i].Entity, Command: c.Ops[i].Command}
			x.enlarge(&op)
		}
	}
}

func (x *run) refer(id fsm.EntityID, messages []fsm.Message) {
	known := x.uploads.known[id]
	for i := range messages {
		if n := len(known); n > 0 && x.r.IntN(2) == 0 {
			at := x.latest(n)
			messages[i].Rest = known[at]
			if x.r.IntN(8) > 0 { // it is taken over
				known = slices.Delete(slices.Clone(known), at, at+1)
				x.uploads.known[id] = known
			}
		}
		if x.r.IntN(40) == 0 {
			messages[i].Rest.Bytes++
		}
	}
}

// RUL-25: the driver reaches what it is for: messages and states that lie in parts, in all places.
func TestTheDriverReachesLargeBodies(t *testing.T) {
	seen := map[string]int{}
	look := func(s *fsm.State, index uint64, e *fsm.Entry) fsm.Result {
		r := s.Apply(index, e)
		for i, o := range r.Outcomes {
			for _, d := range o.Locked {
				if len(d.Rest) > 0 {
					seen["locked"]++
				}
			}
			for _, op := range o.Ops {
				seen["operation "+op.Refusal.String()]++
			}
			switch c := e.Requests[i].Command.(type) {
			case *fsm.BodyPart:
				seen["part "+o.Refusal.String()]++
			case *fsm.Enqueue:
				for j := range c.Messages {
					if c.Messages[j].Rest.ID != 0 {
						seen["message "+o.Refusal.String()]++
					}
				}
			case *fsm.SetSessionState:
				if c.Rest.ID != 0 {
					seen["state "+o.Refusal.String()]++
				}
			}
		}
		return r
	}
	for n := range uint64(200) {
		if err := sequence(n+1, 60, look); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"locked", "part " + fsm.None.String(), "part " + fsm.UploadLost.String(),
		"part " + fsm.QuotaExceeded.String(), "part " + fsm.MessageSizeExceeded.String(), "message " + fsm.None.String(),
		"message " + fsm.UploadLost.String(), "state " + fsm.None.String(), "state " + fsm.UploadLost.String(),
		"operation " + fsm.UploadLost.String()} {
		if seen[what] == 0 {
			t.Errorf("never: %s", what)
		}
	}
	t.Log(seen)
}
