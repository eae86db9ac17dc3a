package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

// fault is one thing that goes wrong for a while.
type fault struct {
	name string
	// minority says that one node may suffer it for ever and the rest must go on (liveness mode).
	minority bool
	// long says that the fault may last until others have taken the node's places. light says that the node goes on
	// meanwhile, so that other faults may strike it.
	long, light bool
	// begin starts the fault on a node and returns what ends it; nil if it could not begin.
	begin func(n *nemesis, m *machine) (end func())
}

// faults returns the vocabulary. Every seed uses a random part of it.
func faults() []fault { return slices.Concat(otherFaults(), memberFaults(), upgradeFaults()) }

func otherFaults() []fault {
	return []fault{
		{name: "isolate", minority: true, begin: (*nemesis).isolate},
		{name: "deaf", minority: true, begin: (*nemesis).deaf},
		{name: "mute", minority: true, begin: (*nemesis).mute},
		{name: "hub", begin: (*nemesis).hub},
		{name: "reset", begin: (*nemesis).reset},
		{name: "pause", minority: true, begin: (*nemesis).pause},
		{name: "kill", minority: true, begin: (*nemesis).kill},
		{name: "power", minority: true, begin: (*nemesis).power},
		{name: "power of all", begin: (*nemesis).powerAll},
		{name: "restart", begin: (*nemesis).restart},
		{name: "slow disk", minority: true, begin: (*nemesis).slowDisk},
		{name: "stuck disk", minority: true, begin: (*nemesis).stuckDisk},
		{name: "failing disk", minority: true, begin: (*nemesis).failingDisk},
		{name: "failing bodies", minority: true, begin: (*nemesis).failingBodies},
		{name: "transfer", begin: (*nemesis).transfer},
		{name: "snapshot", begin: (*nemesis).snapshot},
		{name: "clock step", minority: true, begin: (*nemesis).clockStep},
		{name: "clock drift", minority: true, begin: (*nemesis).clockDrift},
		{name: "clients cut", minority: true, begin: (*nemesis).clientsCut},
		{name: "clients reset", begin: (*nemesis).clientsReset},
		{name: "slow network", begin: (*nemesis).slowNetwork},
		{name: "rehome", light: true, begin: (*nemesis).rehome},
		{name: "backup", light: true, begin: (*nemesis).backup},
	}
}

// nemesis makes things go wrong, one after the other or together.
type nemesis struct {
	w    *world
	rng  *rand.Rand
	list []running

	backups int // that were begun
}

// running is a fault under way.
type running struct {
	fault
	end func()
	m   *machine
	at  time.Time // when it ends
}

// pick returns a node of the cluster, more often than not one that leads something.
func (n *nemesis) pick() *machine {
	if n.rng.IntN(3) > 0 {
		if m := n.w.leaderOf(fsm.PartitionID(n.rng.IntN(n.w.cfg.Partitions + 1))); m != nil && !m.out.Load() {
			return m
		}
	}
	there := n.w.there()
	return there[n.rng.IntN(len(there))]
}

// run lets faults begin and end until time is over; the last ends before run returns.
func (n *nemesis) run(until time.Time, active []fault) {
	for time.Now().Before(until) {
		time.Sleep(time.Duration(n.rng.Int64N(int64(4 * time.Second))))
		n.w.heal()
		n.switchOff()
		for i := len(n.list) - 1; i >= 0; i-- {
			if !time.Now().Before(n.list[i].at) {
				n.finish(i)
			}
		}
		if len(n.list) < n.w.cfg.Overlap && len(active) > 0 {
			n.start(active[n.rng.IntN(len(active))], n.pick())
		}
	}
	for len(n.list) > 0 {
		n.finish(0)
	}
}

// finish ends a fault.
func (n *nemesis) finish(i int) {
	r := n.list[i]
	n.list = slices.Delete(n.list, i, i+1)
	n.w.event("end of %q on %s", r.name, r.m.id)
	r.end()
}

