package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// combination is a set of faults that overlap.
type combination []string

// mandatory are the combinations that have broken others' systems, in the order
// in which they are tried; those that this bed cannot make are told and left out.
func mandatory() []combination {
	return []combination{
		{"kill the busiest"},
		{"pause the busiest"},
		{"power loss of all"},
		{"power loss", "cut a pair"},
		{"power loss", "half-open"},
		{"stall the disk"},
		{"read-only disk"},
		{"failing sync"},
		{"damaged file", "kill the busiest"},
		{"kill all"},
		{"move leaders", "half-open"},
		{"move leaders", "lose a host"},
		{"fill a majority's disks"},
		{"lose gossip", "kill"},
		{"restart one after the other"},
		{"lose a host"},
		{"refuse connections"},
		{"reset", "pause"},
		{"visit", "kill the busiest"},
		{"visit", "power loss"},
		{"drain", "kill"},
		{"replace the disk"},
		{"restore elsewhere", "kill the busiest"},
		{"half-open", "restore elsewhere"},
		{"exchange the program", "kill"},
		{"exchange the program", "pause the busiest"},
		{"exchange the program", "visit"},
		{"exchange the program", "power loss"},
	}
}

// schedule is the timing of a run.
type schedule struct {
	total     time.Duration // of the faults, without what comes before and after
	calm      time.Duration // before the first fault
	meet      bool          // whether the load goes on behind the faults until sharers have met, see sharedCounts.await
	hold      [2]time.Duration
	rest      [2]time.Duration
	allowed   map[string]bool // names of nemeses; empty: all
	exactly   []combination   // these and no others, once each, whatever total says
	serving   bool            // whether the next fault waits until every node serves
	rng       *rand.Rand
	log       io.Writer
	strikes   []*strike
	skipped   map[string]string
	failures  []string // faults that could not be made or taken back
	afterHeal func(ctx context.Context) error
	// instead replaces the faults: what a test does to the cluster under load.
	instead func(ctx context.Context, b *bed) error
}

func between(r *rand.Rand, span [2]time.Duration) time.Duration {
	return span[0] + time.Duration(r.Int64N(int64(span[1]-span[0])+1))
}

func (s *schedule) say(format string, args ...any) {
	fmt.Fprintf(s.log, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
}

// run makes faults until the time is over. Combinations come first, then what chance says.
func (s *schedule) run(ctx context.Context, b *bed) error {
	s.skipped = map[string]string{}
	wait(ctx, s.calm)
	if s.instead != nil {
		return s.instead(ctx, b)
	}
	for _, c := range s.exactly {
		if err := s.cycle(ctx, b, c); err != nil {
			return err
		}
	}
	if len(s.exactly) > 0 {
		return nil
	}
	fixed := mandatory()
	if len(s.allowed) > 0 {
		fixed = nil
	}
	s.rng.Shuffle(len(fixed), func(i, j int) { fixed[i], fixed[j] = fixed[j], fixed[i] })
	if len(s.allowed) == 0 {
		fixed = append(fixed, combination{finish})
	}
	for end := time.Now().Add(s.total); time.Now().Before(end) && ctx.Err() == nil; {
		var c combination
		if len(fixed) > 0 {
			c, fixed = fixed[0], fixed[1:]
		} else {
			c = s.draw(b)
		}
		if !s.possible(b, c) {
			continue
		}
		if err := s.cycle(ctx, b, c); err != nil {
			return err
		}
	}
	return nil
}

// possible reports whether every fault of a combination can be made here.
func (s *schedule) possible(b *bed, c combination) bool {
	for _, name := range c {
		if why := find(name).missing(b); why != "" {
			s.skipped[name] = why
			return false
		}
	}
	return true
}

// draw takes one fault by chance, or two that go together.
func (s *schedule) draw(b *bed) combination {
	var can []*nemesis
	for _, k := range nemeses() {
		if len(s.allowed) > 0 && !s.allowed[k.name] {
			continue
		}
		if why := k.missing(b); why != "" {
			s.skipped[k.name] = why
			continue
		}
		can = append(can, k)
	}
	first := can[s.rng.IntN(len(can))]
	c := combination{first.name}
	if s.rng.IntN(2) == 0 {
		second := can[s.rng.IntN(len(can))]
		if second != first && !(first.network && second.network) && !first.whole && !second.whole {
			c = append(c, second.name)
		}
	}
	return c
}

// cycle makes the faults of a combination one after the other, holds them together, takes them back,
// and lets the cluster rest.
func (s *schedule) cycle(ctx context.Context, b *bed, c combination) error {
	hold := between(s.rng, s.hold)
	limit := hold + 15*time.Second // what the supervisor gives them
	var now []*strike
	used := map[*node]bool{}
	for _, name := range c {
		k := find(name)
		x := &strike{nemesis: k, bed: b, rng: s.rng, say: s.say, limit: limit, n: s.pick(b, used), began: time.Now()}
		if err := k.strike(x); err != nil {
			s.say("  %s failed: %v", name, err)
			s.failures = append(s.failures, fmt.Sprintf("%s: %v", name, err))
		}
		used[x.n] = true
		now = append(now, x)
		s.say("> %s: %s", name, x.what)
		wait(ctx, time.Duration(s.rng.Int64N(int64(hold/8)+1)))
	}
	// Asked half-way, together: some of them take a second.
	wait(ctx, hold/2)
	var asking sync.WaitGroup
	for _, x := range now {
		asking.Go(func() {
			if x.bites == nil {
				x.bit = fmt.Errorf("it did not come to it")
				return
			}
			x.bit = x.bites(b)
		})
	}
	asking.Wait()
	wait(ctx, hold/2)
	for i := len(now) - 1; i >= 0; i-- {
		x := now[i]
		if err := x.heal(); err != nil {
			s.failures = append(s.failures, "heal "+err.Error())
			s.say("  heal failed: %v", err)
		}
		bit := "bit"
		if x.bit != nil {
			bit = "did not bite: " + x.bit.Error()
		}
		s.say("< %s: %s: %s", x.name, x.what, bit)
	}
	s.strikes = append(s.strikes, now...)
	if s.serving {
		if err := b.awaitServing(serveLimit, nil); err != nil {
			return err
		}
	}
	wait(ctx, between(s.rng, s.rest))
	if s.afterHeal != nil {
		return s.afterHeal(ctx)
	}
	return nil
}

// pick takes a node that no other fault of the cycle is about.
func (s *schedule) pick(b *bed, used map[*node]bool) *node {
	for {
		if n := b.nodes[s.rng.IntN(len(b.nodes))]; !used[n] || len(used) >= len(b.nodes) {
			return n
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// biting counts faults by kind: made, and bitten.
func (s *schedule) biting() (made, bit map[string]int) {
	made, bit = map[string]int{}, map[string]int{}
	for _, x := range s.strikes {
		made[x.name]++
		if x.bit == nil {
			bit[x.name]++
		}
	}
	return made, bit
}

// lockedBuffer collects what a process prints.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements io.Writer; what is beyond 1 MiB is dropped.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() < 1<<20 {
		l.b.Write(p)
	}
	return len(p), nil
}

// String returns what was collected.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
