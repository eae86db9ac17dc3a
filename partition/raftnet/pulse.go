package raftnet

import (
	"sync/atomic"
	"time"
)

// Pulse is when the beats of a node last came. All places of its last beat share it. So a beat that has the same places as
// the one before renews all of them at once (decision 0112).
type Pulse struct{ last atomic.Pointer[pulseTimes] }

type pulseTimes struct{ at, since time.Time }

// NewPulse returns the pulse of a beat that came at a time and that has been true since another one. See [Pulse.Renew].
func NewPulse(at, since time.Time) *Pulse {
	p := &Pulse{}
	p.Renew(at, since)
	return p
}

// Renew notes a beat, and since when its words are known to be true. With a zero time the time of an earlier beat stays: logs
// grow only, and no node goes back to an earlier term. So that time is early enough for places that are new in this beat.
func (p *Pulse) Renew(at, since time.Time) {
	if since.IsZero() {
		since = p.Since()
	}
	p.last.Store(&pulseTimes{at, since})
}

// At returns when the last beat came, zero if none did.
func (p *Pulse) At() time.Time {
	at, _ := p.times()
	return at
}

// Since returns since when the places are known to be true, zero if that is not known.
func (p *Pulse) Since() time.Time {
	_, since := p.times()
	return since
}

func (p *Pulse) times() (at, since time.Time) {
	if p == nil || p.last.Load() == nil {
		return time.Time{}, time.Time{}
	}
	last := p.last.Load()
	return last.at, last.since
}

// stopped returns a pulse with the times of this one, which nothing renews.
func (p *Pulse) stopped() *Pulse { return NewPulse(p.times()) }
