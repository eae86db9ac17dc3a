package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/busbar-mq/busbar/test/check"
)

// outcome is what a run found.
type outcome struct {
	network    string
	seed       uint64
	took       time.Duration
	operations int
	elections  uint64
	schedule   *schedule
	world      *world
	waits      map[string][]time.Duration // by kind of fault: the longest wait of a client elsewhere
	violations []check.Violation
	findings   []string
	leaks      []string
	slow       []string // waits that are told one by one
}

// tellWait is the longest wait that is only counted: a lost host may cost as much.
const tellWait = 3 * time.Second

// neverBites is how often one kind of fault must be made without any effect to be taken for broken itself.
const neverBites = 3

// counts reports whether the run says anything: most faults must have bitten, and there must have
// been work.
func (o *outcome) counts() error {
	made, bit := o.schedule.biting()
	m, b := 0, 0
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if made[name] >= neverBites && bit[name] == 0 {
			return fmt.Errorf("%q never bit, of %d times", name, made[name])
		}
		m, b = m+made[name], b+bit[name]
	}
	switch {
	case m == 0:
		return fmt.Errorf("no fault was made")
	case b*10 < m*8:
		return fmt.Errorf("only %d of %d faults bit", b, m)
	case o.operations < int(o.took.Seconds()):
		return fmt.Errorf("only %d operations in %s", o.operations, o.took)
	}
	return o.world.shared.enough(o.took)
}

// bad reports whether something broken was found.
func (o *outcome) bad() bool { return len(o.violations)+len(o.findings)+len(o.leaks) > 0 }

func (o *outcome) write(w io.Writer) {
	c := &o.world.counts
	fmt.Fprintf(w, "== %s, seed %d: %s (%.3f h), %d operations, %d elections\n", o.network, o.seed,
		o.took.Round(time.Second), o.took.Hours(), o.operations, o.elections)
	fmt.Fprintf(w, "messages sent %d, deliveries %d, again %d, sessions %d, connections %d, unknown outcomes %d\n",
		c.sends.Load(), c.deliveries.Load(), c.redeliveries.Load(), c.sessions.Load(),
		c.connections.Load(), c.unknown.Load())
	fmt.Fprintln(w, &o.world.shared)
	made, bit := o.schedule.biting()
	fmt.Fprintf(w, "%-32s %6s %6s   longest wait of a client elsewhere: p50, p95, most\n", "fault", "made", "bit")
	for _, name := range slices.Sorted(maps.Keys(made)) {
		fmt.Fprintf(w, "%-32s %6d %6d   %s\n", name, made[name], bit[name], percentiles(o.waits[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(o.schedule.skipped)) {
		fmt.Fprintf(w, "left out: %s: %s\n", name, o.schedule.skipped[name])
	}
	for _, f := range o.schedule.failures {
		fmt.Fprintln(w, "not made or not taken back:", f)
	}
	for _, f := range o.slow {
		fmt.Fprintln(w, "slow:", f)
	}
	for _, f := range o.findings {
		fmt.Fprintln(w, "FINDING", f)
	}
	for _, f := range o.leaks {
		fmt.Fprintln(w, "LEAK", f)
	}
	for _, v := range o.violations {
		fmt.Fprintln(w, "VIOLATION", v)
	}
	if err := o.counts(); err != nil {
		fmt.Fprintln(w, "this run does not count:", err)
	}
}

func percentiles(list []time.Duration) string {
	if len(list) == 0 {
		return "-"
	}
	sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
	at := func(p int) time.Duration { return list[(len(list)-1)*p/100].Round(time.Millisecond) }
	return fmt.Sprintf("%s, %s, %s", at(50), at(95), at(100))
}

// waits finds, for every fault that was alone, the longest operation that overlapped it and worked,
// of clients whose node it did not touch. A client that waits a second sees a second without service.
func (o *outcome) measure(h *check.History) {
	o.waits = map[string][]time.Duration{}
	for i, x := range o.schedule.strikes {
		alone := true
		for j, y := range o.schedule.strikes {
			alone = alone && (i == j || y.ended.Before(x.began) || y.began.After(x.ended))
		}
		if !alone || x.bit != nil {
			continue
		}
		var longest time.Duration
		var slow *check.Op
		from, to := x.began.UnixNano(), x.ended.UnixNano()
		for _, op := range h.Ops {
			at, _ := o.world.homes.Load(op.Conn)
			if op.Kind != check.Send && op.Kind != check.Complete || !op.Ok() || op.Return < from ||
				op.Invoke > to || !x.whole && at == x.n.number {
				continue
			}
			if took := time.Duration(op.Return - op.Invoke); took > longest {
				longest, slow = took, op
			}
		}
		if longest > tellWait {
			o.slow = append(o.slow, fmt.Sprintf("%s %s: operation %d (%s %s) took %s, from %s", x.name, x.what, slow.ID,
				slow.Kind, slow.Entity, longest.Round(time.Millisecond),
				time.Unix(0, slow.Invoke).Format("15:04:05.000")))
		}
		o.waits[x.name] = append(o.waits[x.name], longest)
	}
}
