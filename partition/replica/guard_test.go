package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

var errStore = errors.New("input/output error")

// badStore fails every call that fails is set for.
type badStore struct {
	*raft.InmemStore
	err  error
	hide uint64 // GetLog does not find this entry
}

func (s *badStore) FirstIndex() (uint64, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.InmemStore.FirstIndex()
}

func (s *badStore) LastIndex() (uint64, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.InmemStore.LastIndex()
}

func (s *badStore) GetLog(i uint64, l *raft.Log) error {
	if s.err != nil {
		return s.err
	}
	if i == s.hide {
		return raft.ErrLogNotFound
	}
	return s.InmemStore.GetLog(i, l)
}

func (s *badStore) StoreLogs(l []*raft.Log) error {
	if s.err != nil {
		return s.err
	}
	return s.InmemStore.StoreLogs(l)
}

func (s *badStore) DeleteRange(a, b uint64) error {
	if s.err != nil {
		return s.err
	}
	return s.InmemStore.DeleteRange(a, b)
}

func (s *badStore) Set(k, v []byte) error {
	if s.err != nil {
		return s.err
	}
	return s.InmemStore.Set(k, v)
}

func (s *badStore) SetUint64(k []byte, v uint64) error {
	if s.err != nil {
		return s.err
	}
	return s.InmemStore.SetUint64(k, v)
}

func (s *badStore) Get(k []byte) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.InmemStore.Get(k)
}

func (s *badStore) GetUint64(k []byte) (uint64, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.InmemStore.GetUint64(k)
}

// TestGuardParksOnErrors: R3, no error of the disk returns to raft.
func TestGuardParksOnErrors(t *testing.T) {
	calls := map[string]func(*guard) error{
		"FirstIndex":  func(g *guard) error { _, err := g.FirstIndex(); return err },
		"LastIndex":   func(g *guard) error { _, err := g.LastIndex(); return err },
		"GetLog":      func(g *guard) error { return g.GetLog(1, new(raft.Log)) },
		"StoreLog":    func(g *guard) error { return g.StoreLog(&raft.Log{Index: 1}) },
		"DeleteRange": func(g *guard) error { return g.DeleteRange(1, 1) },
		"Set":         func(g *guard) error { return g.Set([]byte("k"), nil) },
		"SetUint64":   func(g *guard) error { return g.SetUint64([]byte("k"), 1) },
		"Get":         func(g *guard) error { _, err := g.Get([]byte("k")); return err },
		"GetUint64":   func(g *guard) error { _, err := g.GetUint64([]byte("k")); return err },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &badStore{InmemStore: raft.NewInmemStore(), err: errStore}
				var failed error
				g := newGuard(Stores{Log: s, Stable: s}, 1<<20, func(err error) { failed = err })
				if err := call(g); !errors.Is(err, errStore) {
					t.Errorf("while opening the error does not return: %v", err)
				}
				g.start()
				returned, ended := false, make(chan struct{})
				go func() {
					defer close(ended)
					_ = call(g)
					returned = true
				}()
				synctest.Wait()
				if !errors.Is(failed, errStore) {
					t.Errorf("replica is not failed: %v", failed)
				}
				select {
				case <-ended:
					t.Error("raft's goroutine is not parked")
				default:
				}
				g.end()
				<-ended
				if returned {
					t.Error("the call returned to raft")
				}
			})
		})
	}
}

func TestGuardTellsMissingFromLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &badStore{InmemStore: raft.NewInmemStore()}
		var failed error
		g := newGuard(Stores{Log: s, Stable: s}, 0, func(err error) { failed = err })
		g.start()
		if err := g.GetLog(1, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("empty log: %v", err)
		}
		for i := range uint64(5) {
			if err := g.StoreLog(&raft.Log{Index: i + 3}); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range []uint64{1, 2, 8} { // compacted, or not written yet: raft must be told
			if err := g.GetLog(i, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("entry %d: %v", i, err)
			}
		}
		if failed != nil {
			t.Fatalf("failed for nothing: %v", failed)
		}
		if _, err := g.Get([]byte("none")); err == nil || err.Error() != textNotFound {
			t.Errorf("missing key: %v", err)
		}
		s.hide = 5
		go func() { _ = g.GetLog(5, new(raft.Log)) }()
		synctest.Wait()
		if failed == nil {
			t.Error("an entry that is lost in the middle of the log is taken for compacted")
		}
		g.end()
	})
}

// hungStore is a log whose writes wait.
type hungStore struct {
	*raft.InmemStore
	gate chan struct{}
}

func (s hungStore) StoreLogs(l []*raft.Log) error {
	<-s.gate
	return s.InmemStore.StoreLogs(l)
}

func TestGuardKnowsItsOldestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hungStore{raft.NewInmemStore(), make(chan struct{})}
		g := newGuard(Stores{Log: s, Stable: s}, 0, func(error) {})
		done := make(chan error)
		go func() { done <- g.StoreLog(&raft.Log{Index: 1}) }()
		time.Sleep(7 * time.Second)
		if age := g.oldest(); age != 7*time.Second {
			t.Errorf("oldest call is %v old", age)
		}
		close(s.gate)
		if err := <-done; err != nil || g.oldest() != 0 {
			t.Errorf("after it: %v, %v", g.oldest(), err)
		}
	})
}

// TestLogCacheAgainstAModel drives the cache with what raft does to a log.
func TestLogCacheAgainstAModel(t *testing.T) {
	const limit = 4096
	rng := rand.New(rand.NewPCG(1, 2))
	c := newLogCache(limit)
	model := map[uint64]uint64{} // index to term
	var first, last uint64 = 1, 0
	for step := range 20000 {
		term := uint64(step)
		switch n := rng.IntN(10); {
		case n < 6:
			var logs []*raft.Log
			for range 1 + rng.IntN(4) {
				last++
				model[last] = term
				logs = append(logs, &raft.Log{Index: last, Term: term, Data: make([]byte, rng.IntN(900))})
			}
			c.add(logs)
		case n < 7 && last > first: // a conflicting tail goes
			from := first + uint64(rng.IntN(int(last-first+1)))
			c.drop(from, last)
			for i := from; i <= last; i++ {
				delete(model, i)
			}
			last = from - 1
		case n < 8 && last > first: // compaction
			to := first + uint64(rng.IntN(int(last-first)))
			c.drop(first, to)
			for i := first; i <= to; i++ {
				delete(model, i)
			}
			first = to + 1
		default:
			i := uint64(rng.IntN(int(last) + 3))
			var l raft.Log
			if c.get(i, &l) && (l.Index != i || model[i] != l.Term) {
				t.Fatalf("step %d: entry %d of term %d, model has %d", step, i, l.Term, model[i])
			}
		}
		if len(c.logs) > 1 && c.bytes > limit {
			t.Fatalf("step %d: %d bytes in %d entries", step, c.bytes, len(c.logs))
		}
		if len(c.logs) == 0 && c.bytes != 0 {
			t.Fatal(fmt.Sprint("step ", step, ": bytes of nothing: ", c.bytes))
		}
	}
	if last == 0 || len(model) == 0 {
		t.Fatal("the test tests nothing")
	}
}
