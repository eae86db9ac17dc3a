package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// Faults of an upgrade. All nodes begin with an earlier program. Each gets a later one, or goes back to one that knows the
// cluster version. An operator raises that version in the middle of other faults.

func upgradeFaults() []fault {
	return []fault{
		{name: "exchange program", begin: (*nemesis).exchangeProgram},
		{name: "upgrade", begin: (*nemesis).upgrade},
		{name: "old program", begin: (*nemesis).oldProgram},
		{name: "old program joins", light: true, begin: (*nemesis).oldJoins},
	}
}

// versionsFrom returns the cluster versions that programs know, from one on.
func versionsFrom(low fsm.Version) []fsm.Version {
	return slices.DeleteFunc(append(slices.Clone(plays), fsm.NewestVersion), func(v fsm.Version) bool { return v < low })
}

// given is the program of a machine that comes: it knows the cluster version, as an operator sees to.
func (n *nemesis) given() fsm.Version {
	if n.w.cfg.Begins == 0 || n.w.cfg.Hasty {
		return fsm.NewestVersion
	}
	all := versionsFrom(max(n.w.version(), n.w.cfg.Begins))
	return all[n.rng.IntN(len(all))]
}

// exchange ends a process and starts the program that knows versions up to one, on the same data. Half of the ends are
// no good ones.
func (n *nemesis) exchange(m *machine, to fsm.Version) error {
	if x := m.node; x != nil {
		switch n.rng.IntN(4) {
		case 0:
			x.crash(false, n.rng)
		case 1:
			n.w.c.add(powerLosses, 1)
			x.crash(true, n.rng)
		default:
			x.stop(true)
		}
	}
	m.knows = to
	return n.w.start(m)
}

// exchangeProgram gives a node a later program, or an earlier one that knows the cluster version.
func (n *nemesis) exchangeProgram(m *machine) func() {
	if n.w.cfg.Begins == 0 {
		return nil
	}
	to := n.given()
	n.w.event("%s gets a program that knows %s instead of %s", m.id, to, m.knows)
	if err := n.exchange(m, to); err != nil {
		n.w.spoil("I31", fmt.Errorf("%s does not start with a program that knows %s, and the cluster has %s: %w", m.id, to,
			n.w.version(), err))
	}
	n.w.c.add("programs exchanged", 1)
	return func() {}
}

// busy reports whether a fault has a node in its hands.
func (n *nemesis) busy(m *machine) bool {
	return slices.ContainsFunc(n.list, func(r running) bool { return r.m == m && !r.light })
}

// upgrade gives every node a later program, one after the other, and has an operator finalize. A node that is down gets
// the program with its next start. A node that another fault has in its hands keeps what it has.
func (n *nemesis) upgrade(*machine) func() {
	all := versionsFrom(n.w.version() + 1)
	if n.w.cfg.Begins == 0 || len(all) == 0 {
		return nil
	}
	to := all[n.rng.IntN(len(all))]
	n.w.event("all nodes get a program that knows %s", to)
	for _, m := range n.w.there() {
		switch {
		case m.knows >= to:
		case m.node == nil:
			m.knows = to
		case !n.busy(m):
			if err := n.exchange(m, to); err != nil {
				n.w.spoil("I31", fmt.Errorf("%s does not start with a program that knows %s: %w", m.id, to, err))
			}
			n.w.c.add("programs exchanged", 1)
			time.Sleep(time.Duration(n.rng.Int64N(int64(5 * time.Second))))
		}
	}
	n.finalize(3)
	return func() { n.finalize(3) }
}

// finalize has an operator raise the cluster version, some times if it is refused.
func (n *nemesis) finalize(tries int) {
	for range tries {
		via := n.via(nil)
		if via == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), wishLimit)
		v, err := via.node.directory.Finalize(ctx)
		cancel()
		n.w.event("an operator finalizes the upgrade, through %s: %s, %v", via.id, v, err)
		if err == nil {
			n.w.c.add("upgrades finalized", 1)
			return
		}
		time.Sleep(time.Second)
	}
}

