package partition

import (
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

// Group is one partition as the router sees it: here, or on another node.
type Group interface {
	// Propose brings one request into the partition's log. See transport.Broker for the meaning of
	// a cancelled context.
	Propose(ctx context.Context, req fsm.Request) (fsm.Outcome, error)
	// Query answers a question as of now (A16).
	Query(ctx context.Context, q fsm.QueryRequest) (fsm.Answer, error)
	// Await returns when the key may have something to take (A19).
	Await(ctx context.Context, k fsm.WaitKey) error
	// ReadIndex returns an index: a replica that has applied it has seen everything that was
	// answered before the call. It may be followed by entries that nobody has heard of.
	ReadIndex(ctx context.Context) (uint64, error)
}

var (
	_ Group = (*Replica)(nil)
	_ Group = (*Remote)(nil)
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
	changed func(*Replica) // the leader known here, its term or the replica's health changed

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
	room       *diskSpace
	fresh      func() Machine // an empty state machine, to recount with
	auditing   sync.Mutex     // one audit at a time: each needs the memory of a state
	disputed   atomic.Uint64  // index of the last digests that differ without a majority
	votersFull atomic.Bool    // too many voters have no room on their disks
	spread     bool           // spreadReadOnly's alone: what failed this replica has failed the others
	// wrongClock says that the date of this node is wrong.
	wrongClock func() bool

	mu      sync.Mutex
	stoodAt time.Time // when this replica last called an election by itself
	// defersSince is since when elections are left to others; zero while there is a leader.
	defersSince time.Time
	givenAt     time.Time // when another node last handed it the leadership
}

// replicaOptions are what a host gives its replicas.
type replicaOptions struct {
	room     *diskSpace
	verified bool // the data is known to be the newest there is
	fresh    func() Machine
	// wrongClock says that the date of this node is wrong, defers that it therefore leaves an election
	// to others.
	wrongClock func() bool
	defers     func(*Replica) bool
	cfg        *Config
	caller     Caller
	allowed    func(fsm.NodeID) bool
	changed    func(*Replica)
	applied    func(fsm.PartitionID) // entries were applied; must not block
	log        hclog.Logger
}

// openReplica opens a replica over its stores. With members, a group that has no state yet is
// bootstrapped with them as voters; without, it waits to be added by its leader.
func openReplica(id fsm.PartitionID, s Stores, m Machine, members []fsm.NodeID,
	o replicaOptions) (*Replica, error) {
	r := &Replica{
		id: id, cfg: o.cfg, stores: s, changed: o.changed, stopping: make(chan struct{}),
		log: o.log.With("partition", uint16(id)), waits: newWaiters(o.cfg.MaxParked),
		openedAt: time.Now(), room: o.room, fresh: o.fresh, wrongClock: o.wrongClock,
	}
	r.verified = make(chan struct{})
	r.unverified.Store(true)
	if o.verified {
		r.verify()
	}
	r.guard = newGuard(s, o.cfg.LogCacheBytes, r.fail)
	r.machine = &machine{bodies: s.Bodies, m: m, fail: r.fail, ended: r.guard.ended, drops: &dropLog{log: r.log}}
	r.machine.digests = &digests{stop: r.stopping, wg: &r.wg}
	r.machine.notify = func() { o.applied(id) }
	r.net = raftnet.New(raftnet.Config{
		Group: id, Self: o.cfg.Node, Caller: o.caller,
		HeartbeatTimeout: o.cfg.HeartbeatTimeout, ElectionTimeout: o.cfg.ElectionTimeout,
		RPCTimeout: o.cfg.RPCTimeout, MaxAppendBytes: o.cfg.MaxAppendBytes,
	}, raftSide{r, o.allowed, o.defers}, s.Snapshots)
	if err := r.start(members); err != nil {
		r.guard.end()
		return nil, errors.Join(fmt.Errorf("open partition %d: %w", id, err), r.net.Close())
	}
	r.machine.drops.raft.Store(r.raft)
	r.prop = newProposer(o.cfg, r.raft, r.machine, r.waits, r.log, r.restartStuck, r.ending)
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
		err := raft.BootstrapCluster(conf, r.guard, r.guard, r.stores.Snapshots, r.net, c)
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

// verify says that the data here is the newest there is. It is called once.
func (r *Replica) verify() {
	r.unverified.Store(false)
	close(r.verified)
}

// campaignAlone lets the only voter of a group lead as soon as it is verified, instead of after an
// election time-out (A17).
func (r *Replica) campaignAlone() {
	if !r.onlyVoter() {
		return
	}
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		select {
		case <-r.verified:
		case <-r.stopping:
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), r.cfg.ElectionTimeout)
		defer cancel()
		if err := r.net.CampaignNow(ctx); err != nil {
			r.log.Debug("did not stand for election", "error", err)
		}
	}()
}

