package storage_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

// TestBodiesAgainstModel does random things to Bodies and to a map, with crashes: what is in the map
// is in Bodies, and after a crash what the newest snapshot had, and the entries put again above it.
func TestBodiesAgainstModel(t *testing.T) {
	blocks := smallConfig() // runs are whole blocks
	blocks.BodySegmentBytes, blocks.BodyCacheBytes = 128<<10, 512<<10
	t.Run("little memory", func(t *testing.T) { againstModel(t, faultfs.New(), smallConfig(), 900, 6000) })
	t.Run("runs of blocks", func(t *testing.T) { againstModel(t, faultfs.New(), blocks, 6000, 4000) })
	t.Run("past the page cache", func(t *testing.T) {
		blocks.Dir = t.TempDir()
		againstModel(t, storage.OS, blocks, 6000, 1500)
	})
}

// againstModel puts entries of up to most bytes, and now and then a larger one.
func againstModel(t *testing.T, fsys storage.FS, cfg storage.Config, most, steps int) {
	rng := newRand(t)
	r := openReplica(t, fsys, cfg)
	m := &model{live: map[uint64]modelEntry{}}
	for step := range steps {
		switch p := rng.IntN(1000); {
		case p < 350:
			size := 1 + rng.IntN(most)
			if rng.IntN(40) == 0 {
				size = 5 * most // more than a run
			}
			m.put(t, rng, r.Bodies, bytesOf(rng.Uint64(), size))
		case p < 700:
			m.free(t, rng, r.Bodies)
		case p < 985:
			m.read(t, rng, r.Bodies)
		case p < 992:
			r.Bodies.SweepAll()
		case p < 997:
			m.snapshot(t, r)
		default:
			if f, ok := fsys.(*faultfs.FS); ok && rng.IntN(2) == 0 {
				fsys = f.Crash(rng)
			} else if err := r.Bodies.Close(); err != nil {
				t.Fatal(err)
			}
			r = m.restart(t, openReplica(t, fsys, cfg))
		}
		if step%500 == 0 {
			m.readAll(t, r.Bodies)
		}
	}
	m.readAll(t, r.Bodies)
	s := r.Bodies.Stats()
	var live uint64
	for _, e := range m.live {
		live += 20 + 4
		for _, s := range e.spans {
			live += 8 + uint64(s.Length)
		}
	}
	if s.Entries != uint64(len(m.live)) || s.LiveBytes != live || s.OverFreed != 0 {
		t.Fatalf("stats %+v, want %d entries, %d live", s, len(m.live), live)
	}
	for index, e := range m.live {
		for _, s := range e.spans {
			r.Bodies.Free(index, s.Offset, s.Length)
		}
	}
	if s := r.Bodies.Stats(); s.HeldBytes != 0 || s.LiveBytes != 0 || s.Dead != 0 {
		t.Fatalf("something is left: %+v", s)
	}
}

type modelEntry struct {
	bytes []byte
	spans []storage.Span // those that live; never changed in place
}

// model is what Bodies should hold, and what it did since the last snapshot.
type model struct {
	next  uint64
	live  map[uint64]modelEntry
	saved map[uint64]modelEntry // as of the last snapshot
	since []func(b *storage.Bodies) error
}

func (m *model) do(t *testing.T, b *storage.Bodies, f func(*storage.Bodies) error) {
	t.Helper()
	if err := f(b); err != nil {
		t.Fatal(err)
	}
	m.since = append(m.since, f)
}

func (m *model) put(t *testing.T, rng *rand.Rand, b *storage.Bodies, entry []byte) {
	t.Helper()
	m.next++
	index := m.next
	var spans []storage.Span
	for at := 0; at < len(entry) && len(spans) < 20; {
		n := 1 + rng.IntN(len(entry)-at)
		spans = append(spans, storage.Span{Offset: uint32(at), Length: uint32(n)})
		at += n + rng.IntN(10)
	}
	m.live[index] = modelEntry{entry, spans}
	m.do(t, b, func(b *storage.Bodies) error { return b.Put(index, entry, spans) })
}

func (m *model) pick(rng *rand.Rand) (uint64, bool) {
	if len(m.live) == 0 {
		return 0, false
	}
	indexes := make([]uint64, 0, len(m.live))
	for index := range m.live {
		indexes = append(indexes, index)
	}
	slices.Sort(indexes)
	return indexes[rng.IntN(len(indexes))], true
}

func (m *model) free(t *testing.T, rng *rand.Rand, b *storage.Bodies) {
	t.Helper()
	index, ok := m.pick(rng)
	if !ok {
		return
	}
	e := m.live[index]
	n := 1
	if rng.IntN(3) == 0 {
		n = len(e.spans)
	}
	for range n {
		k := rng.IntN(len(e.spans))
		gone := e.spans[k]
		e.spans = slices.Delete(slices.Clone(e.spans), k, k+1)
		m.do(t, b, func(b *storage.Bodies) error { b.Free(index, gone.Offset, gone.Length); return nil })
	}
	if len(e.spans) == 0 {
		delete(m.live, index)
	} else {
		m.live[index] = e
	}
}

func (m *model) read(t *testing.T, rng *rand.Rand, b *storage.Bodies) {
	t.Helper()
	index, ok := m.pick(rng)
	if !ok {
		return
	}
	e := m.live[index]
	s := e.spans[rng.IntN(len(e.spans))]
	from := rng.IntN(int(s.Length))
	s.Offset, s.Length = s.Offset+uint32(from), uint32(rng.IntN(int(s.Length)-from+1))
	wantSpan(t, b, index, e.bytes, s)
}

func (m *model) readAll(t *testing.T, b *storage.Bodies) {
	t.Helper()
	for index, e := range m.live {
		for _, s := range e.spans {
			wantSpan(t, b, index, e.bytes, s)
		}
	}
}

func (m *model) snapshot(t *testing.T, r *storage.Replica) {
	t.Helper()
	m.next++ // so that no two snapshots have the same index
	if err := takeSnapshot(r, m.next); err != nil {
		t.Fatal(err)
	}
	m.saved, m.since = map[uint64]modelEntry{}, nil
	for index, e := range m.live {
		m.saved[index] = e
	}
}

// restart restores the newest snapshot and replays what came after it, as raft does.
func (m *model) restart(t *testing.T, r *storage.Replica) *storage.Replica {
	t.Helper()
	index, err := restoreNewest(r)
	if err != nil {
		t.Fatal(err)
	}
	if (index == 0) != (m.saved == nil) {
		t.Fatalf("restored index %d", index)
	}
	for i, e := range m.saved {
		for _, s := range e.spans {
			wantSpan(t, r.Bodies, i, e.bytes, s)
		}
	}
	for _, f := range m.since {
		if err := f(r.Bodies); err != nil {
			t.Fatal(err)
		}
	}
	m.readAll(t, r.Bodies)
	return r
}
