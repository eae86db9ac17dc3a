package control

import (
	"context"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Facts are what a node knows at the beginning of a step.
type Facts struct {
	View     *catalog.View      // the catalog as the replica here has it; it may lag behind
	Replicas []*replica.Replica // those that are open here, by partition
}

// Loop is one loop of a Supervisor: a goroutine that owns its state and takes one step after the other.
type Loop struct {
	Name string
	// Step looks at the facts and does what is to be done now. It is called when the catalog here or a leader has
	// changed, and every second.
	Step func(ctx context.Context, f Facts)
	// Run is in the place of Step for a loop that has a pace of its own.
	Run func(ctx context.Context)
	// End is called when the loop ends; nil for nothing.
	End func()
}

// Loops lists the loops that keep groups whole; Start runs them.
func (s *Supervisor) Loops() []Loop {
	return []Loop{
		// makes each life of the node known to the cluster
		{Name: "register", Run: registrar{s}.run},
		// opens what the catalog places here
		{Name: "open", Step: (&opener{s: s, retry: map[fsm.PartitionID]time.Time{}}).step},
		// places the first partitions, and takes nodes into the catalog
		{Name: "place", Step: (&placer{s: s}).step},
		// tells the partitions led here what they missed of the catalog
		{Name: "reconcile", Step: (&reconciler{done: map[fsm.PartitionID]reconciled{}}).step},
		// gives leaderships to the nodes that the placement prefers
		{Name: "balance", Step: (&balancer{s: s, seen: map[fsm.PartitionID]leading{}}).step},
		// sends the clients away from a node that leaves for good
		{Name: "leave", Step: (&leaver{s: s}).step},
		// deletes replicas that have moved to other nodes
		{Name: "retire", Step: (&retirer{s: s, tried: map[fsm.PartitionID]time.Time{}}).step},
		// removes, rebuilds and takes in failed replicas; the catalog's leader moves replicas
		{Name: "repair", Step: newRepairer(s).step},
	}
}
