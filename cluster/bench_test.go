package cluster

import (
	"fmt"
	"io"
	"sync"
	"testing"
)

// BenchmarkRoundTrip is one call after the other: the latency that the mesh adds to a proposal.
func BenchmarkRoundTrip(b *testing.B) {
	for _, mode := range []string{"plain", "TLS"} {
		b.Run(mode, func(b *testing.B) {
			from, _ := benchDuo(b, mode == "TLS")
			request := make([]byte, 256)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := from.Call(b.Context(), "b", kindEcho, request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSmallCalls keeps many calls in flight: what coalescing is worth.
func BenchmarkSmallCalls(b *testing.B) {
	for _, callers := range []int{16, 256} {
		b.Run(fmt.Sprintf("%d callers", callers), func(b *testing.B) {
			from, _ := benchDuo(b, false)
			request := make([]byte, 256)
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					for n := b.N / callers * i; n < b.N/callers*(i+1); n++ {
						if _, err := from.Call(b.Context(), "b", kindEcho, request); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkStream is a snapshot on its way.
func BenchmarkStream(b *testing.B) {
	const size = 16 << 20
	from, _ := benchDuo(b, false)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := from.CallStream(b.Context(), "b", kindDrain, nil, io.LimitReader(ones{}, size)); err != nil {
			b.Fatal(err)
		}
	}
}

func benchDuo(b *testing.B, secure bool) (from, to *node) {
	b.Helper()
	var settings *TLS
	if secure {
		settings = newAuthority(b).tls(b)
	}
	from, to = duo(b, func(c *Config) { c.TLS = settings })
	if _, err := from.Call(b.Context(), "b", kindEcho, nil); err != nil {
		b.Fatal(err)
	}
	return from, to
}
