package control

import (
	"context"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// leaver sends the clients of a node away when the node is to be forgotten and holds nothing any more. The catalog
// gives up what they hold when it forgets the node, so it waits until they have gone.
type leaver struct {
	s *Supervisor
	// because is the time of the wish because of which they were sent away, 0 if they were not.
	because fsm.Wall
}

func (l *leaver) step(ctx context.Context, f Facts) {
	own := l.s.host.Node()
	n, known := f.View.Node(own)
	switch {
	case !known: // it has not come yet, or is forgotten
	case !n.LeavesForGood():
		if l.because != 0 {
			l.because = 0
			l.s.host.TakeClientsBack()
		}
	case n.Since != l.because && !f.View.HoldsAny(own) && !slices.ContainsFunc(f.Replicas, holdsMessages):
		l.because = n.Since
		l.s.host.SendClientsAway(ctx, n.Since) // it takes half a minute at most, and nothing else is this loop's to do
	}
}

func holdsMessages(r *replica.Replica) bool { return r.ID() != fsm.CatalogPartition }
