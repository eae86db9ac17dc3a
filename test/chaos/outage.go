package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// outageKind is a fault whose outage is measured.
type outageKind struct {
	nemesis string
	// hold is how long it lasts: longer than the longest outage that is allowed. So service comes back because the
	// cluster got over the fault and not because it was taken back. Not much longer either: with a node less,
	// whatever delays one of the others delays everybody.
	hold time.Duration
}

// outageKinds are the faults by the names of the command line.
var outageKinds = map[string]outageKind{
	"kill":  {"kill", 1500 * time.Millisecond},
	"pause": {"pause", 4 * time.Second},
	"stop":  {"stop in good order", 1500 * time.Millisecond},
	"host":  {"lose a host", 5 * time.Second},
	"stall": {"stall the disk", 16 * time.Second},
}

const (
	outageQueues = 6                     // so that several partitions carry load
	outageEvery  = 10 * time.Millisecond // pause of a sender between two sends: the resolution
	outageWarm   = time.Second           // of load before a fault
	settleLimit  = 45 * time.Second      // until leaderships are spread again after a fault
)

// outage measures how long clients of nodes that a fault does not touch are without service.
type outage struct {
	bed    *bed
	kinds  []string
	trials int
	seed   uint64
	out    io.Writer
	trace  io.Writer // one line of JSON for each attempt that was slow or failed

	queues  []string
	clients []*prober
}

// trial is what one fault did.
type trial struct {
	victim string
	before gap // while nothing was broken: what the machine costs, and the load
	during gap // from the fault to its end
	after  gap // from its end until every leadership is back home
	errors []string
	bit    error
}

// measureOutages builds a cluster, and makes one fault after the other under a load of small sends.
func measureOutages(ctx context.Context, o *outage, cfg bedConfig, sup *supervisor) (err error) {
	o.bed, err = newBed(ctx, cfg, sup)
	defer func() { err = errors.Join(err, o.bed.close()) }()
	if err != nil {
		return err
	}
	trace, err := os.Create(filepath.Join(cfg.dir, "attempts.jsonl"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trace.Close()) }()
	o.trace = trace
	for i := range outageQueues {
		o.queues = append(o.queues, fmt.Sprintf("probe-%d", i))
	}
	if err := createPlain(ctx, o.bed.nodes[0], o.queues...); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(o.seed, 2))
	for _, name := range o.kinds {
		kind := outageKinds[name]
		if why := find(kind.nemesis).missing(o.bed); why != "" {
			fmt.Fprintf(o.out, "left out: %s: %s\n", name, why)
			continue
		}
		var all []trial
		for i := range o.trials {
			t, err := o.one(ctx, kind, rng)
			if err != nil {
				return fmt.Errorf("%s, trial %d: %w", name, i+1, err)
			}
			t.write(o.out, name, i+1)
			all = append(all, t)
		}
		summarize(o.out, name, all)
	}
	return nil
}

// one makes a single fault and returns what the clients of the other nodes saw.
func (o *outage) one(ctx context.Context, kind outageKind, rng *rand.Rand) (t trial, err error) {
	if err := o.settled(ctx); err != nil {
		return t, err
	}
	load, stop := context.WithCancel(ctx)
	defer stop()
	var senders sync.WaitGroup
	defer senders.Wait()
	defer stop()
	// The load runs through all nodes, so that the one that leads most of what is loaded is known.
	o.clients = nil
	for _, n := range o.bed.nodes {
		for _, q := range o.queues {
			p := &prober{node: n, queue: q}
			o.clients = append(o.clients, p)
			senders.Go(func() { p.run(load) })
		}
	}
	victim, err := o.busiest(ctx, rng)
	if err != nil {
		return t, err
	}
	t.victim = victim.ID
	x := &strike{nemesis: find(kind.nemesis), bed: o.bed, rng: rng, n: victim, began: time.Now(),
		limit: kind.hold + 15*time.Second}
	failed := x.strike(x)
	wait(ctx, time.Until(x.began.Add(kind.hold/2)))
	if x.bites != nil && failed == nil {
		t.bit = x.bites(o.bed)
	}
	wait(ctx, time.Until(x.began.Add(kind.hold)))
	healed := time.Now()
	if err := errors.Join(failed, x.heal()); err != nil {
		return t, err
	}
	err = o.settled(ctx)
	over := time.Now()
	stop()
	senders.Wait()
	o.judge(&t, victim, x.began, healed, over)
	return t, err
}

