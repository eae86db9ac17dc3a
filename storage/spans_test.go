package storage_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

func TestEntryLivesUntilItsLastBodyIsFreed(t *testing.T) {
	b := openReplica(t, faultfs.New(), smallConfig()).Bodies
	entry, spans := pieces(1, 3, 30)
	if err := b.Put(1, entry, spans); err != nil {
		t.Fatal(err)
	}
	b.Free(1, spans[1].Offset, 30)
	b.Free(1, 0, 0)
	wantSpan(t, b, 1, entry, spans[0])
	if s := b.Stats(); s.Dead != 1 || s.LiveBytes != 20+4+2*(8+30) || s.HeldBytes != 20+4+3*(8+30) {
		t.Fatalf("stats with one of three freed: %+v", s)
	}
	b.Free(1, spans[2].Offset, 30)
	wantSpan(t, b, 1, entry, spans[0])
	b.Free(1, spans[0].Offset, 30)
	if _, err := b.Read(1, spans[0].Offset, 1); !errors.Is(err, storage.ErrNoBody) {
		t.Fatalf("got %v, want ErrNoBody", err)
	}
	if s := b.Stats(); s.Entries != 0 || s.LiveBytes != 0 || s.Freed != 1 || s.OverFreed != 0 || s.Dead != 0 {
		t.Fatalf("stats %+v", s)
	}
}

func TestFreeingWhatDoesNotLiveChangesNothing(t *testing.T) {
	entry, spans := pieces(1, 4, 30)
	tests := []struct {
		name           string
		index          uint64
		offset, length uint32
	}{
		{"an entry that was never put", 2, 5, 30},
		{"a body twice", 1, spans[0].Offset, 30},
		{"more than is left", 1, spans[1].Offset, 30*3 + 8*2 + 1},
		{"a length that overflows", 1, spans[1].Offset, 1<<32 - 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := openReplica(t, faultfs.New(), smallConfig()).Bodies
			if err := b.Put(1, entry, spans); err != nil {
				t.Fatal(err)
			}
			b.Free(1, spans[0].Offset, 30)
			before := b.Stats()
			b.Free(tt.index, tt.offset, tt.length)
			before.OverFreed++
			if s := b.Stats(); s != before {
				t.Fatalf("stats %+v, want %+v", s, before)
			}
			wantSpan(t, b, 1, entry, spans[1])
		})
	}
}

func TestPutTakesNoImpossibleBodies(t *testing.T) {
	b := openReplica(t, faultfs.New(), smallConfig()).Bodies
	for name, spans := range map[string][]storage.Span{
		"none":                  nil,
		"an empty one":          {{Offset: 3}},
		"one beyond the end":    {{Offset: 95, Length: 6}},
		"overlapping":           {{Offset: 0, Length: 10}, {Offset: 9, Length: 3}},
		"out of order":          {{Offset: 50, Length: 10}, {Offset: 9, Length: 3}},
		"an end that overflows": {{Offset: 1<<32 - 1, Length: 1<<32 - 1}},
	} {
		if err := b.Put(1, make([]byte, 100), spans); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	mustPut(t, b, 1, []byte("x"))
}

// One message of 64 lives on in each entry, as in a dead-letter queue: what the others took comes
// back, after a restart and in an install stream too.
func TestDiskIsBoundedByWhatLives(t *testing.T) {
	fsys := faultfs.New()
	cfg := smallConfig()
	cfg.BodyCacheBytes = 0
	cfg.RetainSnapshots = 1
	r := openReplica(t, fsys, cfg)
	const entries, each, size = 300, 16, 50
	left := func(i uint64) int { return int(i % each) }
	for i := uint64(1); i <= entries; i++ {
		entry, spans := pieces(i, each, size)
		if err := r.Bodies.Put(i, entry, spans); err != nil {
			t.Fatal(err)
		}
		if i == entries/2 { // some of it is frozen half way
			if err := takeSnapshot(r, i); err != nil {
				t.Fatal(err)
			}
		}
		for k, s := range spans {
			if k != left(i) {
				r.Bodies.Free(i, s.Offset, s.Length)
			}
		}
	}
	r.Bodies.SweepAll()
	check := func(b *storage.Bodies) {
		t.Helper()
		for i := uint64(1); i <= entries; i++ {
			entry, spans := pieces(i, each, size)
			wantSpan(t, b, i, entry, spans[left(i)])
		}
		if s := b.Stats(); s.LiveBytes != entries*(20+4+8+size) || s.OverFreed != 0 {
			t.Fatalf("stats %+v", s)
		}
	}
	check(r.Bodies)
	if err := takeSnapshot(r, entries+1); err != nil {
		t.Fatal(err)
	}
	r.Bodies.SweepAll()
	s := r.Bodies.Stats()
	const slack = (4 + 2) * 4096 // segments of waste that are left alone, and free ones
	if limit := 2*s.LiveBytes + slack; s.DiskBytes > limit || s.Compacted == 0 {
		t.Fatalf("%d bytes on disk for %d that live: %+v", s.DiskBytes, s.LiveBytes, s)
	}
	if s.Dead*(8+size) > s.DiskBytes/2+slack {
		t.Fatalf("%d freed bodies are remembered, %d bytes on disk", s.Dead, s.DiskBytes)
	}

	after := openReplica(t, fsys.Crash(nil), cfg)
	if _, err := restoreNewest(after); err != nil {
		t.Fatal(err)
	}
	check(after.Bodies)

	metas, _ := after.Snapshots.List()
	meta, rc, err := after.Snapshots.Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := io.ReadAll(rc)
	if err != nil || int64(len(stream)) != meta.Size {
		t.Fatalf("stream of %d bytes, size %d: %v", len(stream), meta.Size, err)
	}
	peer := openReplica(t, faultfs.New(), cfg)
	if err := peer.Bodies.Restore(bytes.NewReader(stream[len(image):])); err != nil {
		t.Fatal(err)
	}
	check(peer.Bodies)
}

// A queue that is drained in order costs no copying.
func TestDrainingInOrderMovesNothing(t *testing.T) {
	b := openReplica(t, faultfs.New(), smallConfig()).Bodies
	const entries, each, size = 200, 16, 50
	for i := uint64(1); i <= entries; i++ {
		entry, spans := pieces(i, each, size)
		if err := b.Put(i, entry, spans); err != nil {
			t.Fatal(err)
		}
	}
	_, spans := pieces(1, each, size)
	for i := uint64(1); i <= entries; i++ {
		for _, s := range spans {
			b.Free(i, s.Offset, s.Length)
		}
		b.SweepAll()
	}
	if s := b.Stats(); s.CompactedBytes != 0 || s.Entries != 0 || s.LiveBytes != 0 || s.HeldBytes != 0 {
		t.Fatalf("stats %+v", s)
	}
}
