package control

import (
	"errors"
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Config says what this node brings into the cluster.
type Config struct {
	// Name is the node's name for people.
	Name string
	// Zone is what the node says of where it stands, "" if it says nothing. The catalog is told when every node knows
	// zones.
	Zone string
	// Peers returns the nodes that seem to live. With it, a node that is new to the cluster asks them whether one has its
	// name. nil: a name may be that of several nodes.
	Peers func() []fsm.NodeID
	// NameTaken is told which node has the name of this one, and "" when it is free again; nil for nobody.
	NameTaken func(owner fsm.NodeID)
	// Bootstrap are the nodes that group 0 is created with (A20), the same list on each of them;
	// empty on a node that joins a cluster, which waits to be added.
	Bootstrap []fsm.NodeID
	// Partitions is how many data partitions the first placement makes, Replicas how many replicas
	// each of them has (A1, A3).
	Partitions int
	Replicas   int
	// CatalogVoters is how many nodes vote in group 0 at most; the others hold it without a vote (A2). An odd number votes.
	CatalogVoters int
	// FollowFrom is how many requests per second must come through a node before a partition's leadership goes there because of
	// them (decision 0104). With fewer, a leader elsewhere costs next to nothing.
	FollowFrom int
	// Left reports whether a node is known to have been stopped in good order; nil if that is not known. It is a hint: a
	// node that answers has not left.
	Left func(fsm.NodeID) bool
	// Finalize has the cluster version rise as soon as every node knows a higher one. Without it an operator does that, but
	// for the first version of a new cluster.
	Finalize bool
	// Place chooses the replicas of new partitions; the first of each is its preferred leader.
	Place func(
		nodes []fsm.NodeID, partitions []fsm.PartitionID, replicas int,
	) map[fsm.PartitionID][]fsm.NodeID
}

// Defaults returns the configuration without a name and a placement.
func Defaults() Config {
	return Config{Partitions: 6, Replicas: 3, CatalogVoters: 3, FollowFrom: 100}
}

// Validate reports every problem of c.
func (c *Config) Validate() error {
	var errs []error
	if c.Partitions < 1 || c.Partitions >= 1<<15 {
		errs = append(errs, fmt.Errorf("%d partitions are not 1 to 32767", c.Partitions))
	}
	if c.Replicas < 1 {
		errs = append(errs, fmt.Errorf("%d replicas are less than one", c.Replicas))
	}
	if c.CatalogVoters < 1 {
		errs = append(errs, fmt.Errorf("%d catalog voters are less than one", c.CatalogVoters))
	}
	if c.FollowFrom < 1 {
		errs = append(errs, fmt.Errorf("FollowFrom is %d requests per second; it must be 1 or more", c.FollowFrom))
	}
	if c.Place == nil {
		errs = append(errs, errors.New("no placement function"))
	}
	return errors.Join(errs...)
}

// Timing is how patient the loops are; the fields are those of the configuration of the node.
type Timing struct {
	HeartbeatTimeout, ElectionTimeout, StuckAfter, RepairAfter, ReplaceAfter, CloseTimeout time.Duration
}
