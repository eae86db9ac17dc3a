package fsm

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSparseIsAnOrderedTable compares it with a map that is sorted: keys that come in order and at random, go in order
// and at random until few are left, and every generation with what it was when the next began.
func TestSparseIsAnOrderedTable(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 0))
		x, gen, last := newSparse[uint32](1), uint64(1), rng.Uint64N(200)
		want := map[uint64]uint32{}
		type image struct {
			of   *sparse[uint32]
			want map[uint64]uint32
		}
		var images []image
		for i := range 6000 {
			v := uint32(i)
			growing := (i/400)%2 == 0
			switch op := rng.IntN(12); {
			case op < 6 && growing: // the next, sometimes far away
				if last++; rng.IntN(50) == 0 {
					last += rng.Uint64N(1000)
				}
				want[last] = v
				x.Set(last, v)
			case op < 8 && growing: // one that is there, or may be
				k := last - rng.Uint64N(min(last, 300)+1)
				want[k] = v
				x.Set(k, v)
			case op < 8 && len(want) > 0: // the first, or one that is somewhere
				k := slices.Min(slices.Collect(maps.Keys(want)))
				if op < 4 {
					keys := slices.Sorted(maps.Keys(want))
					k = keys[rng.IntN(len(keys))]
				}
				if got, ok := x.Delete(k); !ok || got != want[k] {
					t.Fatalf("seed %d, step %d: %d had %d, %v, want %d", seed, i, k, got, ok, want[k])
				}
				delete(want, k)
			default: // one that may not be there
				k := last + 100 - rng.Uint64N(min(last, 500)+101)
				w, has := want[k]
				if got, ok := x.Get(k); ok != has || got != w {
					t.Fatalf("seed %d, step %d: %d has %d, %v, want %d, %v", seed, i, k, got, ok, w, has)
				}
				if got, ok := x.Delete(k); ok != has || got != w {
					t.Fatalf("seed %d, step %d: %d had %d, %v, want %d, %v", seed, i, k, got, ok, w, has)
				}
				delete(want, k)
			}
			if rng.IntN(300) == 0 {
				sameSparse(t, x, want, last)
				images = append(images, image{x, maps.Clone(want)})
				gen++
				x = x.Copy(gen)
			}
		}
		images = append(images, image{x, want})
		for _, im := range images {
			sameSparse(t, im.of, im.want, last)
		}
	}
}

func sameSparse(t *testing.T, x *sparse[uint32], want map[uint64]uint32, last uint64) {
	t.Helper()
	sameTable(t, x, want, last)
	x.pages.Scan(func(number uint64, p *sparsePage[uint32]) bool {
		if n := len(p.values); n == 0 || cap(p.values) > 16*n {
			t.Fatalf("page %d has room for %d values and %d", number, cap(p.values), n)
		}
		return true
	})
}