// blank reports whether this replica has no configuration: it was not taken in yet.
func (r *Replica) blank() bool {
	return len(r.raft.GetConfiguration().Configuration().Servers) == 0
}

// configuration returns the last committed configuration and its index. Raft's own answer may be of an
// entry that is not committed, and has no index.
func (r *Replica) configuration() (raft.Configuration, uint64) {
	r.machine.mu.Lock()
	c, index := r.machine.members, r.machine.since
	r.machine.mu.Unlock()
	metas, err := r.stores.Snapshots.List()
	if err == nil && len(metas) > 0 && metas[0].ConfigurationIndex > index {
		return metas[0].Configuration, metas[0].ConfigurationIndex
	}
	return c, index
}

// peers returns the other voters of the group as far as this replica knows.
func (r *Replica) peers() []fsm.NodeID {
	var ids []fsm.NodeID
	for _, s := range r.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter && s.ID != raft.ServerID(r.cfg.Node) {
			ids = append(ids, fsm.NodeID(s.ID))
		}
	}
	return ids
}

func (r *Replica) onlyVoter() bool {
	voters := 0
	self := false
	for _, s := range r.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			voters++
			self = self || s.ID == raft.ServerID(r.cfg.Node)
		}
	}
	return self && voters == 1
}

// given notes that another node hands the leadership to this replica.
func (r *Replica) given() {
	r.mu.Lock()
	r.givenAt = time.Now()
	r.mu.Unlock()
}

// fail stops the replica for good: it serves nothing, and answers nobody. The guard has parked the
// goroutine that met the error.
func (r *Replica) fail(err error) {
	if !r.failure.CompareAndSwap(nil, &err) {
		return
	}
	r.log.Error("replica failed and stops", "error", err, "mend", repairHint(err))
	r.shut()
	r.changed(r)
}

// restartStuck asks the host for a new start of this replica (R5, R10).
func (r *Replica) restartStuck(err error) {
	if r.failure.Load() != nil {
		return // what failed otherwise is not opened anew for this
	}
	r.stuck.Store(true)
	r.fail(err)
}

func (r *Replica) shut() {
	r.stopOnce.Do(func() {
		close(r.stopping)
		if r.prop != nil {
			close(r.prop.closed)
		}
	})
}

// err returns why the replica does not serve, or nil.
func (r *Replica) err() error {
	if e := r.failure.Load(); e != nil {
		return fmt.Errorf("replica failed (%w): %w", *e, fsm.ErrNotLeader)
	}
	if r.stalled.Load() {
		return fmt.Errorf("disk is stalled: %w", fsm.ErrNotLeader)
	}
	if r.unverified.Load() {
		return fmt.Errorf("no peer has said yet that the data is not an old copy: %w", fsm.ErrNotLeader)
	}
	return nil
}

// ending is what callers hear when the proposer ends: this node closes, or another replica must
// serve them.
func (r *Replica) ending() error {
	if err := r.err(); err != nil {
		return err
	}
	return fsm.ErrClosed
}

// Propose implements Group on the leader.
func (r *Replica) Propose(ctx context.Context, req fsm.Request) (fsm.Outcome, error) {
	if err := r.err(); err != nil {
		return fsm.Outcome{}, err
	}
	if err := r.fits(req.Command); err != nil {
		return fsm.Outcome{}, err
	}
	return r.prop.propose(ctx, req)
}

