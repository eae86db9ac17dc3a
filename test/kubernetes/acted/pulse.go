package acted

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// pulse counts what clients did over time.
type pulse struct {
	mu    sync.Mutex
	began time.Time
	// origin is what the times in its text count from.
	origin time.Time
	beats  []int // by tenth of a second since it began
}

const tenth = 100 * time.Millisecond

func newPulse(origin time.Time) *pulse { return &pulse{began: time.Now(), origin: origin} }

// beat counts one operation that succeeded.
func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := int(time.Since(p.began) / tenth)
	for len(p.beats) <= at {
		p.beats = append(p.beats, 0)
	}
	p.beats[at]++
}

// String tells the rate: the median of all seconds, the lowest one, and how long it was below half of the median at most. It
// lists when that was longer than a second.
func (p *pulse) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	const second = int(time.Second / tenth)
	if len(p.beats) < 2*second {
		return "no rate"
	}
	var rates []int // of the second that ends with each tenth
	sum := 0
	for i, n := range p.beats[:len(p.beats)-1] {
		sum += n
		if i >= second {
			sum -= p.beats[i-second]
		}
		if i >= second-1 {
			rates = append(rates, sum)
		}
	}
	median := slices.Sorted(slices.Values(rates))[len(rates)/2]
	run, longest, end := 0, 0, 0
	at := func(i int) time.Duration { return time.Duration(i) * tenth }
	var lulls []string // that are longer than a second
	for i, r := range append(rates, median) {
		if 2*r < median {
			run++
			continue
		}
		if run > longest {
			longest, end = run, i
		}
		if run > second {
			lulls = append(lulls, fmt.Sprintf("%s from %s on", at(run), p.began.Sub(p.origin).Truncate(tenth)+at(i-run+second/2)))
		}
		run = 0
	}
	return fmt.Sprintf("%d operations a second in the median, %d in the lowest; below half for %s at most, at %s; for more than a "+
		"second: %v", median, slices.Min(rates), at(longest), p.began.Sub(p.origin).Truncate(tenth)+at(end), lulls)
}
