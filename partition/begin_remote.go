package partition

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// maxBegunBytes bounds requests that are begun at another node, encoded. A larger one is worth a goroutine: its bytes are copied
// less often, and the goroutine that reads from a peer does not decode them.
const maxBegunBytes = 64 << 10

// begin is propose without a goroutine that waits; it is false if nothing was begun. done is called once, with the outcome of one
// attempt.
func (s *sender) begin(p fsm.PartitionID, req fsm.Request, done func(fsm.Outcome, error)) (cancel func(cause error), ok bool) {
	changed := s.changed() // before the choice, so that news during it are not missed
	if local := s.host.Replica(p); local != nil && local.Leading() {
		b, err := local.Begin(req, done)
		if err != nil {
			return nil, false
		}
		return b.Cancel, true
	}
	leader := s.host.believed(p)
	if leader == "" || leader == s.host.Node() || req.ID.IsZero() || replica.TooNew(req.Command, s.host.ClusterVersion()) != nil {
		return nil, false
	}
	c := &begunCall{s: s, to: NewRemote(s.caller, leader, p), id: req.ID, takes: req.Command.Traits().Has(fsm.Takes), done: done}
	if !c.begin(&req, changed) {
		return nil, false
	}
	return c.cancel, true
}

// begunCall is a request that was begun at another node.
type begunCall struct {
	s     *sender
	to    *Remote
	id    fsm.RequestID
	takes bool
	done  func(fsm.Outcome, error)
	away  *awayCall

	mu    sync.Mutex
	end   func(cause error) // of the call; nil before it has begun
	moved bool              // another node leads
	cause error             // of cancel
	open  int               // calls that are not answered, behind cancel
	late  *time.Timer       // ends them
	over  bool
}

// begin sends the request; false means that it was not sent.
func (c *begunCall) begin(req *fsm.Request, since news) bool {
	if e, is := req.Command.(*fsm.Enqueue); is {
		e.Seal(math.MaxInt)
	}
	if req.Command.Weight() > maxBegunBytes {
		return false
	}
	c.away = c.s.host.away.note(c.to.id, c.to.node, c.to.node, since, c.endMoved)
	end, ok := c.s.caller.Begin(c.to.node, KindPropose, fsm.AppendRequest(verbHead(c.to.id, req.Command.Weight()), req), c.answered)
	if !ok {
		c.s.host.away.over(c.away)
		return false
	}
	c.mu.Lock()
	c.end = end
	moved := c.moved
	c.mu.Unlock()
	if moved {
		end(errMoved)
	}
	return true
}

// endMoved ends the call because another node leads: that one tells what the request has done. Without a cause the call is over.
func (c *begunCall) endMoved(cause error) {
	if cause == nil {
		return
	}
	c.mu.Lock()
	c.moved = true
	end := c.end
	c.mu.Unlock()
	if end != nil {
		end(cause)
	}
}

// answered hears the answer of the peer, or why there is none.
func (c *begunCall) answered(b []byte, err error) {
	c.s.host.away.over(c.away)
	if err == nil {
		b, err = openResult(b)
	}
	o, err := decodeOutcome(b, err)
	c.mu.Lock()
	c.over = true
	if errors.Is(err, replica.ErrUnparked) && c.cause != nil {
		err = c.cause
	}
	c.endedLocked()
	c.mu.Unlock()
	c.done(o, err)
}

// endedLocked notes the end of a call behind cancel.
func (c *begunCall) endedLocked() {
	if c.open--; c.open <= 0 && c.late != nil {
		c.late.Stop()
	}
}

// cancel ends the request, whose caller is gone. If it takes something, the leader is asked to take it out of its parking slot. The
// answer is awaited for a while all the same, because it tells what was taken (A18).
func (c *begunCall) cancel(cause error) {
	c.mu.Lock()
	end := c.end
	if c.over {
		c.mu.Unlock()
		return
	}
	c.cause, c.open = cause, 2
	c.mu.Unlock()
	if !c.takes {
		end(cause)
		return
	}
	// Whether it was parked, the answer of the proposal itself tells. Without room for this call, it is as with a leader that is silent.
	unparked := func([]byte, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.endedLocked()
	}
	endUnpark, ok := c.s.caller.Begin(c.to.node, KindUnpark, c.to.unparking(c.id), unparked)
	if !ok {
		unparked(nil, nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open <= 0 {
		return
	}
	c.late = time.AfterFunc(replica.GoneWait, func() {
		end(cause)
		if ok {
			endUnpark(cause)
		}
	})
}

// beginPropose is servePropose without a goroutine that waits.
func (h *Host) beginPropose(from fsm.NodeID, b []byte, done func(answer func() ([]byte, error))) (cancel func(), ok bool) {
	if len(b) > maxBegunBytes {
		return nil, false
	}
	r, body, err := h.asked(from, b)
	if err != nil {
		return nil, false
	}
	req, err := fsm.DecodeRequest(body)
	if err != nil {
		return nil, false
	}
	begun, err := r.Begin(req, func(o fsm.Outcome, err error) {
		done(func() ([]byte, error) { return outcomeAnswer(&o, err) })
	})
	if err != nil {
		return nil, false
	}
	return func() { begun.Cancel(context.Canceled) }, true
}

// outcomeAnswer encodes what became of a proposal.
func outcomeAnswer(o *fsm.Outcome, err error) ([]byte, error) {
	if err != nil {
		return failure(err), nil
	}
	return fsm.AppendOutcome(success(outcomeBytes(o)), o, true), nil
}
