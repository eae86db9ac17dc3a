package control

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Host is what the loops ask of the node that they run on, and what they have it do. Many goroutines call the methods.
type Host interface {
	// Node returns the id of this node.
	Node() fsm.NodeID
	// WrongClock reports whether the date of this node is wrong.
	WrongClock() bool
	// Replica returns the replica of a partition, nil if this node holds none.
	Replica(fsm.PartitionID) *replica.Replica
	// Replicas returns the open replicas by partition; the caller may not change the list.
	Replicas() []*replica.Replica
	// LeadersChanged returns a channel that is closed at the next change of what is known about leaders here.
	LeadersChanged() <-chan struct{}
	// CatalogChanged returns a channel that is closed when the catalog's replica here has applied more.
	CatalogChanged() <-chan struct{}
	// Looks returns a channel that is closed about every second, for what comes without notice.
	Looks() <-chan struct{}
	// View returns the catalog as the replica here has it; nil if there is none.
	View() *catalog.View
	// CurrentView returns the catalog as it is now, that of its leader. View may be older: a node that has just started has
	// that of its snapshot.
	CurrentView(context.Context) (*catalog.View, error)
	// Life returns the present life of this node, and a channel that is closed when it is another one.
	Life() (fsm.Incarnation, <-chan struct{})

	// Held returns the partitions that have data on this node, open or not. The caller owns the map.
	Held() map[fsm.PartitionID]bool
	// Open opens the replica of a partition, as founder of its group if founders are given.
	Open(p fsm.PartitionID, founders []fsm.NodeID) error
	// Rebuilds reports whether replicas of this node can be rebuilt.
	Rebuilds() bool
	// LifeRefused notes that the catalog declared a life of this node over.
	LifeRefused(fsm.Incarnation)
	// SendClientsAway has the clients of this node go to other nodes, because of a wish of a time. TakeClientsBack serves
	// them again.
	SendClientsAway(ctx context.Context, wish fsm.Wall)
	TakeClientsBack()
	// Change commits one change of the catalog.
	Change(context.Context, *catalog.Change) error
	// Knows is the newest cluster version that the program of this node knows.
	Knows() fsm.Version
	// AdmitVersion has nodes tell their data directories a cluster version that is about to be reached.
	AdmitVersion(ctx context.Context, nodes []fsm.NodeID, to fsm.Version) error
	// Diverge fails a replica of this node because a majority has another digest.
	Diverge(r *replica.Replica, own replica.Digest, agreed string)
	// HandOver hands the leadership of a partition to any voter that answers.
	HandOver(context.Context, fsm.PartitionID) error
	// RightTarget returns a voter that could lead at once, has no wrong clock and is not excluded, "" if there is none.
	RightTarget(ctx context.Context, r *replica.Replica, not func(fsm.NodeID) bool) fsm.NodeID
	// Retire deletes the replica of a partition here that its group, led by a node, has removed.
	Retire(ctx context.Context, p fsm.PartitionID, leader fsm.NodeID) error

	// Ask asks a node for the states of its replicas, for half a second at most.
	Ask(context.Context, fsm.NodeID) ([]replica.Status, error)
	// Rebuild tells a failed replica on another node to start empty, its group having gone on without it since the
	// configuration with an index.
	Rebuild(ctx context.Context, n fsm.NodeID, p fsm.PartitionID, index uint64) error
	// Reopen has a follower on another node opened anew, or given up.
	Reopen(ctx context.Context, n fsm.NodeID, p fsm.PartitionID, giveUp bool) error
	// Quarantine tells a follower on another node that a majority has another digest behind an entry.
	Quarantine(ctx context.Context, n fsm.NodeID, p fsm.PartitionID, index uint64, agreed string) error
}
