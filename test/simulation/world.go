package simulation

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cluster/simnet"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/test/check"
)

// Config is one run.
type Config struct {
	Seed    uint64
	Minutes int // of virtual time under faults
	// Dir is for files that stay empty; Log takes the events and, with Verbose, the nodes' logs.
	Dir     string
	Log     io.Writer
	Verbose bool

	// Nodes found the cluster. At most MaxNodes are in it at a time, in so many Zones; without zones if that is 0.
	Nodes, MaxNodes, Zones int
	Partitions, Replicas   int
	BodySegmentBytes       int
	ProposeTimeout         time.Duration
	SendEvery              time.Duration
	Sessions               int
	// Delay is how long a message takes at most on a calm network, SyncTime a write to a calm disk.
	Delay, SyncTime time.Duration
	// FaultTime bounds a fault, Overlap how many there are at once, MaxStep how wrong a date gets.
	FaultTime time.Duration
	Overlap   int
	MaxStep   time.Duration
	// Forever leaves one minority fault in place at the end: the rest must go on.
	Forever bool
	// AllQueues gives clients to every queue, not to some.
	AllQueues bool
	// Sin breaks every node's broker on purpose, OldNews the answers about entities.
	Sin     *check.Sin
	OldNews bool
	// Begins is the newest cluster version that the programs of the founders know, 0 for that of today. Finishes has all nodes
	// get the newest program at the end. Hasty programs of today take the cluster for newer than it is, and Liars say to know the
	// newest version and do not.
	Begins   fsm.Version
	Finishes bool
	Hasty    bool
	Liars    bool
	// NoHold has backups hold no forwards.
	NoHold    bool
	partition partition.Config
	faults    []fault

	transactionMessages int // that of production if 0
}

// world is a cluster, its clients, and what may go wrong around them.
type world struct {
	cfg      Config
	log      hclog.Logger
	c        *counters
	net      *peers
	clients  *simnet.Net
	founders []fsm.NodeID
	all      atomic.Pointer[[]*machine] // exchanged under mu
	rec      *check.Recorder
	witness  *check.Witness
	queues   []check.Queue
	began    time.Time
	hosts    int // of clients

	trap atomic.Pointer[trap]

	cluster atomic.Uint32    // the highest cluster version that was committed
	calls   [256]fsm.Version // by kind: since which version every node answers it

	// ctx ends when the clients shall stop.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	shared sharedHolds
	relays relays

	mu       sync.Mutex
	chance   *rand.Rand // seeds the others
	deferred map[string][]check.Message
	sick     []*node
	spoiled  []check.Violation // what no replica may do, whatever the clients saw
	avoid    *machine          // clients of the end do not go there
}

// rng returns a new source of chance, from the seed.
func (w *world) rng() *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	return rand.New(rand.NewPCG(w.chance.Uint64(), w.chance.Uint64()))
}

