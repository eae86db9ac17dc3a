package control

import (
	"context"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// openPause is the pause after a partition could not be opened.
const openPause = 5 * time.Second

// opener opens what the committed catalog places here (A20), and what has data here although the catalog places it
// elsewhere. Such a replica may be one of the voters without which its group has no majority. When the group has removed
// it, retirer deletes it.
type opener struct {
	s     *Supervisor
	retry map[fsm.PartitionID]time.Time // not to be opened before
	// held are the partitions that had data here when the node started and have not been opened since; nil before the
	// first step.
	held map[fsm.PartitionID]bool
}

// step opens what is placed here and not open.
func (o *opener) step(ctx context.Context, f Facts) {
	if o.held == nil {
		o.held = o.s.host.Held()
	}
	for _, g := range f.View.Groups() {
		if !slices.Contains(g.Members, o.s.host.Node()) && !o.held[g.ID] || o.s.host.Replica(g.ID) != nil ||
			time.Now().Before(o.retry[g.ID]) {
			continue
		}
		// A replica that was placed later finds a group that exists, or will: it must not found another one.
		var founders []fsm.NodeID
		if slices.Contains(g.Founders, o.s.host.Node()) {
			founders = g.Founders
		}
		if err := o.s.host.Open(g.ID, founders); err != nil {
			o.retry[g.ID] = time.Now().Add(openPause)
			delete(o.held, g.ID) // tried again only where it has a place
			if ctx.Err() == nil {
				o.s.log.Error("open a placed partition", "partition", uint16(g.ID), "error", err,
					"mend", replica.RepairText)
			}
			continue
		}
		delete(o.held, g.ID)
		o.s.hasten(g)
	}
}
