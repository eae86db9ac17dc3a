package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/transport"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/rest"
)

// The bounds of an orderly stop: hand leaderships over, answer or end what is waiting, flush. Orchestrators kill after
// 30 s by default.
const (
	stopTimeout = 18 * time.Second // what closes the rooms gives up then
	stopBound   = 20 * time.Second // the process ends then, whatever still hangs
)

// catalogVoters is how many nodes vote in group 0 at most; the others hold it without a vote (A2).
const catalogVoters = 5

// node is one broker process: the rooms, opened in order and closed in reverse.
type node struct {
	cfg Config
	log hclog.Logger

	id          fsm.NodeID
	incarnation fsm.Incarnation

	dir        *storage.Dir
	mesh       *cluster.Mesh
	view       *cluster.View
	gossip     *cluster.Gossip
	bootstrap  *cluster.Bootstrap
	host       *partition.Host
	directory  *partition.Directory
	router     *partition.Router
	supervisor *control.Supervisor
	keys       *policyKeeper
	policies   *auth.Policies
	issuers    *keyring
	api        *rest.API
	refusals   *refusal.Log
	audit      *audit.Log // nil if none is kept
	front      *transport.Server
	desk       frontDesk
	alarms     *alarms
	timings    *timings
	// metricEntities chooses whose series /metrics has.
	metricEntities *entityChoice
	// nameOwner is the node that has the name of this one, nil or empty if none has.
	nameOwner atomic.Pointer[fsm.NodeID]
	ops       *http.Server
	health    healthView
	doors     *doors
	reloader  *reloader

	certificates atomic.Pointer[certificates] // never nil once they are opened

	started time.Time

	// entitiesMade is closed when the entities of the file of entities are there; nil without such a file.
	entitiesMade chan struct{}

	// failed receives the error that ends the process; it holds one.
	failed chan error
	// background ends what openNode started and nobody else owns.
	background context.Context
	cancel     context.CancelFunc
	closers    []func(context.Context) error // in the order of opening
}

// leaveTime is for how long the ends of the clients' connections are spread, if there is another node for them.
const leaveTime = 10 * time.Second

// leaveOver returns for how long this node spreads the ends of its clients' connections when it stops or leaves.
func (n *node) leaveOver() time.Duration {
	if len(n.gossip.Alive()) < 2 {
		return 0
	}
	return leaveTime
}

// onClose remembers what to close; the last opened is closed first.
func (n *node) onClose(f func(context.Context) error) { n.closers = append(n.closers, f) }

func (n *node) close(ctx context.Context) error {
	n.cancel()
	var errs []error
	for i := len(n.closers) - 1; i >= 0; i-- {
		if err := n.closers[i](ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// fail ends the process; only the first reason counts.
func (n *node) fail(err error) {
	select {
	case n.failed <- err:
	default:
	}
}

func newMachine(p fsm.PartitionID) replica.Machine {
	if p == fsm.CatalogPartition {
		return catalog.New()
	}
	return fsm.New(p)
}

func (n *node) stores(p fsm.PartitionID) (replica.Stores, error) {
	return openStores(n.dir, p)
}

func openStores(dir *storage.Dir, p fsm.PartitionID) (replica.Stores, error) {
	g, err := dir.Group(uint16(p))
	if err != nil {
		return replica.Stores{}, err
	}
	return replica.Stores{Log: g.Log(), Stable: g.Stable(), Snapshots: g.Snapshots(),
		Bodies: g.Bodies(), Close: g.Close, Rejoins: g.Rejoins()}, nil
}

// lives are the partitions' view of what the data directory remembers of nodes.
type lives struct{ dir *storage.Dir }

func (l lives) Life() uint64 { return l.dir.Life() }

func (l lives) Witness(node fsm.NodeID, life uint64, i fsm.Incarnation) (uint64, fsm.Incarnation, error) {
	was, err := l.dir.Witness(string(node), storage.Sighting{Life: life, Incarnation: uint64(i)})
	return was.Life, fsm.Incarnation(was.Incarnation), err
}

func (l lives) Distrust(reason string, life uint64) error {
	if err := l.dir.Distrust(reason); err != nil {
		return err
	}
	return l.dir.Outlive(life)
}

// alarmChecks are all checks that turn no client away.
func (n *node) alarmChecks() []partition.Check {
	name := partition.Check{Name: "node-name"}
	if owner := n.nameOwner.Load(); owner != nil && *owner != "" {
		name.Err = fmt.Errorf("node-id %s is that of node %s, which answers, so this node is not taken in: give it another "+
			"node-id, or stop the other one", n.cfg.NodeName, *owner)
	}
	partitions := partition.Check{Name: checkPartitions,
		Err: tooFewPartitions(n.reloader.running.Load().wantedPartitions(), n.partitions())}
	return append(append(n.host.Alarms(), name, partitions), n.auditCheck()...)
}

// partitions is how many data partitions the cluster has, as far as this node knows.
func (n *node) partitions() int {
	if n.directory == nil || n.directory.View() == nil {
		return 0
	}
	return n.directory.View().GroupCount()
}

// held returns the partitions that have a directory here.
func (n *node) held() ([]fsm.PartitionID, error) {
	ids, err := n.dir.Groups()
	all := make([]fsm.PartitionID, len(ids))
	for i, id := range ids {
		all[i] = fsm.PartitionID(id)
	}
	return all, err
}
