package partition

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// nodeSide is a host as its replicas see it.
type nodeSide struct{ h *Host }

var _ replica.Node = nodeSide{}

// Allowed implements Node.
func (n nodeSide) Allowed(id fsm.NodeID) bool { return n.h.allowed(id) }

// WrongClock implements Node.
func (n nodeSide) WrongClock() bool { return n.h.Clock().Wrong }

// Lost implements Node.
func (n nodeSide) Lost(o fsm.NodeID) bool { return n.h.lost.has(o) }

// Defers implements Node.
func (n nodeSide) Defers(r *replica.Replica) bool { return n.h.defers(context.Background(), r) }

// Changed implements Node.
func (n nodeSide) Changed(r *replica.Replica) { n.h.note(r) }

// ClusterVersion implements Node.
func (n nodeSide) ClusterVersion() fsm.Version { return n.h.ClusterVersion() }

// Applied implements Node.
func (n nodeSide) Applied(p fsm.PartitionID) {
	if p == fsm.CatalogPartition {
		n.h.catalogChanged.fire()
	}
}
