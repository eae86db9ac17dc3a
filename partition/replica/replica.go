package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// Replica is one replica of one Raft group.
type Replica struct {
	id      fsm.PartitionID
	cfg     *Config
	log     hclog.Logger
	stores  Stores
	guard   *guard
	machine *machine
	net     *raftnet.Transport
	raft    *raft.Raft
	prop    *proposer
	waits   *waiters
	node    Node

	stopping   chan struct{}
	stopOnce   sync.Once
	closeOnce  sync.Once
	closeErr   error
	wg         sync.WaitGroup
	stalled    atomic.Bool // a store call hangs on this disk: neither ask, answer nor serve
	stuck      atomic.Bool
	failure    atomic.Pointer[error]
	unverified atomic.Bool   // whether the data is an old copy is not known yet: neither ask nor answer
	verified   chan struct{} // closed when that ends
	openedAt   time.Time
	room       *Room
	empty      func() Machine // an empty state machine, to recount with
	auditing   sync.Mutex     // one audit at a time: each needs the memory of a state
	clockwork  clockwork
	calm       atomic.Pointer[raftnet.Calm] // what the last beat found; nil if the group had something to do
	last       lastTerm
	beatEvery  time.Duration
	looked     looked
	asking     atomic.Bool   // raft's main loop was asked for a sign of life, and has not answered
	looks      chan struct{} // has the watcher look; capacity 1
	disputed   atomic.Uint64 // index of the newest digests that were told to differ without a majority
	votersFull atomic.Bool   // too many voters have no room on their disks

	mu      sync.Mutex
	stoodAt time.Time // when this replica last called an election by itself
	// defersSince is since when elections are left to others; zero while there is a leader.
	defersSince time.Time
	givenAt     time.Time // when another node last handed it the leadership
}

// Options are what a node gives each of its replicas.
type Options struct {
	Config *Config
	Node   Node
	Caller raftnet.Caller
	// Room and Pace are those of the disk which the stores are on.
	Room *Room
	Pace *Pace
	// Rate bounds the snapshots that the replica sends to new ones; nil for no bound.
	Rate *raftnet.Rate
	// Tallies are those of the node.
	Tallies *Tallies
	// Empty returns an empty state machine.
	Empty func() Machine
	// BeatEvery is the time between two calls of Beat; 0 if there are none. Raft then has its own timers.
	BeatEvery time.Duration
	// Verified says that the data is known to be the newest there is.
	Verified bool
	// OpenedAt is when its stores were about to be opened; zero for now.
	OpenedAt time.Time
	Log      hclog.Logger
}

// Open opens a replica over its stores. With members, a group that has no state yet is
// bootstrapped with them as voters; without, it waits to be added by its leader.
func Open(id fsm.PartitionID, s Stores, members []fsm.NodeID, o Options) (*Replica, error) {
	r := &Replica{
		id: id, cfg: o.Config, stores: s, node: o.Node, stopping: make(chan struct{}),
		log: o.Log.With("partition", uint16(id)), waits: newWaiters(o.Config.MaxParked),
		openedAt: cmp.Or(o.OpenedAt, time.Now()), room: o.Room, empty: o.Empty, looks: make(chan struct{}, 1), beatEvery: o.BeatEvery,
	}
	r.verified = make(chan struct{})
	r.unverified.Store(true)
	if o.Verified {
		r.Verify()
	}
	r.guard = newGuard(s, r.cfg.LogCacheBytes, r.Fail)
	r.guard.pace, r.guard.onSync = o.Pace, r.cfg.OnSync
	r.machine = &machine{bodies: s.Bodies, m: o.Empty(), fail: r.Fail, failLive: r.guard.unreadable, ended: r.guard.ended, imaged: r.imaged,
		notify: func() { o.Node.Applied(id) }, drops: &dropLog{log: r.log}, tallies: o.Tallies, onApply: r.cfg.OnApply, digests: newDigests(r.stopping, &r.wg)}
	r.machine.publishLocked() // nobody else has it yet
	r.net = raftnet.New(raftnet.Config{
		Group: id, Self: r.cfg.Node, Caller: o.Caller, BeatEvery: o.BeatEvery,
		HeartbeatTimeout: r.cfg.HeartbeatTimeout, ElectionTimeout: r.cfg.ElectionTimeout,
		RPCTimeout: r.cfg.RPCTimeout, MaxAppendBytes: r.cfg.MaxAppendBytes, Rate: o.Rate,
	}, raftSide{r}, s.Snapshots)
	r.guard.writing = r.net.Writing
	if err := r.start(members); err != nil {
		r.guard.end()
		return nil, errors.Join(fmt.Errorf("open partition %d: %w", id, err), r.net.Close())
	}
	r.machine.drops.raft.Store(r.raft)
	r.prop = newProposer(r.cfg, r.raft, r.machine, r.waits, r.log, r.stalled.Load, r.RestartStuck, r.ending)
	r.prop.room = o.Room
	r.wg.Add(2)
	go func() { defer r.wg.Done(); r.prop.run() }()
	go func() { defer r.wg.Done(); r.watch() }()
	r.campaignAlone()
	return r, nil
}