// Query implements Group on the leader: it asks the state behind a barrier (A16).
func (r *Replica) Query(ctx context.Context, q fsm.QueryRequest) (fsm.Answer, error) {
	if err := r.err(); err != nil {
		return fsm.Answer{}, err
	}
	if body, ok := q.Query.(*fsm.ReadBody); ok {
		return r.readBody(body)
	}
	if err := r.prop.barrier(ctx); err != nil {
		return fsm.Answer{}, err
	}
	var err error
	for range peekTries {
		var a fsm.Answer
		r.machine.view(func(m Machine, _ uint64) { a = m.Query(q) })
		// A message may be settled, and its body freed, between the two.
		if err = r.machine.fill(a.Messages); err == nil {
			return a, nil
		}
	}
	return fsm.Answer{}, fmt.Errorf("%w: %w", fsm.ErrUnknown, err)
}

// Await implements Group on the leader.
func (r *Replica) Await(ctx context.Context, k fsm.WaitKey) error {
	if err := r.err(); err != nil {
		return err
	}
	if !r.prop.accepting() {
		return r.prop.notLeader()
	}
	return r.waits.await(ctx, k, func() bool {
		there := true
		r.machine.view(func(m Machine, _ uint64) {
			if d, ok := m.(deliverer); ok {
				there = d.Deliverable(k)
			}
		})
		return there || !r.prop.accepting()
	})
}

// ReadIndex implements Group on the leader.
func (r *Replica) ReadIndex(ctx context.Context) (uint64, error) {
	if err := r.err(); err != nil {
		return 0, err
	}
	epoch, led := r.prop.led()
	index := r.machine.index()
	if err := r.prop.barrier(ctx); err != nil {
		return 0, err
	}
	if now, leads := r.prop.led(); led && leads && now == epoch {
		// Nobody else led meanwhile. Followers hear that an entry is committed with the next one: to
		// wait for the barrier's own would cost them a commit time-out.
		return index, nil
	}
	return r.machine.index(), nil
}

// Barrier returns when an entry proposed after its call, or in the last maxAge, has been applied
// here (RUL-20).
func (r *Replica) Barrier(ctx context.Context, maxAge time.Duration) error {
	if err := r.err(); err != nil {
		return err
	}
	if r.prop.freshWithin(maxAge) {
		return nil
	}
	return r.prop.barrier(ctx)
}

// Leader returns who this replica believes to lead, and the term it knows.
func (r *Replica) Leader() (fsm.NodeID, uint64) {
	// Raft changes the two one after the other: a leader must not be told under another's term.
	for {
		term := r.raft.CurrentTerm()
		_, id := r.raft.LeaderWithID()
		if r.raft.CurrentTerm() == term {
			return fsm.NodeID(id), term
		}
	}
}

// Leading reports whether this replica leads and takes proposals. Raft is asked, too. The proposer sees the end of a
// leadership a moment later, and until then a group would seem to have two leaders.
func (r *Replica) Leading() bool {
	return r.err() == nil && r.prop.accepting() && r.raft.State() == raft.Leader
}

// View calls f with the state as this replica has it: not linearizable. f must not keep it.
func (r *Replica) View(f func(m Machine, applied uint64)) { r.machine.view(f) }

// watch tells the host when the leader changes, and takes snapshots.
func (r *Replica) watch() {
	seen := make(chan raft.Observation, 16)
	o := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.LeaderObservation, raft.RaftState:
			return true
		}
		return false
	})
	r.raft.RegisterObserver(o)
	defer r.raft.DeregisterObserver(o)
	t := time.NewTicker(leaderPoll)
	defer t.Stop()
	shots, watch := &snapshots{r: r}, &stuckWatch{r: r, pulses: make(chan struct{}, 1)}
	var leader fsm.NodeID
	var term uint64
	for {
		if l, n := r.Leader(); l != leader || n != term {
			leader, term = l, n
			if l != "" {
				r.leaderKnown()
			}
			r.changed(r)
			r.prop.poke()
		}
		select {
		case <-r.stopping:
			return
		case <-seen:
		case <-t.C:
			shots.look()
			r.machine.drops.flush(time.Now())
			if err := watch.look(); err != nil {
				r.restartStuck(err)
			}
		}
	}
}

// errHangs says that a replica could not be closed: its stores are open and in use.
var errHangs = errors.New("goroutines still run")

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
			errs = append(errs, fmt.Errorf("%w after %v", errHangs, r.cfg.CloseTimeout))
		}
		if err := errors.Join(errs...); err != nil {
			r.closeErr = fmt.Errorf("close partition %d: %w", r.id, err)
		}
	})
	return r.closeErr
}
