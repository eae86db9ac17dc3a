package partition

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
)

// forwarders run where partitions are led: one mover per leadership, and in it one forwarder per source
// that has something to move.
type forwarders struct {
	sup     *control.Supervisor
	dir     *Directory
	movers  map[fsm.PartitionID]*mover // of the goroutine that looks
	scanned map[fsm.PartitionID]scanned
}

// scanned is when the sources of a partition were last looked through.
type scanned struct {
	version uint64 // of the catalog
	at      time.Time
}

const (
	// scanEvery is how often all sources are looked through although nobody told that there is
	// something to move.
	scanEvery = 30 * time.Second
	// deleteTimeout bounds the deletion of one idle entity; it is named again.
	deleteTimeout = 10 * time.Second
	// maxForwarders bounds the sources of a partition that are moved at a time.
	maxForwarders = 64
	// minSourcePause and maxSourcePause bound the pause after the partition of a source was busy.
	minSourcePause = 250 * time.Millisecond
	maxSourcePause = 1250 * time.Millisecond
)

// end ends the movers, while the goroutine of the loop is counted: nothing begins behind Close's back.
func (f *forwarders) end() {
	for _, m := range f.movers { // order-free: each ends for itself
		m.end()
	}
}

// step begins and ends movers as leaderships do.
func (f *forwarders) step(ctx context.Context, facts control.Facts) {
	v := facts.View
	led := map[fsm.PartitionID]bool{}
	for _, r := range facts.Replicas {
		epoch, ok := r.Led()
		if r.ID() == fsm.CatalogPartition || !ok || !r.Leading() {
			continue
		}
		led[r.ID()] = true
		m := f.movers[r.ID()]
		if m == nil || m.epoch != epoch || m.rep != r {
			if m != nil {
				m.end()
			}
			m = newMover(ctx, f, r, epoch)
			f.movers[r.ID()] = m
			f.scanned[r.ID()] = scanned{}
		}
		last := f.scanned[r.ID()]
		if last.version != v.Version() || time.Since(last.at) >= scanEvery {
			m.scan(v)
			f.scanned[r.ID()] = scanned{v.Version(), time.Now()}
		}
	}
	for p, m := range f.movers { // order-free: each ends for itself
		if !led[p] {
			m.end()
			delete(f.movers, p)
		}
	}
}

// mover moves what one leadership has to move.
type mover struct {
	sup    *control.Supervisor
	dir    *Directory
	rep    *replica.Replica
	epoch  uint64
	ctx    context.Context // of the leadership
	cancel context.CancelFunc

	mu      sync.Mutex
	ended   bool
	sources map[source]struct{} // subqueues that forward, beside the transfer queues
	tasks   map[source]chan struct{}
	pending []source            // beyond maxForwarders, in the order in which they get a place
	waits   map[source]struct{} // those that are pending
	idling  map[fsm.EntityID]struct{}
}

func newMover(ctx context.Context, f *forwarders, r *replica.Replica, epoch uint64) *mover {
	m := &mover{sup: f.sup, dir: f.dir, rep: r, epoch: epoch, sources: map[source]struct{}{},
		tasks: map[source]chan struct{}{}, waits: map[source]struct{}{}, idling: map[fsm.EntityID]struct{}{}}
	m.ctx, m.cancel = context.WithCancel(ctx)
	r.SetHooks(&replica.Hooks{Wake: m.woken, Idle: m.idle})
	return m
}

// end stops the mover; its goroutines end soon, and the supervisor waits for them.
func (m *mover) end() {
	m.cancel()
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
}

// scan looks through all entities for sources, and for what was in transit when the leadership began. A source is known
// before it is looked at, so that a wake-up behind the look is heard.
func (m *mover) scan(v *catalog.View) {
	sources := map[source]struct{}{}
	var shares []fsm.EntityID
	v.SharesOf(m.rep.ID(), func(d *fsm.Descriptor) bool {
		if d.ForwardTo != "" {
			sources[source{d.ID, fsm.Main}] = struct{}{}
		}
		if d.ForwardDeadLettersTo != "" {
			sources[source{d.ID, fsm.DeadLetter}] = struct{}{}
		}
		shares = append(shares, d.ID)
		return true
	})
	m.mu.Lock()
	m.sources = sources
	m.mu.Unlock()
	for _, id := range shares {
		for _, sub := range []fsm.SubQueue{fsm.Main, fsm.DeadLetter, fsm.TransferQueue} {
			src := source{id, sub}
			if _, forwards := sources[src]; m.moves(src, forwards || sub == fsm.TransferQueue) {
				m.kick(src)
			}
		}
		if m.ctx.Err() != nil {
			return
		}
	}
}

// kick has a source looked at.
func (m *mover) kick(src source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kickLocked(src)
}

