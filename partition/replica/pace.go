package replica

import (
	"slices"
	"sync"
	"time"
)

const (
	// paceSpan is the time over which writes are averaged, paceSpans is how many spans are remembered.
	paceSpan  = 10 * time.Second
	paceSpans = 12
	// paceWrites is how many writes a span must have to say something of the disk. A node at rest writes less.
	paceWrites = 8

	// slowWrite is the mean time of a write below which no disk is slow. A disk of the worst kind takes a third of it.
	slowWrite = 100 * time.Millisecond
	// slowTimes is by how much a slow disk is slower than that of the median node. Nodes on one machine that has much to
	// do are all slow, and then none is.
	slowTimes = 4
)

// SlowFrom returns the mean time of a write from which on a disk is slow, beside those of all nodes that told theirs.
func SlowFrom(means []time.Duration) time.Duration {
	if len(means) == 0 {
		return slowWrite
	}
	all := slices.Sorted(slices.Values(means))
	return max(slowWrite, slowTimes*all[(len(all)-1)/2])
}

// Pace is how fast the disk of a node takes what is written to logs. All replicas of the node tell it. The zero Pace knows
// nothing.
type Pace struct {
	mu    sync.Mutex
	began time.Time // of span 0
	spans [paceSpans]span
}

// span is what was written in one span.
type span struct {
	number int64
	writes int
	took   time.Duration // all of them
}

// note notes one write.
func (p *Pace) note(took time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	number := p.numberLocked()
	s := &p.spans[number%paceSpans]
	if s.number != number {
		*s = span{number: number}
	}
	s.writes++
	s.took += took
}

func (p *Pace) numberLocked() int64 {
	if p.began.IsZero() {
		p.began = time.Now()
	}
	return int64(time.Since(p.began) / paceSpan)
}

// Worst returns the mean time of a write in the slowest of the remembered spans, at least a nanosecond; 0 if none of them
// had enough writes.
func (p *Pace) Worst() (worst time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number := p.numberLocked()
	for _, s := range p.spans {
		if s.number > number-paceSpans && s.writes >= paceWrites {
			worst = max(worst, s.took/time.Duration(s.writes), 1)
		}
	}
	return worst
}
