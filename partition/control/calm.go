package control

import (
	"maps"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// calmEvery is how often they are asked while all groups led here rest, and nothing was to be done when they were asked
// last. A replica that rests works and has everything. A disk that is slow or full may wait until there is work.
const calmEvery = 30 * time.Second

// rests reports whether nobody needs to be asked now: see calmEvery.
func (m *repairer) rests(v *catalog.View, led []*replica.Replica) bool {
	return m.calm && m.seen == v.Version() && time.Since(m.asked) < calmEvery &&
		!slices.ContainsFunc(led, func(r *replica.Replica) bool {
			epoch, ok := r.Led()
			return !ok || m.epochs[r.ID()] != epoch || !r.Rested()
		})
}

// leading returns the partitions that are led here.
func (m *repairer) leading(f Facts) map[fsm.PartitionID]bool {
	leads := map[fsm.PartitionID]bool{}
	for _, r := range f.Replicas {
		if r.Leading() {
			leads[r.ID()] = true
		}
	}
	return leads
}

// forget drops what was noted of groups that are led elsewhere by now, and of nodes that the catalog has forgotten. They are
// not looked at any more, and what is noted keeps the repairer asking.
func (m *repairer) forget(v *catalog.View, leads map[fsm.PartitionID]bool) {
	maps.DeleteFunc(m.since, func(k memberOf, _ time.Time) bool { return !leads[k.p] })
	maps.DeleteFunc(m.follows, func(k memberOf, _ *follow) bool { return !leads[k.p] })
	maps.DeleteFunc(m.silent, func(n fsm.NodeID, _ time.Time) bool {
		_, known := v.Node(n)
		return !known || !leads[fsm.CatalogPartition]
	})
}
