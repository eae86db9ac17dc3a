package simulation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/test/check"
)

// Result is what a run came to.
type Result struct {
	Violations []check.Violation
	History    *check.History
	Coverage   check.Coverage // what the run exercised, faults by name included
	Virtual    time.Duration
}

// configOf draws the settings of a run from its seed: every seed is another cluster, another network
// and another set of faults.
func configOf(seed uint64, minutes int) Config {
	rng := rand.New(rand.NewPCG(seed, 0x73696d))
	cfg := Config{
		Seed: seed, Minutes: minutes, Nodes: []int{3, 3, 3, 3, 5, 5, 7, 9}[rng.IntN(8)], Replicas: 3,
		BodySegmentBytes: 16 << 10 << rng.IntN(4), ProposeTimeout: 50 * time.Second,
		SendEvery: time.Duration(100+rng.IntN(400)) * time.Millisecond * time.Duration(max(1, minutes/3)),
		Sessions:  2 + rng.IntN(8),
		Delay:     time.Duration(1+rng.IntN(10)) * time.Millisecond, SyncTime: 2 * time.Millisecond,
		FaultTime: time.Duration(5+rng.IntN(30)) * time.Second, Overlap: 1 + rng.IntN(3),
		MaxStep: time.Minute, Forever: seed%4 == 3,
	}
	cfg.Partitions = 1 + rng.IntN(cfg.Nodes)
	cfg.MaxNodes = cfg.Nodes + rng.IntN(3)
	if rng.IntN(2) == 0 {
		cfg.Zones = 3
	}
	p := partition.Defaults()
	p.SnapshotEntries = uint64(100 + rng.IntN(900))
	p.TrailingLogs = 64
	p.FloodFrom, p.RoundLinger = 2, 250*time.Millisecond // clients of the simulation send little
	p.ReplaceAfter = time.Duration(30+rng.IntN(90)) * time.Second
	if rng.IntN(3) == 0 {
		p.MaxEntryBytes = 4 << 10
	}
	if rng.IntN(4) == 0 { // bounds that are met
		p.MaxPendingRequests, p.ReservedRequests, p.MaxParked, p.MaxReceives = 4, 2, 6, 4
	}
	if rng.IntN(3) == 0 {
		p.LogCacheBytes = 0
	}
	cfg.partition = p
	cfg.faults = activeFaults(rng)
	if rng.IntN(3) == 0 {
		cfg.Begins, cfg.Finishes = plays[rng.IntN(len(plays))], rng.IntN(2) == 0
		cfg.faults = append(cfg.faults, upgradeFaults()...)
	}
	return cfg
}

// activeFaults draws the faults of a seed: half of all. A third of the seeds have all changes of members, and a quarter of the
// other faults.
func activeFaults(rng *rand.Rand) []fault {
	every, of := rng.IntN(3) == 0, 2
	if every {
		of = 4
	}
	var active []fault
	for len(active) < 3 {
		active = nil
		for _, f := range otherFaults() {
			if rng.IntN(of) == 0 {
				active = append(active, f)
			}
		}
		for _, f := range memberFaults() {
			if every || rng.IntN(2) == 0 {
				active = append(active, f)
			}
		}
	}
	return active
}

// with adds faults to those that the seed has drawn.
func (c *Config) with(names string) error {
	for name := range strings.SplitSeq(names, ",") {
		var more []fault
		switch name {
		case "":
		case "members":
			more = memberFaults()
		case "upgrades":
			more = upgradeFaults()
			if c.Begins == 0 {
				c.Begins = plays[c.Seed%uint64(len(plays))]
			}
		default:
			more = slices.DeleteFunc(faults(), func(f fault) bool { return f.name != name })
			if len(more) == 0 {
				return fmt.Errorf("there is no fault %q", name)
			}
		}
		for _, f := range more {
			if !slices.ContainsFunc(c.faults, func(had fault) bool { return had.name == f.name }) {
				c.faults = append(c.faults, f)
			}
		}
	}
	return nil
}

