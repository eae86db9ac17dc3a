package transport

import (
	"context"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// sharePump stores the messages that a link sends to some of the shares of a partitioned entity, in
// their order. Each goes on by itself, so that a share that is slow or has no leader holds up
// nobody's messages but its own (S-133). The connection's loop owns it.
type sharePump struct {
	g       *ingress
	pump    *pump
	pending []*inbound
}

// maxSharePumps bounds the sharePumps of a link for messages with a key; one more has those without.
const maxSharePumps = 8

func newSharePumps(g *ingress, shares int) []*sharePump {
	all := make([]*sharePump, min(shares, maxSharePumps)+1)
	for i := range all {
		all[i] = &sharePump{g: g, pump: g.c.newPump()}
	}
	return all
}

// sharePumpOf returns the pump of a delivery that has been translated.
func (g *ingress) sharePumpOf(d *inbound) *sharePump {
	g.c.onLoop()
	last := len(g.shares) - 1
	if !d.byText {
		return g.shares[last] // any share is good, and no order was promised
	}
	return g.shares[fsm.KeyShare(d.text, len(g.home().Partitions))%last]
}

// sort gives the deliveries of a round to their sharePumps; what cannot be stored is answered now.
func (g *ingress) sort(batch []*inbound) {
	g.c.onLoop()
	var refused []*inbound
	for _, d := range batch {
		if d.refusal != nil {
			refused = append(refused, d)
			continue
		}
		s := g.sharePumpOf(d)
		s.pending = append(s.pending, d)
	}
	for _, s := range g.shares {
		s.next()
	}
	g.stored(refused)
}

// next stores what waits for the pump, if nothing is under way there.
func (s *sharePump) next() {
	if s.pump.busy || len(s.pending) == 0 {
		return
	}
	n, bytes := 0, 0
	for n < len(s.pending) && (n == 0 || s.joins(n) && bytes+s.pending[n].bytes <= s.g.c.cfg.MaxEnqueueBytes) {
		bytes += s.pending[n].bytes
		n++
	}
	batch := slices.Clone(s.pending[:n])
	s.pending = slices.Delete(s.pending, 0, n)
	r := s.g.round()
	s.pump.run(func() func() {
		ctx, cancel := context.WithTimeout(s.g.c.ctx, s.g.c.cfg.ProposeTimeout)
		defer cancel()
		r.store(ctx, &s.pump.numbers, batch)
		return func() {
			s.next()
			s.g.stored(batch)
		}
	})
}

// joins reports whether the n-th delivery may go to the same share as the first, so that one command
// can store both.
func (s *sharePump) joins(n int) bool {
	a, b, shares := s.pending[0], s.pending[n], len(s.g.home().Partitions)
	return !a.byText || fsm.KeyShare(a.text, shares) == fsm.KeyShare(b.text, shares)
}