// moves reports whether a source has messages in transit or, if it forwards, some to take.
func (m *mover) moves(src source, forwards bool) (there bool) {
	m.rep.View(func(s replica.Machine, _ uint64) {
		q := fsm.QueryRequest{Entity: src.entity, Sub: src.sub, Query: &fsm.Moving{Max: 1}}
		a := s.Query(q)
		there = len(a.Moves) > 0
		if d, ok := s.(replica.Deliverer); ok && !there && forwards && a.Refusal == fsm.None {
			there = d.Deliverable(fsm.WaitKey{Entity: src.entity, Sub: src.sub, Kind: fsm.WaitMessage})
		}
	})
	return there
}

// woken takes what an entry has woken; the proposer calls it and must not be held up.
func (m *mover) woken(keys []fsm.WaitKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range keys {
		src := source{k.Entity, k.Sub}
		_, forwards := m.sources[src]
		if k.Kind == fsm.WaitMessage && !k.HasSession && (forwards || k.Sub == fsm.TransferQueue) {
			m.kickLocked(src)
		}
	}
}

// kickLocked has a source looked at, now or as soon as there is a place.
func (m *mover) kickLocked(src source) {
	wake, running := m.tasks[src]
	switch {
	case m.ended:
	case running:
		select {
		case wake <- struct{}{}:
		default:
		}
	case len(m.tasks) >= maxForwarders:
		if _, waits := m.waits[src]; !waits {
			m.waits[src] = struct{}{}
			m.pending = append(m.pending, src)
		}
	default:
		wake = make(chan struct{}, 1)
		m.tasks[src] = wake
		m.sup.Go(func(context.Context) { m.forward(src, wake) })
	}
}

// forward runs the forwarder of one source until nothing is left or the leadership ends.
func (m *mover) forward(src source, wake chan struct{}) {
	for failures := 0; ; {
		f := &forwarder{src: src, epoch: m.epoch, rep: m.rep, dir: m.dir, wake: wake, crowded: m.crowded,
			targets: map[targetKey]*target{}}
		err := f.run(m.ctx)
		if errors.Is(err, errCrowded) {
			m.yield(src)
			return
		}
		if errors.Is(err, errNothing) {
			failures = 0
			if m.finished(src, wake) {
				return
			}
			continue
		}
		if epoch, ok := m.rep.Led(); m.ctx.Err() != nil || !ok || epoch != m.epoch {
			m.mu.Lock()
			delete(m.tasks, src)
			m.mu.Unlock()
			return
		}
		failures++
		m.rep.Log().Warn("forwarding pauses", "entity_id", uint64(src.entity), "subqueue", src.sub, "error", err)
		pause := movePause(failures)
		if errors.Is(err, fsm.ErrBusy) {
			pause, failures = sourcePause(), 0
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-m.ctx.Done():
			t.Stop()
		}
	}
}

// sourcePause is the pause after the partition of a source was busy. The busy partition is this node's own, so a request
// costs little. Clients ask again after whole seconds; a random pause does not meet them each time.
func sourcePause() time.Duration {
	return minSourcePause + rand.N(maxSourcePause-minSourcePause)
}

// finished ends the task of a source unless it was woken meanwhile, and begins one that waits for its
// place.
func (m *mover) finished(src source, wake chan struct{}) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-wake:
		return false
	default:
	}
	m.leaveLocked(src)
	return true
}

// leaveLocked gives the place of a source to the next one that waits.
func (m *mover) leaveLocked(src source) {
	delete(m.tasks, src)
	if len(m.pending) > 0 {
		next := m.pending[0]
		m.pending = m.pending[1:]
		delete(m.waits, next)
		m.kickLocked(next)
	}
}

// crowded reports whether a source waits for a place.
func (m *mover) crowded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pending) > 0
}

// yield has a source wait for its place again, behind all others.
func (m *mover) yield(src source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaveLocked(src)
	m.kickLocked(src)
}

// maxIdling bounds the idle entities that are looked at at a time. A source that is left out is named again.
const maxIdling = 16

// idle takes the entities whose share here has been idle for long enough.
func (m *mover) idle(ids []fsm.EntityID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if _, at := m.idling[id]; at || m.ended || len(m.idling) >= maxIdling {
			continue
		}
		m.idling[id] = struct{}{}
		m.sup.Go(func(context.Context) {
			ctx, cancel := context.WithTimeout(m.ctx, deleteTimeout)
			defer cancel()
			if err := m.dir.deleteIdle(ctx, id); err != nil && m.ctx.Err() == nil {
				m.rep.Log().Info("an idle entity was not deleted", "entity_id", uint64(id), "error", err)
			}
			m.mu.Lock()
			delete(m.idling, id)
			m.mu.Unlock()
		})
	}
}