// judge finds the longest gap of any client of the other nodes.
func (o *outage) judge(t *trial, victim *node, began, healed, over time.Time) {
	for _, p := range o.clients {
		if p.node == victim {
			continue
		}
		name := p.node.ID + "/" + p.queue
		t.before.longer(p.until(began).longest(began.Add(-outageWarm), began), name)
		t.during.longer(p.longest(began, healed), name)
		t.after.longer(p.longest(healed, over), name)
		for _, a := range p.attempts {
			if a.Error != "" && a.End.After(began) {
				t.errors = append(t.errors, name+": "+a.Error)
			}
			if a.Error != "" || a.End.Sub(a.Begin) > 50*time.Millisecond {
				line, _ := json.Marshal(a)
				fmt.Fprintf(o.trace, "{\"client\":%q,\"victim\":%q,\"fault\":%q,\"attempt\":%s}\n",
					name, t.victim, began.Format(clock), line)
			}
		}
	}
}

// busiest returns the node that leads most of the partitions that carry the load, one of them.
func (o *outage) busiest(ctx context.Context, rng *rand.Rand) (*node, error) {
	look := func() (map[int]uint64, map[int]string, error) {
		var errs []error
		for _, n := range o.bed.nodes {
			s, err := n.Status(ctx)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			applied, leader := map[int]uint64{}, map[int]string{}
			for _, p := range s.Partitions {
				applied[p.ID], leader[p.ID] = p.Applied, p.Leader
			}
			return applied, leader, nil
		}
		return nil, nil, errors.Join(errs...)
	}
	wait(ctx, outageWarm)
	before, _, err := look()
	if err != nil {
		return nil, err
	}
	wait(ctx, outageWarm)
	after, leader, err := look()
	if err != nil {
		return nil, err
	}
	const loaded = 10 // entries a second: ten times what an idle partition writes
	var best *node
	most := 0
	for _, i := range rng.Perm(len(o.bed.nodes)) {
		n, count := o.bed.nodes[i], 0
		for p, l := range leader {
			if l == n.ID && after[p]-before[p] >= loaded {
				count++
			}
		}
		if count > most {
			best, most = n, count
		}
	}
	if best == nil {
		return nil, errors.New("no partition carries load")
	}
	return best, nil
}

// settled returns when every node serves, every partition is led by its home, and nothing moves any
// more. It moves leaderships home itself: the nodes leave one that was handed over where it is.
func (o *outage) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	const calmLooks = 4
	for same := 0; same < calmLooks; {
		leaders, err := o.bed.leaders(ctx)
		if err == nil && o.sendHome(ctx, leaders) {
			same++
		} else {
			same = 0
		}
		if ctx.Err() != nil {
			return fmt.Errorf("leaderships are not spread again after %s: %w", settleLimit,
				errors.Join(err, ctx.Err()))
		}
		wait(ctx, 250*time.Millisecond)
	}
	return o.bed.awaitReady(ctx)
}

// sendHome moves one leadership that is not where it belongs, and reports whether there was none. The
// homes go round the nodes, so that each leads as many.
func (o *outage) sendHome(ctx context.Context, leaders map[int]string) bool {
	for _, p := range slices.Sorted(maps.Keys(leaders)) {
		home := o.bed.nodes[p%len(o.bed.nodes)]
		if leaders[p] == home.ID {
			continue
		}
		if leaders[p] != "" && home.WaitReady(ctx) == nil {
			_ = o.bed.transfer(ctx, p, leaders[p], home) // the next look tells
		}
		return false
	}
	return true
}

const clock = "15:04:05.000"

func (t *trial) write(w io.Writer, name string, i int) {
	line := fmt.Sprintf("%s %d: %s: %s; before %s, afterwards %s", name, i, t.victim, t.during,
		t.before.took.Round(time.Millisecond), t.after)
	if t.bit != nil {
		line += "; DID NOT BITE: " + t.bit.Error()
	}
	if len(t.errors) > 0 {
		line += fmt.Sprintf("; %d errors, first %s", len(t.errors), shorten(t.errors[0]))
	}
	fmt.Fprintln(w, line)
}

// summarize prints the row of docs/reliability.md.
func summarize(w io.Writer, name string, all []trial) {
	var before, during, after []time.Duration
	failed := 0
	for _, t := range all {
		if t.bit != nil {
			continue
		}
		before, during = append(before, t.before.took), append(during, t.during.took)
		after = append(after, t.after.took)
		failed += len(t.errors)
	}
	fmt.Fprintf(w, "== %s: %d trials: p50, p95, most: %s; a second before: %s; while it comes back: %s; %d errors\n",
		name, len(during), percentiles(during), percentiles(before), percentiles(after), failed)
}

// parseKinds reads the names of outageKinds; all for none.
func parseKinds(s string) ([]string, error) {
	order := []string{"stop", "kill", "pause", "host", "stall"}
	if s == "" {
		return order, nil
	}
	var out []string
	for _, name := range strings.Split(s, ",") {
		name = strings.TrimSpace(name)
		if _, ok := outageKinds[name]; !ok {
			return nil, fmt.Errorf("no fault %q to measure: it is one of %s", name, strings.Join(order, ", "))
		}
		out = append(out, name)
	}
	return out, nil
}
