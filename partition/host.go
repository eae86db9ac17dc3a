package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/busbar-mq/busbar/cluster/tick"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Host holds the replicas of this node and answers the other nodes' calls to them.
type Host struct {
	cfg    Config
	deps   Deps
	limits atomic.Pointer[catalog.Limits] // of the namespace; what it points to never changes

	mu         sync.Mutex
	closed     bool
	replicas   map[fsm.PartitionID]*replica.Replica // changed by setLocked alone
	members    map[fsm.PartitionID][]fsm.NodeID     // as given to Open, for opening anew
	restarts   map[fsm.PartitionID]int              // new starts of stuck replicas, one after the other
	stuckFound map[fsm.PartitionID]uint64           // all that were found
	restarted  map[fsm.PartitionID]time.Time        // last new start of a replica that ran out of disk
	opening    map[fsm.PartitionID]bool
	broken     map[fsm.PartitionID]error // could not be opened

	inOrder        atomic.Pointer[[]*replica.Replica] // the replicas in their order; nil if nobody has put them into it yet
	staleness      stalenessCheck
	captures       captures
	shareImages    shareImages
	life           lifeOf
	dates          dateWatch
	lost           lostPeers
	away           away
	beats          beats
	space          diskSpace
	pace           replica.Pace                         // of the disk
	rate           *raftnet.Rate                        // of snapshots to new replicas
	tallies        replica.Tallies                      // of what this node led
	partitions     atomic.Int64                         // that this node wants, 0 if nobody said
	spread         map[fsm.PartitionID]*replica.Replica // spreadReadOnly's alone: what failed these has failed the others
	version        clusterVersion
	unversioned    Caller    // for calls that the version of the cluster does not allow yet
	leaders        broadcast // a leader became known or lost
	catalogChanged broadcast // the catalog's replica here applied something
	clients        clientsOf
	released       atomic.Pointer[func(fsm.EntityID, string)]

	stop      chan struct{}
	wg        sync.WaitGroup
	beating   sync.WaitGroup // the goroutine of the beats; rest ends it, after the replicas
	rest      func()
	fatalOnce sync.Once
}

// NewHost returns a host without replicas and registers its handlers with deps.Caller.
func NewHost(cfg Config, deps Deps) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("partition config: %w", err)
	}
	h := &Host{
		cfg: cfg, deps: deps, replicas: map[fsm.PartitionID]*replica.Replica{},
		members:  map[fsm.PartitionID][]fsm.NodeID{},
		restarts: map[fsm.PartitionID]int{}, stuckFound: map[fsm.PartitionID]uint64{},
		restarted: map[fsm.PartitionID]time.Time{}, opening: map[fsm.PartitionID]bool{},
		broken: map[fsm.PartitionID]error{}, rate: raftnet.NewRate(cfg.MoveBytesPerSecond), spread: map[fsm.PartitionID]*replica.Replica{}, stop: make(chan struct{}),
	}
	h.SetLimits(cfg.Limits)
	h.SetPartitions(cfg.Partitions)
	h.staleness.init(h)
	h.captures.h, h.captures.held = h, map[captureKey]*capture{}
	h.life.current = cfg.Incarnation
	if h.deps.Member == nil {
		h.deps.Member = func(fsm.NodeID) bool { return true }
	}
	if h.deps.OnFatal == nil {
		h.deps.OnFatal = func(error) {}
	}
	h.beats.init(h)
	h.unversioned = deps.Caller
	h.deps.Caller = newVersionedCaller(deps.Caller, h)
	h.handle()
	h.wg.Go(h.followVersion)
	h.wg.Add(1)
	go func() { defer h.wg.Done(); h.watchdog() }()
	h.wg.Add(1)
	go func() { defer h.wg.Done(); h.staleness.run() }()
	h.away.h = h
	h.wg.Go(h.away.run)
	beating, rest := context.WithCancel(context.Background())
	h.rest = func() { rest(); h.beating.Wait() }
	h.beating.Go(func() { h.beats.run(beating) })
	h.dates.h = h
	h.wg.Add(1)
	go func() { defer h.wg.Done(); h.dates.run() }()
	h.wg.Add(1)
	go func() {
		defer h.wg.Done()
		(&stepDownNotifier{h: h, told: map[fsm.PartitionID]uint64{}}).run()
	}()
	return h, nil
}

func (h *Host) allowed(n fsm.NodeID) bool { return n == h.cfg.Node || h.deps.Member(n) }

// Node returns the id of this node.
func (h *Host) Node() fsm.NodeID { return h.cfg.Node }

// SetLimits changes the limits of the namespace by which this node judges changes of entities.
func (h *Host) SetLimits(l catalog.Limits) { h.limits.Store(&l) }

