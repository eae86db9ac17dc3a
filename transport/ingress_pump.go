package transport

import (
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
	now     *inbound        // the first delivery of the request that is under way
	late    *lateDeliveries // of the request that is under way; nil if nothing may join it
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

// next stores what waits for the pump, or has it join what is under way there.
func (s *sharePump) next() {
	if s.pump.busy {
		s.pending = s.late.join(s.pending, func(d *inbound) bool { return s.together(s.now, d) })
		return
	}
	if len(s.pending) == 0 {
		return
	}
	n, bytes := 0, 0
	for n < len(s.pending) && (n == 0 || s.together(s.pending[0], s.pending[n]) && bytes+s.pending[n].bytes <= s.g.c.cfg.MaxEnqueueBytes) {
		bytes += s.pending[n].bytes
		n++
	}
	batch := slices.Clone(s.pending[:n])
	s.pending = slices.Delete(s.pending, 0, n)
	r := s.g.round()
	s.now, s.late = batch[0], nil
	if s.g.via == nil {
		s.late = s.g.c.newLate(bytes)
	}
	late := s.late
	s.pump.store(r, batch, late, func() {
		joined, left := late.end()
		s.pending = slices.Concat(left, s.pending)
		s.next()
		s.g.stored(append(batch, joined...))
	})
}

// together reports whether a delivery may go to the same share as another one, so that one command can store both.
func (s *sharePump) together(a, b *inbound) bool {
	shares := len(s.g.home().Partitions)
	return !a.byText || fsm.KeyShare(a.text, shares) == fsm.KeyShare(b.text, shares)
}
