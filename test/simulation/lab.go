package simulation

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/test/check"
	"github.com/busbar-mq/busbar/transport"
)

// LabConfig is the cluster of a Lab. Zero fields get their defaults.
type LabConfig struct {
	Nodes      int // 3
	Partitions int // data partitions; 1
	Replicas   int // of each data partition; 3
	// ProposeTimeout is how long a node tries before a client hears that nobody leads; 20 s.
	ProposeTimeout time.Duration
	// SnapshotEntries is after how many entries a replica takes a snapshot; that of production if 0.
	SnapshotEntries uint64
	// Pending is how many requests may wait for the log of a partition; that of production if 0.
	Pending int
	// Limits are those of the namespace, Receives and TransactionMessages those of one entity's receives
	// under way and of one transaction; those of production if 0.
	Limits                        catalog.Limits
	Receives, TransactionMessages int
	// Log takes the nodes' logs, nil for none.
	Log io.Writer
}

// Lab is a whole cluster in a bubble of virtual time, in which nothing happens by chance. A scenario says what its
// clients do, what fails and when.
type Lab struct {
	w *world
	n *nemesis
}

// InLab runs f with a cluster of its own. Tests in a lab must not run in parallel.
func InLab(t *testing.T, cfg LabConfig, f func(t *testing.T, l *Lab)) {
	t.Helper()
	dir := t.TempDir()
	_, err := bubble(t, func(t *testing.T) {
		l, err := newLab(cfg, dir)
		if l != nil {
			defer l.w.close()
		}
		if err != nil {
			t.Fatal(err)
		}
		f(t, l)
	})
	if err != nil {
		t.Error(err)
	}
}

func newLab(lc LabConfig, dir string) (*Lab, error) {
	pc := partition.Defaults()
	if lc.SnapshotEntries > 0 {
		pc.SnapshotEntries, pc.TrailingLogs = lc.SnapshotEntries, 64
	}
	pc.Limits = lc.Limits
	if lc.Receives > 0 {
		pc.MaxReceives = lc.Receives
	}
	if lc.Pending > 0 {
		pc.MaxPendingRequests, pc.ReservedRequests = lc.Pending, lc.Pending
	}
	cfg := Config{
		Seed: 1, Nodes: 3, Partitions: 1, Replicas: 3, BodySegmentBytes: 64 << 10,
		ProposeTimeout: 20 * time.Second, Delay: time.Millisecond, SyncTime: time.Millisecond,
		Dir: dir, Log: io.Discard, partition: pc, transactionMessages: lc.TransactionMessages,
	}
	if lc.Nodes > 0 {
		cfg.Nodes = lc.Nodes
	}
	if lc.Partitions > 0 {
		cfg.Partitions = lc.Partitions
	}
	if lc.Replicas > 0 {
		cfg.Replicas = lc.Replicas
	}
	if lc.ProposeTimeout > 0 {
		cfg.ProposeTimeout = lc.ProposeTimeout
	}
	if lc.Log != nil {
		cfg.Log, cfg.Verbose = lc.Log, true
	}
	w, err := newWorldOf(cfg, nil)
	if err != nil {
		return &Lab{w: w}, fmt.Errorf("start the cluster: %w", err)
	}
	w.calmNetwork()
	return &Lab{w: w, n: &nemesis{w: w, rng: w.rng()}}, w.serving(nil)
}

// Policy returns the name and the key of the shared access policy that has every right.
func (l *Lab) Policy() (name, key string) { return policyName, policyKey }

// Nodes is how many nodes the cluster has; they are numbered from 0.
func (l *Lab) Nodes() int { return len(l.w.machines()) }

// Dial connects a new client machine, or the one of an earlier call with that number, to a node.
func (l *Lab) Dial(ctx context.Context, client, node int) (net.Conn, error) {
	return l.w.clientHost(client).Dial(ctx, l.w.machines()[node].ip+clientPort)
}

// Directory finds and changes entities through a node, as its management API does.
func (l *Lab) Directory(node int) *partition.Directory { return l.w.machines()[node].node.directory }

// Router asks and tells partitions through a node, as its front ends do.
func (l *Lab) Router(node int) *partition.Router { return l.w.machines()[node].node.router }

// Front is what a node's clients speak with.
func (l *Lab) Front(node int) *transport.Server { return l.w.machines()[node].node.front }

// Leader returns the node that leads a partition, -1 if none does.
func (l *Lab) Leader(p fsm.PartitionID) int {
	m := l.w.leaderOf(p)
	for i, o := range l.w.machines() {
		if o == m {
			return i
		}
	}
	return -1
}

// Lead makes a node the leader of a partition.
func (l *Lab) Lead(p fsm.PartitionID, node int) error {
	return within(leaderLimit, func(ctx context.Context) error {
		switch at := l.Leader(p); at {
		case node:
			return nil
		case -1:
			return fmt.Errorf("partition %d has no leader", p)
		default:
			err := l.w.machines()[at].node.host.TransferLeadership(ctx, p, l.w.machines()[node].id)
			if err == nil {
				err = fmt.Errorf("partition %d is led by node %d", p, l.Leader(p))
			}
			return err
		}
	})
}