// SetMoveRate changes how many bytes per second this node sends to new replicas, 0 for no bound.
func (h *Host) SetMoveRate(perSecond int64) { h.rate.Set(perSecond) }

// SetPartitions changes how many data partitions this node wants the cluster to have, 0 if nobody said.
func (h *Host) SetPartitions(n int) { h.partitions.Store(int64(n)) }

// Open opens the replica of a partition, unless it is open. With members a group without state is
// created with them as voters, which every member must be told alike (A20); with none the replica
// waits until the group's leader adds it.
func (h *Host) Open(p fsm.PartitionID, members []fsm.NodeID) error {
	h.mu.Lock()
	switch {
	case h.closed:
		h.mu.Unlock()
		return fsm.ErrClosed
	case h.replicas[p] != nil || !h.claimLocked(p):
		h.mu.Unlock()
		return nil
	}
	h.mu.Unlock()
	return h.openClaimed(p, members)
}

func (h *Host) open(p fsm.PartitionID, members []fsm.NodeID) (*replica.Replica, error) {
	began := time.Now()
	s, err := h.deps.Open(p)
	if err != nil {
		return nil, fmt.Errorf("open stores of partition %d: %w", p, err)
	}
	if s.Rejoins {
		members = nil
	}
	r, err := replica.Open(p, s, members, replica.Options{
		Config: &h.cfg.Config, Node: nodeSide{h}, Caller: h.deps.Caller, Room: &h.space.Room, Pace: &h.pace, Rate: h.rate, Tallies: &h.tallies, BeatEvery: h.beats.every,
		Empty: func() replica.Machine { return h.deps.Machine(p) }, Verified: h.staleness.alwaysVerified(), OpenedAt: began, Log: h.deps.Log,
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return r, nil
}

// note tells the cluster and this node's waiting routers what a replica has seen.
func (h *Host) note(r *replica.Replica) {
	if leader, term := r.Leader(); leader != "" && r.Failure() == nil {
		h.deps.Locator.Announce(r.ID(), leader, term)
	}
	h.leaders.fire()
}

// Changed returns a channel that is closed at the next change of what is known about leaders here.
func (h *Host) Changed() <-chan struct{} { return h.leaders.wait() }

// CatalogChanged returns a channel that is closed when the catalog's replica here has applied more.
func (h *Host) CatalogChanged() <-chan struct{} { return h.catalogChanged.wait() }

// broadcast tells any number of goroutines that something changed.
type broadcast struct {
	mu sync.Mutex
	ch atomic.Pointer[chan struct{}] // nil while nobody waits; written under mu
}

// wait returns a channel that the next fire closes. Take it before looking, then nothing is missed.
// Each request takes one, so a channel that is there already is returned without the mutex.
func (b *broadcast) wait() <-chan struct{} {
	if ch := b.ch.Load(); ch != nil {
		return *ch
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ch := b.ch.Load()
	if ch == nil {
		made := make(chan struct{})
		ch = &made
		b.ch.Store(ch)
	}
	return *ch
}

func (b *broadcast) fire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ch := b.ch.Swap(nil); ch != nil {
		close(*ch)
	}
}

// Replica returns the replica of a partition, nil if this node holds none.
func (h *Host) Replica(p fsm.PartitionID) *replica.Replica {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.replicas[p]
}

// list returns the open replicas in the order of their partitions. Callers only read it: the list is the same one until a
// replica comes or goes.
func (h *Host) list() []*replica.Replica { return *h.listed() }

// listed returns the list as a pointer, by which one list is told from another.
func (h *Host) listed() *[]*replica.Replica {
	if rs := h.inOrder.Load(); rs != nil {
		return rs
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	rs := slices.SortedFunc(maps.Values(h.replicas), func(a, b *replica.Replica) int { return int(a.ID()) - int(b.ID()) })
	h.inOrder.Store(&rs)
	return &rs
}

// setLocked notes the open replica of a partition, nil for none.
func (h *Host) setLocked(p fsm.PartitionID, r *replica.Replica) {
	h.inOrder.Store(nil)
	if r == nil {
		delete(h.replicas, p)
		return
	}
	h.replicas[p] = r
}

// leader returns who leads a partition according to the replica here.
func (h *Host) leader(p fsm.PartitionID) (fsm.NodeID, bool) {
	r := h.Replica(p)
	if r == nil || r.Err() != nil {
		return "", false
	}
	id, _ := r.Leader()
	return id, id != ""
}

// watchdogEvery is how often the watchdog looks.
const watchdogEvery = time.Second

// watchdog looks for store calls that do not return (R1). While one hangs, raft's main loop answers nothing, but its
// heartbeats go on and keep the others from electing a leader.
func (h *Host) watchdog() {
	h.lookAtDisk()
	t := tick.Every(watchdogEvery)
	defer t.Stop()
	var a awake
	for {
		began := time.Now()
		select {
		case <-h.stop:
			return
		case <-t.C:
			t.Next()
		}
		a.waited(began, time.Now())
		h.lookAtDisk()
		rs := h.list()
		h.check(rs, a.age(oldestCall(rs), time.Now()))
	}
}

// awake tells a process that stood still from a disk that does. The age of a store call counts from the end of the last
// pause of the process. After a SIGSTOP, or in a virtual machine that was frozen, no call has had time to return.
type awake struct {
	since time.Time // end of the last pause; zero if there was none
}

// waited notes how long a wait for the next tick took. A wait of three ticks was a pause of the process.
func (a *awake) waited(began, ended time.Time) {
	if ended.Sub(began) >= 3*watchdogEvery {
		a.since = ended
	}
}

// age returns how much of the age of a store call the process was awake for.
func (a *awake) age(of time.Duration, now time.Time) time.Duration {
	if a.since.IsZero() {
		return of
	}
	return min(of, now.Sub(a.since))
}

// oldestCall returns the age of the oldest store call under way in any replica, 0 if there is none.
func oldestCall(rs []*replica.Replica) (age time.Duration) {
	for _, r := range rs {
		age = max(age, r.OldestCall())
	}
	return age
}

// check judges the disk by the age of its oldest call: all groups of the node share it.
func (h *Host) check(rs []*replica.Replica, age time.Duration) {
	stalled := age > h.cfg.StallAfter
	h.spreadReadOnly(rs)
	for _, r := range rs {
		if r.SetStalled(stalled) {
			r.Log().Warn("disk", "stalled", stalled, "oldest call", age)
			h.note(r)
		}
		if r.TakeStuck() {
			h.reopen(r)
		} else if err := r.Starved(); err != nil && h.mayRestart(err) {
			h.restartStarved(r)
		}
	}
	h.restartUnopened()
	if age > h.cfg.FatalAfter {
		h.fatal(fmt.Errorf("a store call hangs for %v", age))
	}
}

func (h *Host) fatal(err error) {
	h.fatalOnce.Do(func() {
		h.deps.Log.Error("process must end", "error", err)
		h.deps.OnFatal(err)
	})
}

// ownName is what people called this node, if the catalog knows it so.
func (h *Host) ownName() string {
	v := h.catalog()
	if v == nil || h.cfg.Name == "" {
		return ""
	}
	if n, ok := v.Node(h.cfg.Node); !ok || n.Name != h.cfg.Name {
		return ""
	}
	return h.cfg.Name
}

// Status returns the state of every replica here, by partition.
func (h *Host) Status() []replica.Status {
	out, name := []replica.Status{}, h.ownName()
	for _, r := range h.list() {
		out = append(out, r.Status())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, err := range h.broken {
		out = append(out, replica.Status{Partition: p, Node: h.cfg.Node, Failure: err.Error(), Broken: true})
	}
	for i := range out {
		out[i].Stuck = h.stuckFound[out[i].Partition]
		if out[i].Partition == fsm.CatalogPartition {
			out[i].CatalogLevel, out[i].Program = h.cfg.Knows, h.cfg.Program
			out[i].WriteMean, out[i].Partitions = h.pace.Worst(), int(h.partitions.Load())
			out[i].ServesClients, out[i].ClientsLeft = h.clients.state()
		}
	}
	slices.SortFunc(out, func(a, b replica.Status) int { return int(a.Partition) - int(b.Partition) })
	for i := range out {
		out[i].Name = name
	}
	return out
}

// Ask asks a node for the states of its replicas, for half a second at most.
func (h *Host) Ask(ctx context.Context, n fsm.NodeID) ([]replica.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	return askStatus(ctx, h.deps.Caller, n)
}

// Close hands the leaderships away, as long as ctx lasts, and closes every replica.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	h.mu.Unlock()
	close(h.stop)
	h.captures.close()
	h.shareImages.close()
	h.wg.Wait()
	rs := h.list()
	_ = h.each(rs, func(r *replica.Replica) error { // what is not handed over is elected
		if ctx.Err() == nil && r.Leading() && !r.OnlyVoter() {
			if err := h.TransferLeadership(ctx, r.ID(), ""); err != nil {
				r.Log().Info("leadership was not handed over", "error", err)
			}
		}
		return nil
	})
	err := h.each(rs, (*replica.Replica).Close)
	h.rest()
	return err
}

// each calls f for all replicas at once and joins their errors.
func (h *Host) each(rs []*replica.Replica, f func(*replica.Replica) error) error {
	errs := make([]error, len(rs))
	var wg sync.WaitGroup
	for i, r := range rs {
		wg.Add(1)
		go func() { defer wg.Done(); errs[i] = f(r) }()
	}
	wg.Wait()
	return errors.Join(errs...)
}
