package replica

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// guard stands between raft and a replica's stores. Raft forgets entries when a write of them reports an error while
// the disk may have kept them. It loses acknowledged writes after the next restart (R3); it panics when a read fails.
// So an error of the disk never returns to raft. The replica is failed, and the calling goroutine is parked and ends
// when the replica closes.
type guard struct {
	log     raft.LogStore
	stable  raft.StableStore
	cache   *logCache
	pace    *Pace               // told how long writes of the log take; nil for nobody
	onSync  func(time.Duration) // told the same; nil for nobody
	writing func(last uint64)   // told before entries are written; nil for nobody
	fail    func(error)         // marks the replica failed; called at most a few times, must not block

	mu    sync.Mutex
	live  bool                 // raft runs: errors park from now on
	calls map[uint64]time.Time // start of every store call under way
	next  uint64

	endOnce sync.Once
	ended   chan struct{} // the replica closes: parked goroutines end
}

var (
	_ raft.LogStore          = (*guard)(nil)
	_ raft.MonotonicLogStore = (*guard)(nil)
	_ raft.StableStore       = (*guard)(nil)
)

// textNotFound is how a raft.StableStore says that a key has no value.
const textNotFound = "not found"

// by text: raft defines no error for this, and compares the text itself.
func notFound(err error) bool { return err.Error() == textNotFound }

func newGuard(s Stores, cacheBytes int, fail func(error)) *guard {
	return &guard{
		log: s.Log, stable: s.Stable, cache: newLogCache(cacheBytes), fail: fail,
		calls: map[uint64]time.Time{}, ended: make(chan struct{}),
	}
}

// start says that raft's goroutines run from now on; before, errors return to the opener.
func (g *guard) start() {
	g.mu.Lock()
	g.live = true
	g.mu.Unlock()
}

// end lets parked goroutines end. Raft must have been told to shut down before.
func (g *guard) end() { g.endOnce.Do(func() { close(g.ended) }) }

// halt fails the replica and does not return to raft. Ending the goroutine runs its deferred calls,
// so raft's own accounting of goroutines and futures comes out right.
func (g *guard) halt(err error) error {
	g.mu.Lock()
	live := g.live
	g.mu.Unlock()
	if !live {
		return err
	}
	g.fail(err)
	<-g.ended
	runtime.Goexit()
	return err
}

// unreadable fails the replica if raft runs; whoever met the error gets it, too.
func (g *guard) unreadable(err error) {
	g.mu.Lock()
	live := g.live
	g.mu.Unlock()
	select {
	case <-g.ended: // the stores may be closed by now
	default:
		if live {
			g.fail(err)
		}
	}
}

// begin notes a store call; the returned function ends it.
func (g *guard) begin() func() {
	g.mu.Lock()
	id := g.next
	g.next++
	g.calls[id] = time.Now()
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		delete(g.calls, id)
		g.mu.Unlock()
	}
}

// oldest returns the age of the oldest store call under way, 0 if there is none (R1). Ages are of
// the monotonic clock.
func (g *guard) oldest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	var age time.Duration
	for _, at := range g.calls {
		age = max(age, time.Since(at))
	}
	return age
}

// FirstIndex implements raft.LogStore.
func (g *guard) FirstIndex() (uint64, error) {
	n, err := g.log.FirstIndex()
	if err != nil {
		return 0, g.halt(fmt.Errorf("read first log index: %w", err))
	}
	return n, nil
}

// LastIndex implements raft.LogStore.
func (g *guard) LastIndex() (uint64, error) {
	n, err := g.log.LastIndex()
	if err != nil {
		return 0, g.halt(fmt.Errorf("read last log index: %w", err))
	}
	return n, nil
}

// GetLog implements raft.LogStore. An entry that lies between the first and the last and is not
// found is a damaged log.
func (g *guard) GetLog(index uint64, out *raft.Log) error {
	if g.cache.get(index, out) {
		return nil
	}
	end := g.begin()
	err := g.log.GetLog(index, out)
	end()
	if err == nil {
		if out.Index != index {
			return g.halt(fmt.Errorf("read log entry %d: store returned entry %d", index, out.Index))
		}
		return nil
	}
	if !errors.Is(err, raft.ErrLogNotFound) {
		return g.halt(fmt.Errorf("read log entry %d: %w", index, err))
	}
	first, err := g.FirstIndex()
	if err != nil {
		return err
	}
	last, err := g.LastIndex()
	if err != nil {
		return err
	}
	if first != 0 && first <= index && index <= last {
		return g.halt(fmt.Errorf("log entry %d is missing between %d and %d", index, first, last))
	}
	return raft.ErrLogNotFound
}

// StoreLog implements raft.LogStore.
func (g *guard) StoreLog(log *raft.Log) error { return g.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (g *guard) StoreLogs(logs []*raft.Log) error {
	if g.writing != nil && len(logs) > 0 {
		g.writing(logs[len(logs)-1].Index)
	}
	end, began := g.begin(), time.Now()
	err := g.log.StoreLogs(logs)
	end()
	took := time.Since(began)
	g.pace.note(took)
	if g.onSync != nil {
		g.onSync(took)
	}
	if err != nil {
		return g.halt(fmt.Errorf("write %d log entries: %w", len(logs), err))
	}
	g.cache.add(logs)
	return nil
}

// DeleteRange implements raft.LogStore.
func (g *guard) DeleteRange(from, to uint64) error {
	g.cache.drop(from, to)
	end := g.begin()
	err := g.log.DeleteRange(from, to)
	end()
	if err != nil {
		return g.halt(fmt.Errorf("delete log entries %d to %d: %w", from, to, err))
	}
	return nil
}

// IsMonotonic implements raft.MonotonicLogStore: raft must know that the store underneath refuses
// gaps.
func (g *guard) IsMonotonic() bool {
	m, ok := g.log.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// Set implements raft.StableStore.
func (g *guard) Set(key, val []byte) error {
	end := g.begin()
	err := g.stable.Set(key, val)
	end()
	if err != nil {
		return g.halt(fmt.Errorf("write %s: %w", key, err))
	}
	return nil
}

// SetUint64 implements raft.StableStore.
func (g *guard) SetUint64(key []byte, val uint64) error {
	end := g.begin()
	err := g.stable.SetUint64(key, val)
	end()
	if err != nil {
		return g.halt(fmt.Errorf("write %s: %w", key, err))
	}
	return nil
}

// Get implements raft.StableStore.
func (g *guard) Get(key []byte) ([]byte, error) {
	v, err := g.stable.Get(key)
	if err != nil && !notFound(err) {
		return nil, g.halt(fmt.Errorf("read %s: %w", key, err))
	}
	return v, err
}

// GetUint64 implements raft.StableStore.
func (g *guard) GetUint64(key []byte) (uint64, error) {
	v, err := g.stable.GetUint64(key)
	if err != nil && !notFound(err) {
		return 0, g.halt(fmt.Errorf("read %s: %w", key, err))
	}
	return v, err
}