// start begins a fault on a node, unless another one has the node in its hands.
func (n *nemesis) start(f fault, m *machine) {
	busy := slices.ContainsFunc(n.list, func(r running) bool { return r.m == m && !(r.light && !f.light) })
	if busy || m.node == nil {
		return
	}
	n.w.event("begin of %q on %s", f.name, m.id)
	end := f.begin(n, m)
	if end == nil {
		return
	}
	n.w.c.add(faultsBegun, 1)
	n.w.c.add("fault "+f.name, 1)
	most := n.w.cfg.FaultTime
	if f.long {
		most += 2 * n.w.cfg.partition.ReplaceAfter
	}
	n.list = append(n.list, running{f, end, m, time.Now().Add(time.Duration(n.rng.Int64N(int64(most))))})
}

func (n *nemesis) cut(pairs ...[2]fsm.NodeID) func() {
	for _, p := range pairs {
		n.w.net.SetCut(p[0], p[1], true)
	}
	return func() {
		for _, p := range pairs {
			n.w.net.SetCut(p[0], p[1], false)
		}
	}
}

func (n *nemesis) others(m *machine) (ids []fsm.NodeID) {
	for _, o := range n.w.machines() {
		if o != m && !o.over.Load() {
			ids = append(ids, o.id)
		}
	}
	return ids
}

func (n *nemesis) isolate(m *machine) func() {
	var pairs [][2]fsm.NodeID
	for _, o := range n.others(m) {
		pairs = append(pairs, [2]fsm.NodeID{m.id, o}, [2]fsm.NodeID{o, m.id})
	}
	return n.cut(pairs...)
}

func (n *nemesis) deaf(m *machine) func() {
	var pairs [][2]fsm.NodeID
	for _, o := range n.others(m) {
		pairs = append(pairs, [2]fsm.NodeID{o, m.id})
	}
	return n.cut(pairs...)
}

func (n *nemesis) mute(m *machine) func() {
	var pairs [][2]fsm.NodeID
	for _, o := range n.others(m) {
		pairs = append(pairs, [2]fsm.NodeID{m.id, o})
	}
	return n.cut(pairs...)
}

// hub lets the others see m only, not each other.
func (n *nemesis) hub(m *machine) func() {
	var pairs [][2]fsm.NodeID
	o := n.others(m)
	for _, a := range o {
		for _, b := range o {
			if a != b {
				pairs = append(pairs, [2]fsm.NodeID{a, b})
			}
		}
	}
	return n.cut(pairs...)
}

func (n *nemesis) reset(m *machine) func() {
	for _, o := range n.others(m) {
		n.w.net.Reset(m.id, o)
	}
	return func() {}
}

// pause stops a process as far as the world can tell: nothing goes in or out, and its disk waits. Its
// timers go on, which a real one's do not; the calls that it makes meanwhile wait.
func (n *nemesis) pause(m *machine) func() {
	d := m.disk
	d.stick()
	n.w.net.Freeze(m.id, true)
	n.cutClients(m, true)
	return func() {
		d.unstick()
		n.w.net.Freeze(m.id, false)
		n.cutClients(m, false)
	}
}

func (n *nemesis) cutClients(m *machine, cut bool) {
	for i := range n.w.hosts {
		ip := n.w.clientHost(i).IP()
		if cut {
			n.w.clients.Cut(m.ip, ip)
		} else {
			n.w.clients.Reconnect(m.ip, ip)
		}
	}
}

// down stops the process on m in some way and returns what boots it again.
func (n *nemesis) down(m *machine, stop func(*node)) func() {
	x := m.node
	stop(x)
	return func() { n.w.boot(m) }
}

func (n *nemesis) kill(m *machine) func() {
	return n.down(m, func(x *node) { x.crash(false, n.rng) })
}

func (n *nemesis) power(m *machine) func() {
	n.w.c.add(powerLosses, 1)
	return n.down(m, func(x *node) { x.crash(true, n.rng) })
}

