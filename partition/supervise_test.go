package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
)

// placeRound is a placement good enough for tests.
func placeRound(nodes []fsm.NodeID, ps []fsm.PartitionID, n int) map[fsm.PartitionID][]fsm.NodeID {
	out := map[fsm.PartitionID][]fsm.NodeID{}
	for i, p := range ps {
		for j := range min(n, len(nodes)) {
			out[p] = append(out[p], nodes[(i+j)%len(nodes)])
		}
	}
	return out
}

// realMachine makes the state machines that the product runs.
func realMachine(p fsm.PartitionID) replica.Machine {
	if p == fsm.CatalogPartition {
		return catalog.New()
	}
	return fsm.New(p)
}

// broker is a whole node above the network: host, directory, router, supervisor.
type broker struct {
	*testNode
	dir *Directory
	r   *Router
	sup *control.Supervisor
}

type brokers struct {
	*testCluster
	all        map[fsm.NodeID]*broker
	partitions int
	lifeOf     map[fsm.NodeID]int           // restarts
	named      string                       // name of the next node to join, its id if empty
	finalizes  bool                         // the setting Finalize of nodes that join
	votes      int                          // of the catalog at most, the default if 0
	followFrom int                          // requests a second from which on a leader follows its traffic, the default if 0
	zone       map[fsm.NodeID]string        // where nodes say that they stand, from their next start on
	wanted     map[fsm.NodeID]int           // partitions that nodes ask for, from their next start on
	tune       func(*Config)                // of each node, nil for nothing
	left       sync.Map                     // fsm.NodeID of those that said goodbye
	taken      sync.Map                     // fsm.NodeID to the node that has its name
	peers      atomic.Pointer[[]fsm.NodeID] // the nodes that gossip tells of, as of the last one that joined
}

func newBrokers(t *testing.T, n int) *brokers { return newBrokersWith(t, n, 0) }

// newBrokersWith makes a cluster of which so many nodes may vote in the catalog, 0 for the default.
func newBrokersWith(t *testing.T, n, votes int) *brokers {
	return newBrokersAs(t, n, func(b *brokers) { b.votes = votes })
}

// newBrokersAs makes a cluster that f has told how it is to be.
func newBrokersAs(t *testing.T, n int, f func(b *brokers)) *brokers {
	b := &brokers{testCluster: newTestCluster(t, n), all: map[fsm.NodeID]*broker{}, partitions: 4,
		lifeOf: map[fsm.NodeID]int{}}
	f(b)
	b.machine = realMachine
	for i := range n {
		id := fsm.NodeID(fmt.Sprintf("n%d", i+1))
		b.cfg = func(c *Config) { c.Incarnation = fsm.Incarnation(100 + i) }
		b.join(id, b.ids)
	}
	return b
}

func (b *brokers) join(id fsm.NodeID, bootstrap []fsm.NodeID) *broker {
	b.t.Helper()
	name := b.named
	if name == "" {
		name = string(id)
	}
	prior := b.cfg
	b.cfg = func(c *Config) {
		prior(c)
		c.Name, c.Partitions = name, b.wanted[id]
		if b.tune != nil {
			b.tune(c)
		}
	}
	n := &broker{testNode: b.start(id)}
	b.cfg = prior
	n.dir = NewDirectory(n.host)
	n.r = NewRouter(n.host, n.dir)
	cfg := control.Defaults()
	if b.named == "" {
		b.named = string(id)
	}
	defer func() { b.named = "" }()
	cfg.Name, cfg.Bootstrap, cfg.Place, cfg.Partitions = b.named, bootstrap, placeRound, b.partitions
	cfg.Zone = b.zone[id]
	cfg.Finalize = b.finalizes
	if b.votes > 0 {
		cfg.CatalogVoters = b.votes
	}
	if b.followFrom > 0 {
		cfg.FollowFrom = b.followFrom
	}
	peers := slices.Clone(b.ids)
	b.peers.Store(&peers)
	cfg.Peers = func() []fsm.NodeID { return *b.peers.Load() }
	cfg.NameTaken = func(owner fsm.NodeID) { b.taken.Store(id, owner) }
	cfg.Left = func(id fsm.NodeID) bool { _, left := b.left.Load(id); return left }
	b.left.Delete(id)
	var err error
	if n.sup, err = Supervise(n.host, n.dir, cfg); err != nil {
		b.t.Fatal(err)
	}
	b.all[id] = n
	return n
}

func (b *brokers) close() {
	for _, n := range b.all {
		n.sup.Close()
	}
	b.testCluster.close()
}

func queue(name string, partitioned bool) fsm.Descriptor {
	return fsm.Descriptor{
		Kind: fsm.Queue, Name: name, Partitioned: partitioned, LockDuration: 60_000, MaxDelivery: 10,
		MaxMessageBytes: 1 << 20, MaxSizeBytes: 1 << 30, DefaultTTL: fsm.Unlimited,
		DuplicateWindow: 600_000, AutoDeleteOnIdle: fsm.Unlimited,
	}
}

func TestClusterFromNothing(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newBrokers(t, nodes)
				defer b.close()
				began := time.Now()
				// A lone node may have elected itself and placed everything by now.
				if err := b.all["n1"].host.Ready(t.Context()); nodes > 1 && !errors.Is(err, fsm.ErrUnavailable) {
					t.Errorf("ready before anything is placed: %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				d := b.createQueue(ctx, b.ids[0], queue("orders", true))
				if nodes == 1 && time.Since(began) > time.Second {
					t.Errorf("a lone node serves after %v", time.Since(began))
				}
				if len(d.Partitions) != 4 {
					t.Fatalf("shares: %v", d.Partitions)
				}
				for i, id := range b.ids { // T-64: every node takes every command
					for share := range d.Partitions {
						k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(share)}
						sendOne(t, b.all[id].r, reqOf(i, share, 1), k)
					}
				}
				// A follower hears of its leader with the leader's next call, which idle ones make soon.
				served := time.Now()
				for _, id := range b.ids {
					err := b.all[id].host.Ready(ctx)
					for ; err != nil && time.Since(served) < time.Second; err = b.all[id].host.Ready(ctx) {
						time.Sleep(10 * time.Millisecond)
					}
					if err != nil {
						t.Errorf("%s is not ready a second after it serves: %v", id, err)
					}
				}
				c, complete, err := b.all[b.ids[0]].r.Counts(ctx, d)
				if err != nil || !complete || c.Active != uint64(4*nodes) {
					t.Fatalf("counts: %+v %v %v", c, complete, err)
				}
			})
		})
	}
}

// createQueue creates a queue, waiting for the first placement.
func (b *brokers) createQueue(ctx context.Context, on fsm.NodeID, q fsm.Descriptor) *fsm.Descriptor {
	b.t.Helper()
	for {
		d, err := b.all[on].dir.Create(ctx, q)
		var refused *fsm.RefusedError
		if errors.As(err, &refused) && refused.Refusal == fsm.Busy {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if err != nil {
			b.t.Fatalf("create %q: %v", q.Name, err)
		}
		return d
	}
}

func reqOf(node, pump, counter int) fsm.RequestID {
	return fsm.RequestID{Node: fsm.Incarnation(100 + node), Pump: uint64(pump), Counter: uint64(counter)}
}

func sendOne(t *testing.T, r *Router, id fsm.RequestID, k fsm.Key) fsm.SequenceNumber {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	o, err := r.Propose(ctx, id, k, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("body")}}})
	if err != nil || o.Refusal != fsm.None || len(o.Numbers) != 1 {
		t.Fatalf("send: %+v, %v", o, err)
	}
	return o.Numbers[0]
}
