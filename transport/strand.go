package transport

import (
	"context"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// strand stores the messages that a link sends to some of the shares of a partitioned entity, in
// their order. Each strand goes on by itself, so that a share that is slow or has no leader holds up
// nobody's messages but its own (S-133). The connection's loop owns it.
type strand struct {
	g       *ingress
	lane    *lane
	pending []*inbound
}

// maxStrands bounds the strands of a link for messages with a key; one more has those without.
const maxStrands = 8

func newStrands(g *ingress, shares int) []*strand {
	all := make([]*strand, min(shares, maxStrands)+1)
	for i := range all {
		all[i] = &strand{g: g, lane: g.c.newLane()}
	}
	return all
}

// strandOf returns the strand of a delivery that has been translated.
func (g *ingress) strandOf(d *inbound) *strand {
	last := len(g.strands) - 1
	if !d.byText {
		return g.strands[last] // any share is good, and no order was promised
	}
	return g.strands[fsm.KeyShare(d.text, len(g.home().Partitions))%last]
}

// sort gives the deliveries of a round to their strands; what cannot be stored is answered now.
func (g *ingress) sort(batch []*inbound) {
	var refused []*inbound
	for _, d := range batch {
		if d.refusal != nil {
			refused = append(refused, d)
			continue
		}
		s := g.strandOf(d)
		s.pending = append(s.pending, d)
	}
	for _, s := range g.strands {
		s.next()
	}
	g.stored(refused)
}

// next stores what waits in the strand, if nothing is under way there.
func (s *strand) next() {
	if s.lane.busy || len(s.pending) == 0 {
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
	s.lane.run(func() func() {
		ctx, cancel := context.WithTimeout(s.g.c.ctx, s.g.c.cfg.ProposeTimeout)
		defer cancel()
		r.store(ctx, &s.lane.id, batch)
		return func() {
			s.next()
			s.g.stored(batch)
		}
	})
}

// joins reports whether the n-th delivery may go to the same share as the first, so that one command
// can store both.
func (s *strand) joins(n int) bool {
	a, b, shares := s.pending[0], s.pending[n], len(s.g.home().Partitions)
	return !a.byText || fsm.KeyShare(a.text, shares) == fsm.KeyShare(b.text, shares)
}
