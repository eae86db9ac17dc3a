package transport

import (
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// pace decides when a client gets messages of a session that releases what comes between two of its
// receive calls, as the Go SDK does. Such a client takes a message from its socket buffer, releases it,
// and hands the one behind it to the application if a call begins in that moment: then the order is lost,
// and no broker can restore it. So a call gets what is there when it begins, which a flow with more
// credit tells, and what comes later waits for the next call. A client that does not call again soon,
// or needs no more credit for its call, gets one message at a time: there is none behind it.
// docs/decisions/0042
type pace struct {
	on    bool
	state paceState
	late  fsm.LockToken // sent in paceLone, and the client has not decided on it; zero if none
	timer *time.Timer   // from paceHeld to paceLone
}

type paceState uint8

const (
	paceEmpty paceState = iota // a call waits, and there was nothing for it: it gets the next message
	paceFresh                  // a call has begun: it gets what is there
	paceHeld                   // the call has got something and may be over
	paceLone                   // no call has begun for a while: one message
)

// callWait is how long a message waits for the client's next call before it is sent alone. A client that
// is given no message between two calls has none to release.
const callWait = 200 * time.Millisecond

// granted notes more credit, and reports whether a fetch that is parked is to be asked anew.
func (p *pace) granted() bool {
	if !p.on || !p.late.IsZero() { // a call that gets that one may be over before others come
		return false
	}
	p.stop()
	p.state = paceFresh
	return true
}

// limit makes a fetch ask for what the client may get now; it reports false if that is nothing.
func (p *pace) limit(lock *fsm.Lock) bool {
	switch {
	case !p.on:
	case p.state == paceHeld:
		return false
	case p.state == paceFresh:
		lock.Wait = 0
	default:
		lock.Max = 1
	}
	return true
}

// took notes what a fetch brought.
func (p *pace) took(lock *fsm.Lock, ds []fsm.Delivery) {
	if p.on && p.state == paceFresh && lock.Wait == 0 && len(ds) == 0 {
		p.state = paceEmpty
	}
}

// sent notes a message that goes to the client.
func (p *pace) sent(e *egress, token fsm.LockToken) {
	if !p.on || len(e.queue) > 1 { // more go with it
		return
	}
	if p.state == paceLone {
		p.late = token
	}
	p.state = paceHeld
	p.stop()
	var timer *time.Timer
	timer = time.AfterFunc(callWait, func() {
		e.c.post(func() {
			if p.timer != timer || e.closing {
				return
			}
			p.state, p.late, p.timer = paceLone, fsm.LockToken{}, nil
			e.l.ch.touch()
			e.fetch()
		})
	})
	p.timer = timer
}

// decided notes that the client has settled a message.
func (p *pace) decided(token fsm.LockToken) {
	if p.on && p.late == token {
		p.late = fsm.LockToken{}
	}
}

func (p *pace) stop() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