// oldProgram starts a program on a node that does not know the cluster version, which the node's data directory tells. The
// program must refuse, and say what to start. The right one is started at the end of the fault.
func (n *nemesis) oldProgram(m *machine) func() {
	has := m.node.host.ClusterVersion()
	older := slices.DeleteFunc(slices.Clone(plays), func(v fsm.Version) bool { return v >= has })
	if n.w.cfg.Begins == 0 || has < fsm.VersionUpgrades || len(older) == 0 {
		return nil
	}
	right, old := m.knows, older[n.rng.IntN(len(older))]
	err := n.exchange(m, old)
	n.w.event("a program that knows %s is started on %s, and the cluster has %s: %v", old, m.id, has, err)
	if !refusedStart(err) {
		n.w.spoil("I31", fmt.Errorf("a program that knows %s starts on %s, which has heard of %s: %w", old, m.id, has,
			errors.Join(err, errors.New("no refusal"))))
	}
	n.w.c.add(oldRefused, 1)
	m.knows = right
	return func() { n.w.boot(m) }
}

// oldJoins starts a new node whose program does not know the cluster version. The cluster must not take it.
func (n *nemesis) oldJoins(*machine) func() {
	has := n.w.version()
	older := slices.DeleteFunc(slices.Clone(plays), func(v fsm.Version) bool { return v >= has })
	if n.w.cfg.Begins == 0 || has < fsm.VersionUpgrades || len(older) == 0 || len(n.w.there()) >= n.w.cfg.MaxNodes {
		return nil
	}
	m := n.w.addMachine("", "", "")
	old := older[n.rng.IntN(len(older))]
	m.knows = old
	n.w.event("%s wants to join with a program that knows %s, and the cluster has %s", m.id, m.knows, has)
	n.w.boot(m)
	return func() {
		if m.knows != old {
			return // another fault gave it a program that fits, so it is a node like others
		}
		if n.known(m) {
			n.w.spoil("I31", fmt.Errorf("%s, whose program knows %s, belongs to a cluster of version %s", m.id, m.knows, has))
		}
		n.w.c.add("old programs that wanted to join", 1)
		m.over.Store(true)
		if m.node != nil {
			m.node.stop(true)
		}
	}
}

// rightPrograms gives every node a program that knows the cluster version, when the faults are over. A node that was away
// when the cluster got its first version may have an older one.
func (n *nemesis) rightPrograms() {
	low := n.w.version()
	if n.w.cfg.Finishes {
		low = fsm.NewestVersion
	}
	for _, m := range n.w.there() {
		if n.w.cfg.Begins == 0 || m.knows >= low {
			continue
		}
		n.w.event("%s gets a program that knows %s", m.id, low)
		if m.node != nil {
			m.node.stop(true)
		}
		m.knows = low
	}
}

// finished has an operator finalize the upgrade at the end, when every node has the newest program (I26). An upgrade waits for
// nodes whose disks were lost, until an operator gives them up.
func (n *nemesis) finished() error {
	if n.w.cfg.Begins == 0 || !n.w.cfg.Finishes {
		return nil
	}
	return within(n.w.homesLimit(), func(ctx context.Context) error {
		for _, m := range n.w.machines() {
			if m.over.Load() && m.wish != catalog.Gone && n.known(m) {
				if err := n.want(m, catalog.Gone); err != nil {
					m.wish = catalog.Serve
					return fmt.Errorf("I26: an operator is not heard: %w", err)
				}
			}
		}
		via := n.via(nil)
		if via == nil {
			return errors.New("I26: no node to ask")
		}
		ctx, cancel := context.WithTimeout(ctx, wishLimit)
		defer cancel()
		if v, err := via.node.directory.Finalize(ctx); err != nil || v != fsm.NewestVersion {
			return fmt.Errorf("I26: the upgrade is not finalized: %s, %w", v, err)
		}
		return nil
	})
}
