package control

import (
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// calmEvery is how often they are asked while all groups led here rest, and nothing was to be done when they were asked
// last. A replica that rests works and has everything. A disk that is slow or full may wait until there is work.
const calmEvery = 10 * time.Second

// rests reports whether nobody needs to be asked now: see calmEvery.
func (m *repairer) rests(v *catalog.View, led []*replica.Replica) bool {
	return m.calm && m.seen == v.Version() && time.Since(m.asked) < calmEvery &&
		!slices.ContainsFunc(led, func(r *replica.Replica) bool {
			epoch, ok := r.Led()
			return !ok || m.epochs[r.ID()] != epoch || !r.Rested()
		})
}

// leading returns how many replicas lead here.
func (m *repairer) leading(f Facts) (n int) {
	for _, r := range f.Replicas {
		if r.Leading() {
			n++
		}
	}
	return n
}
