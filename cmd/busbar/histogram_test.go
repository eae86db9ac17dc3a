package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// A histogram says of the same times what one of the library says.
func TestAHistogramCountsAsTheLibrary(t *testing.T) {
	const seed = 7
	for name, times := range map[string]func(*rand.Rand) time.Duration{
		"of all sizes": func(rng *rand.Rand) time.Duration {
			return time.Duration(float64(2*time.Microsecond) * math.Exp2(36*rng.Float64())) // up to 38 hours, which is beyond the last bucket
		},
		"far apart": func(rng *rand.Rand) time.Duration { return time.Duration(1+rng.IntN(3)) * 7 * time.Second },
		"at the ends of buckets": func(rng *rand.Rand) time.Duration {
			return []time.Duration{time.Second / 2, time.Second, 5 * time.Millisecond, 10 * time.Second}[rng.IntN(4)]
		},
	} {
		rng := rand.New(rand.NewPCG(seed, seed))
		ours := newHistogram("x_seconds", "Help.", timingBuckets(60, 3600))
		theirs := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x_seconds", Help: "Help.", Buckets: timingBuckets(60, 3600),
			NativeHistogramBucketFactor: 1.2, NativeHistogramZeroThreshold: nativeZero})
		for range 5_000 {
			d := min(times(rng), 36*time.Hour) // 2 to the power of 17 seconds are 36.4 hours
			ours.observe(d)
			theirs.Observe(d.Seconds())
		}
		got, want := written(t, ours), written(t, theirs)
		if math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6*want.GetSampleSum() {
			t.Errorf("%s: the sum is %v, want %v", name, got.GetSampleSum(), want.GetSampleSum())
		}
		if !slices.Equal(native(got), native(want)) {
			t.Errorf("%s: native buckets %v, want %v", name, native(got), native(want))
		}
		for _, h := range []*dto.Histogram{got, want} {
			h.SampleSum, h.CreatedTimestamp, h.PositiveSpan, h.PositiveDelta = nil, nil, nil, nil
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s:\n%v, want\n%v", name, got, want)
		}
	}
}

type nativeCount struct {
	key   int
	count int64
}

// native lists the buckets that have something.
func native(h *dto.Histogram) (all []nativeCount) {
	key, count, at := 0, int64(0), 0
	for _, s := range h.GetPositiveSpan() {
		key += int(s.GetOffset())
		for range s.GetLength() {
			count += h.GetPositiveDelta()[at]
			if at++; count != 0 {
				all = append(all, nativeCount{key, count})
			}
			key++
		}
	}
	return all
}

func written(t *testing.T, m prometheus.Metric) *dto.Histogram {
	t.Helper()
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		t.Fatal(err)
	}
	return d.GetHistogram()
}

// What has no time, or too much of it, counts at the ends. An empty histogram is a native one, too.
func TestTheEndsOfAHistogram(t *testing.T) {
	h := newHistogram("x_seconds", "Help.", timingBuckets())
	if empty := written(t, h); empty.GetSampleCount() != 0 || len(empty.GetPositiveSpan()) != 1 || len(native(empty)) != 0 {
		t.Errorf("empty: %v", empty)
	}
	for _, d := range []time.Duration{-time.Hour, 0, time.Nanosecond, 953 * time.Nanosecond, 954 * time.Nanosecond, 1000 * time.Hour, math.MaxInt64} {
		h.observe(d)
	}
	got := written(t, h)
	if got.GetZeroCount() != 4 || !slices.Equal(native(got), []nativeCount{{nativeFirst, 1}, {nativeLast, 2}}) || got.GetSampleCount() != 7 || got.GetSampleSum() < 9e9 ||
		got.GetBucket()[0].GetCumulativeCount() != 5 || got.GetBucket()[len(got.GetBucket())-1].GetCumulativeCount() != 5 {
		t.Errorf("%v", got)
	}
}

// While times are counted, an answer never has more in a bucket than there are.
func TestAHistogramIsReadWhileItCounts(t *testing.T) {
	h := newHistogram("x_seconds", "Help.", timingBuckets())
	var counting sync.WaitGroup
	const each = 20_000
	for range 4 {
		counting.Go(func() {
			for i := range each {
				h.observe(time.Duration(i) * time.Microsecond)
			}
		})
	}
	for range 200 {
		got := written(t, h)
		total := int64(got.GetZeroCount())
		for _, b := range native(got) {
			total += b.count
		}
		if total != int64(got.GetSampleCount()) {
			t.Fatalf("%d in the buckets, and %d in all", total, got.GetSampleCount())
		}
		last := uint64(0)
		for _, b := range got.GetBucket() {
			if b.GetCumulativeCount() < last || b.GetCumulativeCount() > got.GetSampleCount() {
				t.Fatalf("%d up to %v, %d before and %d in all", b.GetCumulativeCount(), b.GetUpperBound(), last, got.GetSampleCount())
			}
			last = b.GetCumulativeCount()
		}
	}
	counting.Wait()
	if n := written(t, h).GetSampleCount(); n != 4*each {
		t.Errorf("%d, want %d", n, 4*each)
	}
}
