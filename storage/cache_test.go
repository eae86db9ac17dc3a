package storage_test

import (
	"testing"

	"github.com/busbar-mq/busbar/storage/faultfs"
)

// A9: what nobody reads is not kept in memory, as on a follower; the first who reads is given it from
// the disk, and what comes then is kept again.
func TestBodiesAreKeptInMemoryWhereSomebodyReads(t *testing.T) {
	cfg := smallConfig()
	cfg.BodySegmentBytes, cfg.BodyCacheBytes = 64<<10, 1<<20
	b := openReplica(t, faultfs.New(), cfg).Bodies
	index := uint64(0)
	put := func(n int) {
		for range n {
			index++
			mustPut(t, b, index, bytesOf(index, 50))
		}
	}
	read := func(index, hits, misses uint64) {
		t.Helper()
		before := b.Stats()
		wantBody(t, b, index, bytesOf(index, 50))
		after := b.Stats()
		if h, m := after.CacheHits-before.CacheHits, after.CacheMiss-before.CacheMiss; h != hits || m != misses {
			t.Errorf("entry %d of %d: %d hits, %d misses, want %d and %d", index, b.Stats().Puts, h, m, hits, misses)
		}
	}
	put(200)
	read(200, 1, 0)
	put(256) // the last that are kept before somebody must read
	put(100)
	read(456, 1, 0)
	put(300) // 256 of which are kept
	read(457, 0, 1)
	read(712, 1, 0)
	put(1)
	read(757, 1, 0)
	put(256)
	put(1000)
	read(2013, 0, 1)
	for i := range index {
		wantBody(t, b, i+1, bytesOf(i+1, 50))
	}
}
