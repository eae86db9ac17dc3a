package replica

import (
	"container/list"

	"github.com/busbar-mq/busbar/fsm"
)

// parking holds the requests that wait at the leader for something to take: first come, first
// served per key. They are leader memory, not proposals in flight (A18). The proposer's mu guards
// it.
type parking struct {
	queues map[fsm.WaitKey]*list.List // of *call, in ticket order
	byID   map[fsm.RequestID]*call    // every parkable call between arrival and answer
	count  int
	ticket uint64
	// receives counts the parkable calls between arrival and answer by entity; none has 0. A dead-letter
	// queue counts with its entity, a subscription by itself.
	receives map[fsm.EntityID]int
	// burst is how many requests of a key the next wake pulls. It doubles while they find something, because a wake
	// does not say how much there is.
	burst map[fsm.WaitKey]int
}

func newParking() parking {
	return parking{
		queues: map[fsm.WaitKey]*list.List{}, byID: map[fsm.RequestID]*call{},
		burst: map[fsm.WaitKey]int{}, receives: map[fsm.EntityID]int{},
	}
}

// add parks c, behind those that came before it. A call parked again keeps its place.
func (p *parking) add(c *call) {
	if c.ticket == 0 {
		p.ticket++
		c.ticket = p.ticket
	}
	q := p.queues[c.key]
	if q == nil {
		q = list.New()
		p.queues[c.key] = q
	}
	c.state = callParked
	p.count++
	if last := q.Back(); last == nil || last.Value.(*call).ticket < c.ticket {
		c.slot = q.PushBack(c)
		return
	}
	// Parked again: near the front, because it was pulled from there.
	at := q.Front()
	for at.Value.(*call).ticket < c.ticket {
		at = at.Next()
	}
	c.slot = q.InsertBefore(c, at)
}

// remove takes c out of its slot.
func (p *parking) remove(c *call) {
	p.unlink(p.queues[c.key], c.slot)
}

func (p *parking) unlink(q *list.List, e *list.Element) *call {
	c := q.Remove(e).(*call)
	c.slot = nil
	p.count--
	if q.Len() == 0 {
		delete(p.queues, c.key)
	}
	return c
}

// waiting returns how many requests are parked for the key.
func (p *parking) waiting(k fsm.WaitKey) int {
	if q := p.queues[k]; q != nil {
		return q.Len()
	}
	return 0
}

// pull appends to ride the first requests of the key that together take n messages or sessions.
func (p *parking) pull(k fsm.WaitKey, n int, ride func(*call)) {
	q := p.queues[k]
	for q != nil && n > 0 && q.Len() > 0 {
		c := p.unlink(q, q.Front())
		c.pulled = true
		n -= int(c.max)
		ride(c)
	}
}

// pullEntity takes every request parked for the entity: its description changed, so the log must
// judge them anew.
func (p *parking) pullEntity(id fsm.EntityID, ride func(*call)) {
	for k, q := range p.queues {
		if k.Entity != id {
			continue
		}
		for q.Len() > 0 {
			c := p.unlink(q, q.Front())
			c.pulled = true
			ride(c)
		}
	}
}

// satisfied pulls what the command of an entry may satisfy, so that a message is delivered by the very entry that
// stores it (A5). A key that cannot be told from the command comes through Result.Wake.
func (p *parking) satisfied(r *fsm.Request, ride func(*call)) {
	if p.count == 0 {
		return
	}
	switch cmd := r.Command.(type) {
	case *fsm.Enqueue:
		p.enqueued(r, cmd, ride)
	case *fsm.Settle:
		back, dead := 0, 0
		for i := range cmd.Items {
			switch cmd.Items[i].Verdict {
			case fsm.Abandon, fsm.Return:
				back++
			case fsm.Kill:
				dead++
			}
		}
		k := fsm.WaitKey{Entity: r.Entity, Sub: r.Sub}
		if !cmd.Session.Token.IsZero() {
			k.HasSession, k.Session = true, cmd.Session.ID
		}
		p.pull(k, back, ride)
		p.pull(fsm.WaitKey{Entity: r.Entity, Sub: fsm.DeadLetter}, dead, ride)
	case *fsm.AcceptSession:
		if !cmd.Presented.IsZero() { // the front end of the former receiver learns of it (S-330)
			k := fsm.WaitKey{Entity: r.Entity, Sub: r.Sub, Kind: fsm.WaitLost, HasSession: true, Session: cmd.ID}
			p.pull(k, p.waiting(k), ride)
		}
	case *fsm.ReleaseSession:
		p.pull(fsm.WaitKey{Entity: r.Entity, Sub: r.Sub, Kind: fsm.WaitSession}, 1, ride)
	case *fsm.PutEntity, *fsm.DropEntity, *fsm.Rehome:
		p.pullEntity(r.Entity, ride)
	}
}

func (p *parking) enqueued(r *fsm.Request, cmd *fsm.Enqueue, ride func(*call)) {
	now := 0 // messages that are deliverable at once
	for i := range cmd.Messages {
		m := &cmd.Messages[i]
		if m.ScheduledAt != 0 {
			continue
		}
		now++
		if m.HasSession {
			k := fsm.WaitKey{Entity: r.Entity, Sub: r.Sub, HasSession: true, Session: m.SessionID}
			p.pull(k, 1, ride)
			p.pull(fsm.WaitKey{Entity: r.Entity, Sub: r.Sub, Kind: fsm.WaitSession}, 1, ride)
		}
	}
	// A plain entity ignores session ids: its requests wait for the queue as a whole.
	p.pull(fsm.WaitKey{Entity: r.Entity, Sub: r.Sub}, now, ride)
}