// start opens raft. Its constructor panics where its goroutines would.
func (r *Replica) start(members []fsm.NodeID) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("raft panicked: %v", p)
		}
	}()
	conf := r.raftConfig()
	if len(members) > 0 {
		var c raft.Configuration
		for _, m := range members {
			c.Servers = append(c.Servers, raft.Server{
				Suffrage: raft.Voter, ID: raft.ServerID(m), Address: raft.ServerAddress(m),
			})
		}
		err := raft.BootstrapCluster(conf, r.guard, unfounded{r.guard}, r.stores.Snapshots, r.net, c)
		if err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
			return fmt.Errorf("bootstrap: %w", err)
		}
	}
	r.raft, err = raft.NewRaft(conf, r.machine, r.guard, r.guard, r.net.Snapshots(), r.net)
	// Its goroutines touch the stores at the first call of a peer, which cannot come yet. Or they touch them at the
	// first election, a heartbeat time-out away. So none of them has met an error so far.
	r.guard.start()
	if err != nil {
		err = errors.Join(err, r.net.SnapshotTrouble(), r.machine.trouble())
	}
	return err
}

// raftConfig is Config as raft's settings. RestoreCommittedLogs (R6) and NotifyCh (it blocks
// raft) stay off.
func (r *Replica) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(r.cfg.Node)
	c.HeartbeatTimeout = r.cfg.HeartbeatTimeout
	c.ElectionTimeout = r.cfg.ElectionTimeout
	c.LeaderLeaseTimeout = r.cfg.LeaderLease
	if r.beatEvery > 0 { // Beat minds all three; raft takes no longer lease than the heartbeat time-out that it may get
		c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = never, never, r.cfg.HeartbeatTimeout
	}
	c.CommitTimeout = r.cfg.CommitTimeout
	c.MaxAppendEntries = r.cfg.MaxAppendEntries
	// One entry is in flight (A4), so a buffer in front of raft has nothing to batch; without it
	// raft answers every entry that it has taken.
	c.BatchApplyCh = false
	c.ShutdownOnRemove = true
	c.TrailingLogs = r.cfg.TrailingLogs
	// Snapshots are taken by watch, on bytes.
	c.SnapshotInterval = 1000 * time.Hour
	c.SnapshotThreshold = math.MaxUint64
	c.NoLegacyTelemetry = true
	c.Logger = raftnet.NewLogger(r.log.Named("raft"))
	return c
}

// Verify says that the data here is the newest there is. It is called once.
func (r *Replica) Verify() {
	r.unverified.Store(false)
	close(r.verified)
}

// Propose implements Group on the leader.
func (r *Replica) Propose(ctx context.Context, req fsm.Request) (fsm.Outcome, error) {
	if err := r.admits(req.Command); err != nil {
		return fsm.Outcome{}, err
	}
	if e, is := req.Command.(*fsm.Enqueue); is && e.Origin == nil {
		r.prop.backpressure.hold(ctx, req.Entity, e.Len)
	}
	return r.prop.propose(ctx, req)
}

// admits returns why a command must not be proposed here, nil if it may be.
func (r *Replica) admits(c fsm.Command) error {
	if err := r.Err(); err != nil {
		return err
	}
	if err := r.fits(c); err != nil {
		return err
	}
	return TooNew(c, r.node.ClusterVersion())
}

// SetHooks has hooks called for each entry that is applied while this replica leads, in place of those before.
func (r *Replica) SetHooks(h *Hooks) { r.prop.hooks.Store(h) }

// ErrHangs says that a replica could not be closed: its stores are open and in use.
var ErrHangs = errors.New("goroutines still run")

// Close stops the replica. Order matters: callers are answered, then peers hear nothing more, then raft ends. Only
// then the stores close, because raft panics on a store that is closed (R11).
func (r *Replica) Close() error {
	r.closeOnce.Do(func() {
		r.shut()
		errs := []error{r.net.Close()}
		down := r.raft.Shutdown()
		r.guard.end()
		done := make(chan error, 1)
		go func() {
			err := down.Error()
			r.wg.Wait()
			done <- err
		}()
		t := time.NewTimer(r.cfg.CloseTimeout)
		defer t.Stop()
		select {
		case err := <-done:
			errs = append(errs, err, r.stores.Close())
		case <-t.C:
			// The stores stay open: a goroutine of raft is still inside one of them.
			errs = append(errs, fmt.Errorf("%w after %v", ErrHangs, r.cfg.CloseTimeout))
		}
		if err := errors.Join(errs...); err != nil {
			r.closeErr = fmt.Errorf("close partition %d: %w", r.id, err)
		}
	})
	return r.closeErr
}