func (n *nemesis) powerAll(m *machine) func() {
	var ends []func()
	for _, o := range n.w.machines() {
		if o.node != nil {
			ends = append(ends, n.power(o))
		}
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

func (n *nemesis) restart(m *machine) func() {
	return n.down(m, func(x *node) { x.stop(true) })
}

func (n *nemesis) slowDisk(m *machine) func() {
	d := m.disk
	slow := time.Duration(1+n.rng.IntN(400)) * time.Millisecond
	d.set(func(d *disk) { d.slow = slow })
	return func() { d.set(func(d *disk) { d.slow = d.calm }) }
}

func (n *nemesis) stuckDisk(m *machine) func() {
	d := m.disk
	d.stick()
	return d.unstick
}

// failingDisk makes the next write of log or votes fail; whether it reached the disk all the same is
// chance. The replica must stop for good, so the process is started anew.
func (n *nemesis) failingDisk(m *machine) func() {
	keep := n.rng.IntN(2) == 0
	m.disk.set(func(d *disk) { d.failNext, d.keepFail = errDisk, keep })
	return func() { n.again(m) }
}

func (n *nemesis) failingBodies(m *machine) func() {
	m.fs.Inject(faultfs.Fault{Op: []faultfs.Op{faultfs.Write, faultfs.Sync}[n.rng.IntN(2)],
		Skip: n.rng.IntN(20), Times: 1, Err: errDisk, After: n.rng.IntN(2) == 0})
	return func() { n.again(m) }
}

// again ends a process with a broken disk, and boots it on a mended one.
func (n *nemesis) again(m *machine) {
	m.disk.set(func(d *disk) { d.failNext = nil })
	m.fs.Heal()
	if x := m.node; x != nil {
		x.crash(false, n.rng)
	}
	n.w.boot(m)
}

func (n *nemesis) transfer(m *machine) func() {
	x := m.node
	if x == nil {
		return nil
	}
	for p := range n.w.cfg.Partitions + 1 {
		ctx, cancel := context.WithTimeout(n.w.ctx, 5*time.Second)
		err := x.host.TransferLeadership(ctx, fsm.PartitionID(p), "")
		cancel()
		if err == nil {
			n.w.c.add("leadership transfers", 1)
		} else if !errors.Is(err, fsm.ErrNotLeader) {
			n.w.event("transfer: %v", err)
		}
	}
	return func() {}
}

func (n *nemesis) snapshot(m *machine) func() {
	x := m.node
	for p := range n.w.cfg.Partitions + 1 {
		if r := x.host.Replica(fsm.PartitionID(p)); r != nil {
			n.w.do(func() { _ = r.Snapshot() }) // refused if there is nothing new
		}
	}
	return func() {}
}

func (n *nemesis) clockStep(m *machine) func() {
	c := m.node.clock
	d := time.Duration(n.rng.Int64N(int64(2*n.w.cfg.MaxStep)) - int64(n.w.cfg.MaxStep))
	c.step(d)
	n.w.event("the date of %s is off by %v", m.id, d)
	return func() { c.step(0) }
}

func (n *nemesis) clockDrift(m *machine) func() {
	c := m.node.clock
	c.drift(0.9 + n.rng.Float64()*0.2*0.99)
	return func() { c.drift(1) }
}

func (n *nemesis) clientsCut(m *machine) func() {
	n.cutClients(m, true)
	return func() { n.cutClients(m, false) }
}

func (n *nemesis) clientsReset(m *machine) func() {
	for i := range n.w.hosts {
		if n.rng.IntN(2) == 0 {
			n.w.clients.Reset(m.ip, n.w.clientHost(i).IP())
		}
	}
	return func() {}
}

func (n *nemesis) slowNetwork(*machine) func() {
	d := time.Duration(n.rng.Int64N(int64(150 * time.Millisecond)))
	n.w.net.SetDelay(d/4, d)
	n.w.clients.SetDelay(d / 2)
	return n.w.calmNetwork
}
