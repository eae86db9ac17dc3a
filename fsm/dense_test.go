package fsm

import (
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDenseIsAnOrderedTable compares it with a map that is sorted: keys that come in order, with gaps and
// again, and go in order, at random or all, and every generation with what it was when the next began.
func TestDenseIsAnOrderedTable(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 0))
		x, gen, last := newDense[uint32](1), uint64(1), rng.Uint64N(200)
		want := map[uint64]uint32{}
		type image struct {
			of   *dense[uint32]
			want map[uint64]uint32
		}
		var images []image
		for i := range 6000 {
			v := uint32(i)
			switch op := rng.IntN(12); {
			case op < 6: // the next, sometimes far away
				if last++; rng.IntN(50) == 0 {
					last += rng.Uint64N(1000)
				}
				want[last] = v
				x.Set(last, v)
			case op < 7: // one that was there, or may have been
				k := rng.Uint64N(last + 1)
				want[k] = v
				x.Set(k, v)
			case op < 8 || op == 8 && (i/700)%3 == 1:
				k, got, ok := x.PopMin()
				if w, has := want[k]; ok != (len(want) > 0) || ok && (!has || w != got) {
					t.Fatalf("seed %d, step %d: the first is %d with %d, %v", seed, i, k, got, ok)
				}
				for other := range want {
					if other < k {
						t.Fatalf("seed %d, step %d: the first is %d, there is %d", seed, i, k, other)
					}
				}
				delete(want, k)
			default:
				k := last - rng.Uint64N(min(last, uint64(1+(i%700)*3))+1)
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
				sameDense(t, x, want, last)
				images = append(images, image{x, maps.Clone(want)})
				gen++
				x = x.Copy(gen)
			}
		}
		images = append(images, image{x, want})
		for _, im := range images {
			sameDense(t, im.of, im.want, last)
		}
	}
}

// ordered is a table of values in the order of their keys.
type ordered interface {
	Len() int
	Ascend(from uint64, f func(key uint64, v uint32) bool)
}

// sameTable fails if a table does not have what is wanted, in the order of the keys and from each of some keys on.
func sameTable(t *testing.T, x ordered, want map[uint64]uint32, last uint64) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	if x.Len() != len(keys) {
		t.Fatalf("%d values, want %d", x.Len(), len(keys))
	}
	for _, from := range []uint64{0, last / 3, last / 2, last, last + 1} {
		at, _ := slices.BinarySearch(keys, from)
		most := max(1, (len(keys)-at)/2)
		var half, all []uint64
		x.Ascend(from, func(k uint64, v uint32) bool {
			if v != want[k] {
				t.Fatalf("%d has %d, want %d", k, v, want[k])
			}
			all = append(all, k)
			return true
		})
		x.Ascend(from, func(k uint64, _ uint32) bool {
			half = append(half, k)
			return len(half) < most
		})
		if !slices.Equal(all, keys[at:]) || !slices.Equal(half, all[:min(most, len(all))]) {
			t.Fatalf("from %d: %d keys and %d of them, want %d", from, len(all), len(half), len(keys)-at)
		}
	}
}

func sameDense(t *testing.T, x *dense[uint32], want map[uint64]uint32, last uint64) {
	t.Helper()
	sameTable(t, x, want, last)
	x.pages.Scan(func(number uint64, p *densePage[uint32]) bool {
		if n := bits.OnesCount64(p.used); n <= denseFew && number != x.tail {
			t.Fatalf("page %d of %d has %d values", number, x.tail, n)
		}
		return true
	})
}
