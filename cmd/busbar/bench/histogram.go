package bench

import (
	"math/bits"
	"sync"
	"time"
)

// histogram counts durations in buckets that grow with the value. Each power of two of nanoseconds is cut into 64, so
// a percentile is at most 1.6 % above the truth. It holds any duration.
type histogram struct {
	mu     sync.Mutex
	counts [histogramBuckets]uint64
	total  uint64
	sum    time.Duration
	max    time.Duration
}

const (
	histogramBits    = 6 // of a value that a bucket keeps
	histogramBuckets = (64 - histogramBits) << histogramBits
)

func bucketOf(v uint64) int {
	shift := max(bits.Len64(v)-histogramBits-1, 0)
	return shift<<histogramBits + int(v>>shift)
}

// bucketTop returns the largest value of a bucket.
func bucketTop(i int) uint64 {
	if i < 2<<histogramBits {
		return uint64(i)
	}
	shift := i>>histogramBits - 1
	return uint64(i-shift<<histogramBits+1)<<shift - 1
}

// record counts d; a negative one, from a clock that was set, counts as 0.
func (h *histogram) record(d time.Duration) {
	d = max(d, 0)
	h.mu.Lock()
	h.counts[bucketOf(uint64(d))]++
	h.total++
	h.sum += d
	h.max = max(h.max, d)
	h.mu.Unlock()
}

// add counts what o counted. o must not be recorded to any more.
func (h *histogram) add(o *histogram) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
	h.sum += o.sum
	h.max = max(h.max, o.max)
}

// percentile returns the value that p percent of the recorded ones do not exceed, 0 if there is none.
func (h *histogram) percentile(p float64) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.total == 0 {
		return 0
	}
	rank := max(uint64(p/100*float64(h.total)+0.5), 1)
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			return min(time.Duration(bucketTop(i)), h.max)
		}
	}
	return h.max
}

// spread is a histogram in the words of a report, in milliseconds.
type spread struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"meanMs"`
	P50   float64 `json:"p50Ms"`
	P90   float64 `json:"p90Ms"`
	P99   float64 `json:"p99Ms"`
	P999  float64 `json:"p999Ms"`
	Max   float64 `json:"maxMs"`
}

func (h *histogram) spread() *spread {
	if h.total == 0 {
		return nil
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return &spread{Count: h.total, Mean: ms(h.sum / time.Duration(h.total)),
		P50: ms(h.percentile(50)), P90: ms(h.percentile(90)), P99: ms(h.percentile(99)),
		P999: ms(h.percentile(99.9)), Max: ms(h.max)}
}
