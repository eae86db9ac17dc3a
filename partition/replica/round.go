package replica

import (
	"fmt"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// collect packs the next entry, or returns nil if nothing waits. The calls in it are p.riding;
// e.Requests is parallel to those that are not queries, then come the proposer's own.
func (p *proposer) collect(tick bool) *fsm.Entry {
	var listeners []fsm.EntityID
	if tick {
		listeners = p.listeners()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &fsm.Entry{Epoch: p.epoch}
	size := 0
	ride := func(c *call) {
		c.state = callRiding
		p.riding = append(p.riding, c)
		if !c.query {
			e.Requests = append(e.Requests, c.req)
			size += c.size
		}
	}
	pending, took := p.takePendingWakesLocked(), 0
	for _, c := range p.pending {
		if size > 0 && size+c.size > p.cfg.MaxEntryBytes {
			break
		}
		late, repeats := p.answeredLocked(c)
		if repeats && size > 0 {
			break // what is ahead of it in the entry could end the locks that it is to be told of
		}
		took++
		p.bytes -= c.size
		if late {
			c.finish(fsm.Outcome{Refusal: fsm.Busy, Detail: lateDetail}, nil)
			continue
		}
		if p.droppedEarlierLocked(c) {
			c.finish(fsm.Outcome{Refusal: fsm.EntityNotFound, Detail: "entity was deleted"}, nil)
			continue
		}
		if !repeats && p.parkableNowLocked(c) {
			p.parking.add(c)
			continue
		}
		p.sealLocked(c, p.cfg.MaxEntryBytes-size-c.size)
		// Requests that were parked for the same key came before c.
		p.pullPendingWakesLocked(pending, c.key, ride)
		ride(c)
		if !c.query {
			p.parking.satisfied(&c.req, ride)
		}
	}
	for k := range pending { // order-free: each key is pulled for itself
		p.pullPendingWakesLocked(pending, k, ride)
	}
	clear(p.pending[:took])
	p.pending = p.pending[took:]
	if len(p.pending) == 0 {
		p.pending = nil
	}
	switch {
	case tick:
		e.Requests = append(e.Requests, fsm.Request{Command: &fsm.Tick{Listeners: listeners}})
	case len(e.Requests) > 0:
	case len(p.riding) > 0:
		e.Requests = append(e.Requests, fsm.Request{Command: &fsm.Barrier{}})
	default:
		return nil
	}
	return e
}

// sealLocked ends that messages join c. At most room bytes of them do, and none if the disk has room for no more.
func (p *proposer) sealLocked(c *call, room int) {
	send, is := c.req.Command.(*fsm.Enqueue)
	if !is || send.Late == nil {
		return
	}
	if p.room.spent() {
		room = 0
	}
	before := c.size
	send.Seal(room)
	c.size = send.Weight()
	p.room.took(c.size - before)
}

// lateDetail tells the caller of a late request, if there is one after all, what to do.
const lateDetail = "the request was answered, and its locks are gone: ask with a new one"

// answeredLocked looks whether a request for messages or for a session has had an answer before. It repeats, if the
// locks of that still hold. It is late, if they are gone: it was given up on its way, and its caller has settled what
// another attempt got. Done anew, it would take something for nobody. A request that is late or repeats is not parked: what
// it would wait for is what it has had. No entry is in flight, so the machine has all answers.
func (p *proposer) answeredLocked(c *call) (late, repeats bool) {
	if c.query || c.req.ID.IsZero() || !c.req.Command.Traits().Has(fsm.Takes) {
		return false, false
	}
	p.machine.view(func(m Machine, _ uint64) {
		if a, ok := m.(Answerer); ok {
			answered, holds := a.Answered(c.req.ID)
			late, repeats = answered && !holds, holds
		}
	})
	return late, repeats
}

// droppedEarlierLocked reports whether c describes an entity that was dropped before, and remembers drops.
func (p *proposer) droppedEarlierLocked(c *call) bool {
	switch c.req.Command.(type) {
	case *fsm.PutEntity:
		_, gone := p.gone[c.req.Entity]
		return gone
	case *fsm.DropEntity:
		if len(p.gone) >= maxGone {
			clear(p.gone)
		}
		p.gone[c.req.Entity] = struct{}{}
	}
	return false
}

// maxBurst bounds how many requests of one key ride because of one wake.
const maxBurst = 256

// takePendingWakesLocked returns the keys that the next entry pulls. A request that waits for them rides behind what
// the entry brings, which is there to be found as well.
func (p *proposer) takePendingWakesLocked() map[fsm.WaitKey]struct{} {
	if len(p.pendingWakes) == 0 {
		return nil
	}
	pending := make(map[fsm.WaitKey]struct{}, len(p.pendingWakes))
	for _, k := range p.pendingWakes {
		pending[k] = struct{}{}
	}
	p.pendingWakes = p.pendingWakes[:0]
	return pending
}

// pullPendingWakesLocked pulls a key that was woken, once. If nobody is parked for it any more, and nobody rides, those that await it
// hear of the wake.
func (p *proposer) pullPendingWakesLocked(pending map[fsm.WaitKey]struct{}, k fsm.WaitKey, ride func(*call)) {
	if _, ok := pending[k]; !ok {
		return
	}
	delete(pending, k)
	if p.parking.waiting(k) == 0 {
		delete(p.parking.burst, k)
		if !slices.ContainsFunc(p.riding, func(c *call) bool { return c.key == k }) {
			p.waits.wake(k)
		}
		return
	}
	n := min(max(2*p.parking.burst[k], 1), maxBurst)
	p.parking.burst[k] = n
	for range n {
		p.parking.pull(k, 1, ride)
	}
}

// parkableNowLocked reports whether c can be parked without asking the log. The log has answered for this key before,
// so the entity allows the request, and there is nothing now. Requests that are parked for the key came first and
// found nothing either.
func (p *proposer) parkableNowLocked(c *call) bool {
	if !c.parkable || c.over {
		return false
	}
	if _, ok := p.knownEmpty[c.key]; !ok || c.key.HasSession {
		return false
	}
	notEmpty := true
	p.machine.view(func(m Machine, _ uint64) {
		if d, ok := m.(Deliverer); ok {
			notEmpty = d.Deliverable(c.key)
		}
	})
	return !notEmpty
}

// complete answers the calls of an applied entry and wakes whom it concerns.
func (p *proposer) complete(e *fsm.Entry, a *applied, started time.Time) {
	// No entry is in flight now, so nothing is freed while the bodies of what was just taken are
	// read.
	p.mu.Lock()
	calls := p.riding
	p.mu.Unlock()
	errs := make([]error, len(calls))
	i := 0
	for n, c := range calls {
		if c.query {
			continue
		}
		if o := &a.result.Outcomes[i]; len(o.Locked) > 0 {
			o.Locked = slices.Clone(o.Locked) // the state may remember the original
			if err := p.machine.fill(o.Locked); err != nil {
				// The result is remembered: asking again, another replica may find the bodies.
				errs[n] = fmt.Errorf("%w: %w", fsm.ErrUnknown, err)
			}
		}
		i++
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.riding = nil
	p.barrierAt = started
	lastEmptyAt := map[fsm.WaitKey]int{}
	i = 0
	for n, c := range calls {
		if c.query {
			c.finish(fsm.Outcome{}, nil)
			continue
		}
		p.traffic.count(c.req.ID)
		p.press(c, &a.result.Outcomes[i], e.Wall)
		p.answerLocked(c, i, a.result.Outcomes[i], errs[n], lastEmptyAt)
		i++
	}
	p.hooks.Load().tell(&a.result)
	p.forgetPlainLocked(e)
	p.wakeLocked(&a.result, lastEmptyAt)
	for _, id := range a.result.Dropped {
		p.waits.dropped(id)
		p.parking.pullEntity(id, func(c *call) {
			c.finish(fsm.Outcome{Refusal: fsm.EntityNotFound, Detail: "entity was deleted"}, nil)
		})
	}
}

// notEmpty stands for the place of a request that did not find nothing.
const notEmpty = -1

// answerLocked answers one call, or parks it if it may go on waiting. at is its place in the entry; lastEmptyAt
// is the place of each key's last request if that found nothing, or notEmpty.
func (p *proposer) answerLocked(c *call, at int, o fsm.Outcome, err error, lastEmptyAt map[fsm.WaitKey]int) {
	if c.key.Entity != 0 {
		empty := c.empty(&o) && !o.Repeated // an answer that is given again tells nothing of what is there
		lastEmptyAt[c.key] = notEmpty
		if empty {
			lastEmptyAt[c.key] = at
		}
		if empty && c.parkable {
			if len(p.knownEmpty) >= maxPlain {
				clear(p.knownEmpty)
			}
			p.knownEmpty[c.key] = struct{}{}
			switch {
			case c.over || c.state != callRiding:
			case p.parking.byID[c.req.ID] != c && !c.req.ID.IsZero():
				o, err = fsm.Outcome{}, errAskedAgain
			default:
				c.pulled = false
				p.parking.add(c)
				return
			}
		}
	}
	c.finish(o, err)
}

// wakeLocked notes what the next entry pulls. A key on which requests of this very entry found
// something may hold more, so its waiters go on being pulled until one finds nothing.
func (p *proposer) wakeLocked(r *fsm.Result, lastEmptyAt map[fsm.WaitKey]int) {
	for i, k := range r.Wake {
		if at, asked := lastEmptyAt[k]; asked && at > r.WokenBy[i] {
			continue // asked behind what woke it, and found nothing left
		}
		lastEmptyAt[k] = notEmpty
	}
	for k, at := range lastEmptyAt { // order-free: each key is woken for itself
		if at != notEmpty {
			delete(p.parking.burst, k)
			continue
		}
		if p.parking.waiting(k) > 0 {
			p.pendingWakes = append(p.pendingWakes, k)
		} else {
			delete(p.parking.burst, k)
			p.waits.wake(k)
		}
	}
}

// forgetPlainLocked forgets what it knew of entities whose description this entry changed.
func (p *proposer) forgetPlainLocked(e *fsm.Entry) {
	for i := range e.Requests {
		switch e.Requests[i].Command.(type) {
		case *fsm.PutEntity, *fsm.DropEntity:
			for k := range p.knownEmpty {
				if k.Entity == e.Requests[i].Entity {
					delete(p.knownEmpty, k)
				}
			}
		}
	}
}
