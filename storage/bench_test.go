package storage

import (
	"fmt"
	"io"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func benchBodies(b *testing.B) *Bodies {
	b.Helper()
	cfg := Defaults()
	bodies, err := openBodies(osFS{}, b.TempDir(), cfg, hclog.NewNullLogger())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = bodies.Close() })
	return bodies
}

// BenchmarkEntryOf64Messages is an entry of 64 messages of 1 KiB: put, each read once, each freed.
// behind is how many entries wait between the two ends of the queue.
func BenchmarkEntryOf64Messages(b *testing.B) {
	for _, behind := range []uint64{0, 2000} {
		b.Run(fmt.Sprintf("behind=%d", behind), func(b *testing.B) {
			bodies := benchBodies(b)
			entry := make([]byte, 64<<10)
			var spans []Span
			for i := range uint32(64) {
				spans = append(spans, Span{i << 10, 1<<10 - 30})
			}
			next := uint64(0)
			put := func() {
				next++
				if err := bodies.Put(next, entry, spans); err != nil {
					b.Fatal(err)
				}
			}
			for range behind {
				put()
			}
			b.SetBytes(int64(len(entry)))
			b.ReportAllocs()
			for b.Loop() {
				put()
				for i := range uint32(64) {
					if _, err := bodies.Read(next-behind, i<<10, 1<<10-30); err != nil {
						b.Fatal(err)
					}
					bodies.Free(next-behind, i<<10, 1<<10-30)
				}
			}
		})
	}
}

// BenchmarkPin is what stops the state machine while a snapshot is captured.
func BenchmarkPin(b *testing.B) {
	bodies := benchBodies(b)
	for i := range uint64(100_000) {
		if err := bodies.Put(i+1, make([]byte, 100), []Span{{0, 100}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := bodies.Pin().Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkManifest is a snapshot of 100,000 entries, synced segments included the first time.
func BenchmarkManifest(b *testing.B) {
	bodies := benchBodies(b)
	for i := range uint64(100_000) {
		if err := bodies.Put(i+1, make([]byte, 100), []Span{{0, 100}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		pin := bodies.Pin()
		if _, err := pin.WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
		if err := pin.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStoreLogs(b *testing.B) {
	for _, kind := range []string{LogWAL, LogBolt} {
		for _, size := range []int{1 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%d", kind, size), func(b *testing.B) {
				cfg := Defaults()
				cfg.Dir, cfg.Log = b.TempDir(), kind
				l, err := openLog(cfg.Dir, cfg, hclog.NewNullLogger())
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close() //nolint:errcheck // a benchmark
				data := make([]byte, size)
				index := uint64(0)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					index++
					if err := l.StoreLog(&raft.Log{Index: index, Term: 1, Data: data}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
