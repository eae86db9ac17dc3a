package raftnet

import (
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Calm is what a group stands on that has nothing to do: its leader and followers say the same of it in each beat.
type Calm struct {
	Standing
	version uint64
	pulses  []*Pulse     // of the others, or of the leader
	Others  []fsm.NodeID // the other replicas of the group
}

// Version changes whenever what this transport has heard or sent changes. It is to be read before the standing that Calm
// gets.
func (t *Transport) Version() uint64 { return t.rest.version.Load() }

// Calm returns what the group stands on, nil if it has something to do. Others are the other replicas of the group.
func (t *Transport) Calm(version uint64, s Standing, others []fsm.NodeID, now time.Time) *Calm {
	c := &Calm{Standing: s, version: version, Others: others}
	if s.Last == 0 || s.Commit != s.Last || t.abdicated.Load() == s.Term && s.Leads {
		return nil
	}
	t.rest.mu.Lock()
	defer t.rest.mu.Unlock()
	if !s.Leads {
		p := t.rest.leads[s.Leader]
		c.pulses = []*Pulse{p.Pulse}
		if !p.is(s) {
			return nil
		}
	}
	for _, id := range others {
		if !s.Leads {
			break
		}
		p := t.rest.resting[id]
		if !p.is(s) || p.gone || !t.rest.acked[id].has(s) {
			return nil
		}
		c.pulses = append(c.pulses, p.Pulse)
	}
	if _, still := t.Still(c, now); !still {
		return nil
	}
	return c
}

// Still reports whether the other nodes say the same still, and which time it was when the first of them was heard last. A
// leader is not still if it heard longer than three beats ago: its lease is four.
func (t *Transport) Still(c *Calm, now time.Time) (heard time.Time, still bool) {
	heard = now
	for _, p := range c.pulses {
		at, since := p.times()
		if !t.freshAt(at, now) || c.Leads && now.Sub(since) > 3*t.cfg.BeatEvery {
			return heard, false
		}
		if at.Before(heard) {
			heard = at
		}
	}
	// A beat without the place changes the version before it renews the pulse.
	return heard, t.rest.version.Load() == c.version
}

// Note keeps what the leader of a group that is calm said last. A replica that is cut off follows nobody, and
// tells its age from that word (S-305).
func (t *Transport) Note(c *Calm) {
	since := c.pulses[0].Since()
	if !since.IsZero() && t.rest.version.Load() == c.version {
		t.heard.rests(c.Term, c.Last, since)
	}
}

// Followed reports whether others follow this replica in a group that is calm.
func (c *Calm) Followed() bool { return c.Leads && len(c.Others) > 0 }

// SayCalm adds to beats what Say adds for a group that is calm.
func (t *Transport) SayCalm(c *Calm, beats Beats) {
	if !c.Leads {
		if b := beats.to(c.Leader); b != nil {
			b.rest(t.cfg.Group, c.Standing)
		}
		return
	}
	for _, id := range c.Others {
		if b := beats.to(id); b != nil {
			b.lead(t.cfg.Group, c.Standing)
		}
	}
}