// Run is one run, inside a bubble.
func Run(cfg Config) (*Result, error) {
	w, err := newWorld(cfg)
	if w != nil {
		defer w.close()
	}
	if err != nil {
		return nil, fmt.Errorf("start the world: %w", err)
	}
	w.calmNetwork()
	rng := w.rng()
	if rng.IntN(2) == 0 {
		w.net.SetChances(0.3, 0.005)
	}
	n := &nemesis{w: w, rng: rng}
	names := ""
	for _, f := range cfg.faults {
		names += " [" + f.name + "]"
	}
	if cfg.Begins > 0 {
		names += fmt.Sprintf(", from %s on", cfg.Begins)
	}
	w.event("seed %d: %d to %d nodes, %d zones, %d partitions, faults:%s", cfg.Seed, cfg.Nodes, cfg.MaxNodes, cfg.Zones,
		cfg.Partitions, names)
	w.startClients()
	n.run(time.Now().Add(time.Duration(cfg.Minutes)*time.Minute), cfg.faults)
	n.rightPrograms()
	w.repairAll()
	before := []error{n.orders(), n.finished(), w.serving(nil), n.homes()}
	w.event("every replica is back: %v", errors.Join(before...))
	if !cfg.Forever {
		return w.finish(nil, before)
	}
	return w.finish(n.forever(), before)
}

// repairAll ends every fault there may be.
func (w *world) repairAll() {
	w.net.Heal()
	w.clients.Heal()
	w.calmNetwork()
	w.heal()
	for _, m := range w.machines() {
		m.disk.unstick()
		m.disk.set(func(d *disk) { d.slow, d.failNext = d.calm, nil })
		m.fs.Heal()
		w.boot(m)
	}
	w.event("all faults are over")
}

// forever begins a fault of a minority that never ends, if every group can do without its node. Of two nodes that are
// left, none can go.
func (n *nemesis) forever() *machine {
	var list []fault
	for _, f := range faults() {
		if f.minority {
			list = append(list, f)
		}
	}
	m, f := n.pick(), list[n.rng.IntN(len(list))]
	if m.node == nil || !n.mayLose(m) {
		return nil
	}
	n.w.event("%q on %s, for ever", f.name, m.id)
	f.begin(n, m)
	n.w.c.add("faults for ever", 1)
	return m
}

// finish lets things calm down and checks everything; before is what was found so far.
func (w *world) finish(sick *machine, before []error) (*Result, error) {
	var wrong []check.Violation
	fail := func(errs ...error) {
		for _, err := range errs {
			if err == nil {
				continue
			}
			v, at := check.Violation{Invariant: "I26", Text: err.Error()}, (*breach)(nil)
			if errors.As(err, &at) {
				v.Invariant = at.invariant
			}
			wrong = append(wrong, v)
		}
	}
	w.mu.Lock()
	w.avoid = sick
	w.mu.Unlock()
	fail(before...)
	fail(w.serving(sick))
	time.Sleep(20 * time.Second)
	w.cancel()
	w.work.Wait()
	w.event("clients have stopped")
	final, err := w.places()
	if err != nil {
		fail(fmt.Errorf("I26: what is left cannot be listed: %w", err))
	}
	if err == nil {
		w.rec.Finish(final)
	}
	fail(w.forwarded())
	fail(w.drain())
	w.event("queues are drained")
	h := w.rec.History()
	wrong = append(wrong, check.CheckAll(h)...)
	w.stored(sick)
	wrong = append(wrong, w.witness.Check(h)...)
	w.mu.Lock()
	wrong = append(wrong, w.spoiled...)
	w.mu.Unlock()
	cover := check.Cover(h, w.witness)
	w.c.each(func(name string, n int) { cover[name] += n })
	return &Result{Violations: wrong, History: h, Coverage: cover, Virtual: time.Since(w.began)}, nil
}

// stored shows the witness what the replicas have in their stores, up to what they know to be committed. It shows
// their states, too.
func (w *world) stored(except *machine) {
	for _, m := range w.machines() {
		if m.node == nil || m == except {
			continue
		}
		who := fmt.Sprintf("%s.%d", m.id, m.life)
		for p := range w.cfg.Partitions + 1 {
			id := fsm.PartitionID(p)
			r := m.node.host.Replica(id)
			if r == nil {
				continue
			}
			committed := r.Status().Committed
			m.disk.each(id, func(l *raft.Log) {
				if l.Type == raft.LogCommand && l.Index <= committed {
					w.witness.Stored(who, id, l.Index, l.Data)
				}
			})
			r.View(func(s replica.Machine, applied uint64) {
				if s, ok := s.(*watched); ok {
					w.witness.Digested(who, id, applied, s.Digest())
				}
			})
		}
	}
}
