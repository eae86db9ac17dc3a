package replica

import (
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// lingerWindow is how many lingers a rate is measured for. After lingerKept such windows the rate without lingers is
	// measured anew.
	lingerWindow = 250
	lingerKept   = 16
	// lingerBusy is the least number of rounds in the time of a linger. Where they are fewer, no second message comes in time.
	lingerBusy = 1.5
	// lingerFull is how many requests end a linger, and how many messages a round carries at most on the average. Where it carries
	// more, there is little to save.
	lingerFull = 16
	// One of lingerTurn rounds begins with its first message.
	lingerTurn = 4
	// lingerLoss is the share of the rate that a trial may lose, which is its noise. A trial that has lost lingerMuch after a
	// quarter of its time is over. So are lingers, where a later window has lost as much.
	lingerLoss = 0.15
	lingerMuch = 0.35
	// lingerFirstRest and lingerLongestRest bound the time without lingers after a trial that lost more, in lingers.
	lingerFirstRest   = 1000
	lingerLongestRest = 60_000
)

// linger has rounds wait until there are two messages for them. A round costs each voter the same, whatever it carries. One of
// lingerTurn rounds begins with the first message, so that most messages wait for nothing. Settlements begin no round: they
// wait for one that is made anyway.
//
// Rounds wait by measurement only. A client that does not wait for answers loses nothing. A client that waits for each answer
// would send or receive less, and is not made to wait.
//
// Its owner is the goroutine of the proposer. Its times are monotonic.
type linger struct {
	length           time.Duration // the longest wait; 0 for none
	state            lingerState
	turn             int       // rounds since one that began with its first message
	since            time.Time // of the window
	rounds, messages int       // of the window
	rate             float64   // messages in a second without lingers, of the last window
	kept             int       // windows since the trial
	rest             time.Duration
}

type lingerState uint8

const (
	lingerWatched lingerState = iota // the rate without lingers is measured
	lingerTried                      // the rate with lingers is measured
	lingerHeld                       // rounds wait
	lingerRests                      // they do not, because a trial lost too much
)

// most returns how long a round waits at most.
func (l *linger) most() time.Duration {
	if l.state != lingerTried && l.state != lingerHeld {
		return 0
	}
	return l.length
}

// waits reports whether a round for so many requests and messages is to wait for more.
func (l *linger) waits(requests, messages int) bool {
	wanted := 1
	if l.turn > 0 {
		wanted = 2
	}
	return 0 < requests && requests < lingerFull && messages < wanted
}

// round notes a round that is over.
func (l *linger) round(messages int, now time.Time) {
	if l.length == 0 {
		return
	}
	l.rounds++
	l.messages += messages
	l.turn = (l.turn + 1) % lingerTurn
	if l.since.IsZero() {
		l.enter(lingerWatched, now)
	}
	passed := now.Sub(l.since)
	switch {
	case l.state == lingerWatched && passed >= lingerWindow*l.length:
		l.judge(passed, now)
	case l.state == lingerTried && (passed >= lingerWindow*l.length || passed >= lingerWindow/4*l.length && l.lost(passed) > lingerMuch):
		l.weigh(passed, now)
	case l.state == lingerHeld && passed >= lingerWindow*l.length:
		l.keep(passed, now)
	case l.state == lingerRests && passed >= l.rest:
		l.enter(lingerWatched, now)
	}
}

// judge begins a trial if rounds are many and small.
func (l *linger) judge(passed time.Duration, now time.Time) {
	l.rate = float64(l.messages) / passed.Seconds()
	if float64(l.rounds)*l.length.Seconds() >= lingerBusy*passed.Seconds() && l.messages <= lingerFull*l.rounds {
		l.enter(lingerTried, now)
		return
	}
	l.rest = 0
	l.enter(lingerWatched, now)
}

// weigh has rounds wait on if the rate did not suffer by it.
func (l *linger) weigh(passed time.Duration, now time.Time) {
	if l.lost(passed) <= lingerLoss {
		l.rest, l.kept = 0, 0
		l.enter(lingerHeld, now)
		return
	}
	l.rest = min(max(2*l.rest, lingerFirstRest*l.length), lingerLongestRest*l.length)
	l.enter(lingerRests, now)
}

// keep has rounds wait for another window, unless the rate has fallen or was measured long ago.
func (l *linger) keep(passed time.Duration, now time.Time) {
	if l.kept++; l.kept >= lingerKept || l.lost(passed) > lingerMuch {
		l.enter(lingerWatched, now)
		return
	}
	l.enter(lingerHeld, now)
}

// lost returns the share of the rate without lingers that is missing in the window so far.
func (l *linger) lost(passed time.Duration) float64 {
	return 1 - float64(l.messages)/passed.Seconds()/l.rate
}

// enter begins a state, and a window.
func (l *linger) enter(state lingerState, now time.Time) {
	l.state, l.since, l.rounds, l.messages = state, now, 0, 0
}

// reset forgets what was measured, for the next leadership.
func (l *linger) reset() { *l = linger{length: l.length} }

// weight returns how many messages a request stores: 0 for a settlement, which begins no round, and 2 for each other request, which
// begins a round at once.
func weight(c *call) int {
	switch r := c.req.Command.(type) {
	case *fsm.Settle:
		return 0
	case *fsm.Enqueue:
		return r.Len()
	}
	return 2
}

// contents returns how many messages an entry stores or settles. Each other request counts for one.
func contents(e *fsm.Entry) (messages int) {
	for i := range e.Requests {
		switch c := e.Requests[i].Command.(type) {
		case *fsm.Enqueue:
			messages += len(c.Messages)
		case *fsm.Settle:
			messages += len(c.Items)
		default:
			messages++
		}
	}
	return messages
}

// await waits for what a round is to wait for. It reports false if the proposer ends.
func (p *proposer) await(timer *time.Timer) bool {
	d := p.linger.most()
	if d == 0 || !p.lingers(true) {
		return true
	}
	timer.Reset(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			p.lingers(false)
			return true
		case <-p.signal:
			if !p.lingers(true) {
				return true
			}
		case <-p.closed:
			return false
		}
	}
}

// lingers parks what there is nothing for, and reports whether the round for the rest may wait and is to wait. Requests that are
// parked find what rides in it.
func (p *proposer) lingers(may bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = slices.DeleteFunc(p.pending, func(c *call) bool {
		if !p.parkableNowLocked(c) {
			return false
		}
		if late, repeats := p.answeredLocked(c); late || repeats {
			return false
		}
		p.bytes -= c.size
		p.parking.add(c)
		return true
	})
	messages := 0
	for _, c := range p.pending[:min(len(p.pending), lingerFull)] {
		messages += weight(c)
	}
	p.lingering = may && len(p.pendingWakes) == 0 && p.linger.waits(len(p.pending), messages)
	return p.lingering
}

// quietLocked reports whether a request needs no look while a round waits: it settles, or waits itself for what is not there.
func (p *proposer) quietLocked(c *call) bool {
	_, empty := p.knownEmpty[c.key]
	return p.lingering && len(p.pending) < lingerFull && (weight(c) == 0 || c.parkable && empty && !c.key.HasSession)
}
