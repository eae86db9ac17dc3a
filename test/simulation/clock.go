package simulation

import (
	"sync"
	"time"
)

// clock is a node's: it is set to wrong dates, and runs fast or slow. It starts anew with its process.
type clock struct {
	mu     sync.Mutex
	offset time.Duration // of the date
	rate   float64       // of passing time
	base   time.Time     // when the rate last changed
	passed time.Duration // until then
}

func newClock() *clock { return &clock{rate: 1, base: time.Now()} }

func (c *clock) now() (wall, passing time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	since := c.passed + time.Duration(float64(now.Sub(c.base))*c.rate)
	return now.Add(c.offset), time.Unix(0, 0).Add(since)
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = d
}

func (c *clock) drift(rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.passed += time.Duration(float64(now.Sub(c.base)) * c.rate)
	c.base, c.rate = now, rate
}