// event writes a line of the story.
func (w *world) event(format string, args ...any) {
	fmt.Fprintf(w.cfg.Log, "%9.3fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

func (w *world) sessionID(rng *rand.Rand) string { return fmt.Sprintf("s%d", rng.IntN(w.cfg.Sessions)) }

// spoil remembers what is wrong whatever the clients saw.
func (w *world) spoil(invariant string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spoiled = append(w.spoiled, check.Violation{Invariant: invariant, Text: err.Error()})
}

func (w *world) sicken(n *node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sick = append(w.sick, n)
}

// defer_ remembers a deferred message for who receives them.
func (w *world) defer_(queue string, seq int64, session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deferred[queue] = append(w.deferred[queue], check.Message{Seq: seq, Session: session})
}

// newWorld starts the cluster of a run and creates its queues.
func newWorld(cfg Config) (*world, error) {
	w, err := newWorldOf(cfg, []check.Queue{
		{Name: "plain", LockMillis: 5_000, MaxDelivery: 4},
		{Name: "sessions", Sessions: true, LockMillis: 10_000, MaxDelivery: 5},
		{Name: "mortal", Mortal: true, DeadExpired: true, LockMillis: 5_000, MaxDelivery: 4},
		{Name: "wide", Partitioned: true, LockMillis: 5_000, MaxDelivery: 4},
		{Name: "groups", Partitioned: true, Sessions: true, LockMillis: 10_000, MaxDelivery: 5},
	})
	if err == nil && cfg.relays() {
		err = w.createRelays()
	}
	return w, err
}

func newWorldOf(cfg Config, queues []check.Queue) (*world, error) {
	w := &world{cfg: cfg, c: newCounters(), clients: simnet.New(), witness: check.NewWitness(),
		chance: rand.New(rand.NewPCG(cfg.Seed, 0x62757362)), deferred: map[string][]check.Message{},
		began: time.Now(), log: hclog.NewNullLogger(), queues: queues}
	if cfg.Verbose {
		w.log = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: cfg.Log,
			TimeFormat: "15:04:05.000"})
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	wall := time.Duration(0)
	if slices.ContainsFunc(cfg.faults, func(f fault) bool { return f.name == "clock step" }) || cfg.Forever {
		wall = cfg.MaxStep
	}
	w.rec = check.NewRecorder(10*time.Millisecond, wall, w.queues...)
	for _, c := range fsm.Calls() {
		w.calls[c.Kind] = c.Since
	}
	w.net = newPeers(w.rng(), w.c, w.calling)
	w.all.Store(&[]*machine{})
	for range cfg.Nodes {
		w.founders = append(w.founders, w.founder().id)
	}
	for _, m := range w.machines() {
		if err := w.start(m); err != nil {
			return w, err
		}
	}
	return w, w.createQueues()
}

func (w *world) createQueues() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for i := range w.queues {
		q := &w.queues[i]
		for {
			_, err := w.machines()[0].node.directory.Create(ctx, descriptorOf(q))
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("create %s: %w", q.Name, err)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

func descriptorOf(q *check.Queue) fsm.Descriptor {
	return fsm.Descriptor{
		Kind: fsm.Queue, Name: q.Name, RequiresSession: q.Sessions, Partitioned: q.Partitioned,
		LockDuration: fsm.Millis(q.LockMillis), MaxDelivery: q.MaxDelivery, MaxMessageBytes: 1 << 20,
		MaxSizeBytes: 1 << 30, DefaultTTL: fsm.Unlimited, AutoDeleteOnIdle: fsm.Unlimited,
		DuplicateWindow: 600_000, DeadLetterOnExpiration: q.DeadExpired,
	}
}

// newClient returns a client with a machine of its own.
func (w *world) newClient(id int) *client {
	return &client{w: w, id: id, host: w.clientHost(id), rng: w.rng()}
}

// do runs f as part of the work that ends before the end of the run.
func (w *world) do(f func()) {
	w.work.Add(1)
	go func() { defer w.work.Done(); f() }()
}

// startClients starts the work. The first two queues always have all of it, of the others a seed has
// some.
func (w *world) startClients() {
	id := 0
	start := func(f func(c *client)) {
		id++
		w.hosts = id + 1
		c := w.newClient(id)
		w.do(func() { f(c) })
	}
	rng := w.rng()
	used := slices.Clone(w.queues[:2])
	for _, q := range w.queues[2:] {
		if rng.IntN(3) == 0 || w.cfg.AllQueues {
			used = append(used, q)
		}
	}
	for i := range used {
		q := &used[i]
		for range 2 {
			start(func(c *client) { c.produce(q) })
			if q.Sessions {
				start(func(c *client) { c.hold(q) })
			} else {
				start(func(c *client) { c.consume(q, check.InMain) })
			}
		}
		start(func(c *client) { c.consume(q, check.InDeadLetter) })
		start(func(c *client) { c.look(q) })
		start(func(c *client) { c.plan(q) })
		if !q.Sessions {
			start(func(c *client) { c.fetch(q) })
		}
	}
	for range 2 {
		start(func(c *client) { c.rule("ephemeral") })
	}
	if w.cfg.relays() {
		start((*client).relay)
		start((*client).arrive)
	}
	w.do(w.watch)
}

// close ends everything.
func (w *world) close() {
	w.cancel()
	w.work.Wait()
	for _, m := range w.machines() {
		m.disk.unstick()
		if m.node != nil {
			m.node.stop(false)
		}
	}
	w.net.Close()
}

// calmNetwork is how the network is when nothing is wrong with it.
func (w *world) calmNetwork() {
	w.net.SetDelay(w.cfg.Delay/4, w.cfg.Delay)
	w.clients.SetDelay(w.cfg.Delay / 2)
}

// leaderOf returns the machine whose replica leads, in the newest term of those that say so; nil if none does.
func (w *world) leaderOf(p fsm.PartitionID) (leader *machine) {
	newest := uint64(0)
	for _, m := range w.machines() {
		if m.node == nil {
			continue
		}
		if r := m.node.host.Replica(p); r != nil && r.Leading() {
			if _, term := r.Leader(); leader == nil || term > newest {
				leader, newest = m, term
			}
		}
	}
	return leader
}

// boot starts a node on a machine that has none; a start that fails is tried again by heal.
func (w *world) boot(m *machine) {
	if m.node != nil || m.over.Load() {
		return
	}
	if err := w.start(m); err != nil {
		w.event("%v", err)
		w.c.add("failed starts", 1)
		m.failed = append(m.failed, err)
	}
}

// heal starts processes anew that asked for it.
func (w *world) heal() {
	w.mu.Lock()
	sick := w.sick
	w.sick = nil
	w.mu.Unlock()
	for _, n := range sick {
		if n.machine.node == n {
			n.crash(false, w.rng())
			w.boot(n.machine)
		}
	}
}
