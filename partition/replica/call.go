package replica

import (
	"container/list"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// call is one request of one caller at the leader, from its arrival to its answer.
type call struct {
	req   fsm.Request
	query bool // no request of its own: it only needs an entry proposed after its arrival (A16)
	size  int  // bytes it is expected to take in an entry
	// reserved says that it may use the quota kept for what frees places: settlements, renewals and forwards (A21).
	reserved bool

	// A request that may be parked waits for key until until (A5, A18).
	parkable bool
	key      fsm.WaitKey
	max      uint32 // messages it takes at most
	until    time.Time

	// The rest is guarded by proposer.mu.
	state  callState
	over   bool   // its wait is over: what comes back empty is answered, not parked again
	ticket uint64 // order of arrival among the parked
	slot   *list.Element
	pulled bool // it rides in its entry from a parking slot
	placed bool // it has one of the places that its entity has for receives

	// One of them gets the answer. answer never blocks. done is called under proposer.mu.
	answer  chan answer
	done    func(fsm.Outcome, error)
	overdue *time.Timer // ends the wait of a call with done; nil if it does not wait
	giveUp  *time.Timer // ends a call with done whose caller is gone; nil if it is not
}

// callState is where a call is. Invariant: a call is in pending, in parked, in the entry under way,
// or answered; never in two.
type callState uint8

const (
	callPending callState = iota
	callParked
	callRiding
	callDone
)

// answer ends a call.
type answer struct {
	outcome fsm.Outcome
	err     error
}

func newCall(req fsm.Request, now time.Time) *call {
	traits := req.Command.Traits()
	c := &call{req: req, size: req.Command.Weight(), reserved: traits.Has(fsm.Reserved)}
	if traits.Has(fsm.Waits) {
		var wait fsm.Millis
		c.key, c.max, wait = req.Command.(fsm.Waiter).Waiting(req.Entity, req.Sub)
		c.park(now, wait)
	}
	return c
}

func (c *call) park(now time.Time, wait fsm.Millis) {
	if wait > 0 {
		c.parkable = true
		c.until = now.Add(time.Duration(min(wait, MaxWait)) * time.Millisecond)
	}
}

// MaxWait bounds the wait of a parked request, so that it cannot overflow a time.
const MaxWait fsm.Millis = 24 * 60 * 60 * 1000

// empty reports whether o took nothing, so that the request may go on waiting.
func (c *call) empty(o *fsm.Outcome) bool {
	if c.key.Kind == fsm.WaitSession {
		return o.Refusal == fsm.NoSession
	}
	return o.Refusal == fsm.None && len(o.Locked) == 0
}

// nothing is the outcome of a wait that is over.
func (c *call) nothing() fsm.Outcome {
	if c.key.Kind == fsm.WaitSession {
		return fsm.Outcome{Refusal: fsm.NoSession}
	}
	return fsm.Outcome{}
}

// finish answers the call; further answers are dropped. The caller holds proposer.mu or owns c.
func (c *call) finish(o fsm.Outcome, err error) {
	if c.state == callDone {
		return
	}
	c.state = callDone
	if c.giveUp != nil {
		c.giveUp.Stop()
	}
	if c.done != nil {
		c.done(o, err)
		return
	}
	c.answer <- answer{o, err}
}

// Nothing is the outcome of a request whose wait is over.
func Nothing(req fsm.Request) fsm.Outcome { return newCall(req, time.Time{}).nothing() }
