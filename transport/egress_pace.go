package transport

import (
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// pace decides when a client gets messages of a session. It is about clients that release what comes between two of
// their receive calls, as the Go, Java and Python SDKs do. Such a client takes a message from its socket buffer and
// releases it. It hands the one behind it to the application if a call begins in that moment. Then the order is lost,
// and no broker can restore it. So a call gets what is there when it begins, which a flow with more credit tells.
// Later messages wait for the next call. A client that does not call again soon, or needs no more credit for its
// call, gets one message at a time. Nothing is behind that one. docs/decisions/0042
type pace struct {
	on bool
	// learns says that the first release of the client shows whether it makes calls. Only the blocking receiver of the Java SDK
	// does, and only it releases messages.
	learns bool
	// lags says that a release may come behind the flow of the call that begins meanwhile, as with the Python
	// SDK. Then a message that was sent alone to a waiting call is awaited before the next call gets messages.
	lags bool
	// calls says that each call of the client grants credit: such a flow came while there was credit left. It is a
	// client of lags whose link does not prefetch.
	calls bool
	state paceState
	// late is a message that was sent alone and that the client has not decided on; zero if none. lone says
	// that no call had begun for a while, called that one has begun since.
	late         fsm.LockToken
	lone, called bool
	kept         int         // how many such messages in a row the client has kept for decideWait
	timer        *time.Timer // from paceHeld to paceLone, or to paceFresh if a call has begun
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

// decideWait is how long a client may take to settle or release a message that was sent alone before the next
// one is sent alone. A client without time to run takes longer than callWait.
const decideWait = 10 * callWait

// nextCallWait is how long a message waits for the next call of a client whose calls all grant credit. Only an
// application that iterates over the receiver, after it made calls, uses up the credit that is left.
const nextCallWait = 25 * callWait

// keepsAfter is how many messages in a row a client must have kept for decideWait to be taken for one whose
// application settles later. It is waited for callWait then, until it releases a message. One message proves
// nothing: a call of the Python SDK may hold what came first until something else comes.
const keepsAfter = 2

// granted notes that the client has raised its credit from left, and reports whether a fetch that is parked is to be
// asked anew.
func (p *pace) granted(left uint32) bool {
	if !p.on {
		return false
	}
	p.calls = p.calls || p.lags && left > 0
	if !p.late.IsZero() && (p.lone || p.lags) { // a call that gets that one may be over before others come
		p.called = p.lags
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
	if p.state == paceLone || p.state == paceEmpty {
		p.late, p.lone, p.called = token, p.state == paceLone, false
	}
	p.state = paceHeld
	p.wait(e, callWait)
}

// wait ends paceHeld after a while, in which the client may call again. A message that the client has not
// decided on makes it longer.
func (p *pace) wait(e *egress, waited time.Duration) {
	p.stop()
	var timer *time.Timer
	timer = time.AfterFunc(callWait, func() {
		e.c.post(func() {
			if p.timer != timer || e.closing {
				return
			}
			undecided, decides := !p.late.IsZero(), p.kept < keepsAfter
			switch {
			case undecided && e.owes(): // the application may be waiting for us
				p.wait(e, waited)
				return
			case undecided && decides && waited < decideWait, p.calls && !p.called && waited < nextCallWait:
				p.wait(e, waited+callWait)
				return
			case undecided && decides:
				p.kept++
			}
			p.state, p.late, p.timer = paceLone, fsm.LockToken{}, nil
			if p.called { // its message was handed out, and the application has not settled it
				p.state, p.called = paceFresh, false
			}
			e.l.ch.touch()
			e.fetch()
		})
	})
	p.timer = timer
}

// decided notes that the client has settled a message. It reports whether a call waits for that.
func (p *pace) decided(token fsm.LockToken) bool {
	if !p.on || p.late != token {
		return false
	}
	p.late, p.kept = fsm.LockToken{}, 0
	if !p.called {
		return false
	}
	p.stop()
	p.state, p.called = paceFresh, false
	return true
}

// gaveBack notes that the client has given back a message: it does not keep what it has. A client that releases one makes calls.
func (p *pace) gaveBack(e *egress, by fsm.Verdict) {
	p.kept = 0
	if p.learns && !p.on && by == fsm.Return {
		p.on, p.state = true, paceHeld
		p.wait(e, callWait)
	}
}

func (p *pace) stop() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
