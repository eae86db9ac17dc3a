package partition

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Dropped are the counters of messages that ended without being completed, of one partition.
type Dropped struct {
	Partition fsm.PartitionID
	Entities  []fsm.EntityDrops
	Others    fsm.Drops // of entities beyond the bound, and of deleted ones
}

// dropper is a Machine that counts what it drops; fsm.State is one.
type dropper interface {
	Dropped(max int) ([]fsm.EntityDrops, fsm.Drops)
}

// Dropped returns the counters of the partitions that this node leads, for at most max entities.
func (h *Host) Dropped(max int) []Dropped {
	var all []Dropped
	for _, r := range h.list() {
		if !r.Leading() {
			continue
		}
		r.View(func(m replica.Machine, _ uint64) {
			if d, ok := m.(dropper); ok {
				entities, others := d.Dropped(max)
				max -= len(entities)
				all = append(all, Dropped{Partition: r.ID(), Entities: entities, Others: others})
			}
		})
	}
	return all
}