// Crash ends a node's process without a word; with power what it had not synced is gone, too.
func (l *Lab) Crash(node int, power bool) {
	if n := l.w.machines()[node].node; n != nil {
		n.crash(power, l.w.rng())
	}
}

// Up reports whether a node's process runs.
func (l *Lab) Up(node int) bool { return l.w.machines()[node].node != nil }

// Stop ends a node in good order.
func (l *Lab) Stop(node int) {
	if n := l.w.machines()[node].node; n != nil {
		n.stop(true)
	}
}

// Start starts a node that is down.
func (l *Lab) Start(node int) error {
	if l.w.machines()[node].node != nil {
		return nil
	}
	return l.w.start(l.w.machines()[node])
}

// Isolate cuts a node off from the others, though not from its clients, until the function it
// returns is called.
func (l *Lab) Isolate(node int) (heal func()) { return l.n.isolate(l.w.machines()[node]) }

// CutClient holds back everything between a client machine and a node, as TCP does, until healed.
func (l *Lab) CutClient(client, node int) (heal func()) {
	a, b := l.w.clientHost(client).IP(), l.w.machines()[node].ip
	l.w.clients.Cut(a, b)
	return func() { l.w.clients.Reconnect(a, b) }
}

// Clock sets a node's date wrong; time goes on passing as everywhere.
func (l *Lab) Clock(node int, offset time.Duration) { l.w.machines()[node].node.clock.step(offset) }

// Dates is what a node says of its own date, compared with those of the others.
func (l *Lab) Dates(node int) partition.ClockStatus { return l.w.machines()[node].node.host.Clock() }

// SlowDisk makes every write of a node wait for up to d.
func (l *Lab) SlowDisk(node int, d time.Duration) {
	l.w.machines()[node].disk.set(func(k *disk) { k.slow = d })
}

// ClientDelay is how long everything takes between the clients and the nodes, one way.
func (l *Lab) ClientDelay(d time.Duration) { l.w.clients.SetDelay(d) }

// Holders are the nodes that run a replica of a partition.
func (l *Lab) Holders(p fsm.PartitionID) (nodes []int) {
	for i, m := range l.w.machines() {
		if m.node != nil && m.node.host.Replica(p) != nil {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// StartAfter makes the numbers of an entity's share go on behind last, on all replicas, which must be
// at rest.
func (l *Lab) StartAfter(p fsm.PartitionID, id fsm.EntityID, last uint64) {
	for _, node := range l.Holders(p) {
		l.w.machines()[node].node.host.Replica(p).View(func(m replica.Machine, _ uint64) {
			if s, ok := m.(*watched); ok {
				s.StartAfter(id, last)
			}
		})
	}
}

// Snapshot makes every replica of a node write one.
func (l *Lab) Snapshot(node int) {
	n := l.w.machines()[node].node
	for p := range l.w.cfg.Partitions + 1 {
		if r := n.host.Replica(fsm.PartitionID(p)); r != nil {
			_ = r.Snapshot() // refused if there is nothing new
		}
	}
}

// Applied returns the log index that a node's replica has applied.
func (l *Lab) Applied(node int, p fsm.PartitionID) uint64 {
	return l.w.machines()[node].node.host.Replica(p).Status().Applied
}

// Hops returns the requests for partitions that nodes pass on to each other while f runs.
func (l *Lab) Hops(f func()) []Hop { return l.w.net.trace(f) }

// ID is the name that a node has among the others.
func (l *Lab) ID(node int) fsm.NodeID { return l.w.machines()[node].id }

// BodyBytes is how many bytes of bodies a node has stored for a partition since it started.
func (l *Lab) BodyBytes(node int, p fsm.PartitionID) uint64 { return l.bodies(node, p).PutBytes }

// LiveBodyBytes is how many bytes of bodies a node keeps for a partition.
func (l *Lab) LiveBodyBytes(node int, p fsm.PartitionID) uint64 { return l.bodies(node, p).LiveBytes }

func (l *Lab) bodies(node int, p fsm.PartitionID) storage.BodyStats {
	b, ok := l.w.machines()[node].node.bodies.Load(p)
	if !ok {
		return storage.BodyStats{}
	}
	return b.(*storage.Bodies).Stats()
}

// Digest returns a hash over the state of a node's replica and the index it stands for.
func (l *Lab) Digest(node int, p fsm.PartitionID) (sum, index uint64) {
	l.w.machines()[node].node.host.Replica(p).View(func(m replica.Machine, applied uint64) {
		if s, ok := m.(*watched); ok {
			sum, index = s.Digest(), applied
		}
	})
	return sum, index
}

// Settled waits until every group has a leader and every replica of a running node follows it.
func (l *Lab) Settled() error { return l.w.serving(nil) }

// Led waits until every group has a leader, whoever else is down.
func (l *Lab) Led() error {
	return within(leaderLimit, func(context.Context) error {
		for p := range l.w.cfg.Partitions + 1 {
			if l.w.leaderOf(fsm.PartitionID(p)) == nil {
				return fmt.Errorf("partition %d has no leader", p)
			}
		}
		return nil
	})
}

// Witness has seen what the replicas applied.
func (l *Lab) Witness() *check.Witness { return l.w.witness }
