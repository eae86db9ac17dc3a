package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Faults that change who is in the cluster. A disk is lost for good only while no other fault is under way and every
// group can do without it. Three replicas bear one loss, and no more is promised.

// memberFaults returns them.
func memberFaults() []fault {
	return []fault{
		{name: "away", minority: true, long: true, begin: (*nemesis).away},
		{name: "lose a zone", begin: (*nemesis).loseZone},
		{name: "join", light: true, begin: (*nemesis).join},
		{name: "drain", light: true, begin: (*nemesis).drain},
		{name: "remove", light: true, begin: (*nemesis).remove},
		{name: "forget", begin: (*nemesis).forget},
		{name: "replace disk", begin: (*nemesis).replaceDisk},
		{name: "rebalance", light: true, begin: (*nemesis).rebalance},
	}
}

// wishLimit bounds one command of an operator.
const wishLimit = 5 * time.Second

// via returns a machine through which an operator may speak, not m; nil if no other node runs.
func (n *nemesis) via(m *machine) *machine {
	up := slices.DeleteFunc(n.w.there(), func(o *machine) bool { return o == m || o.node == nil })
	if len(up) == 0 {
		return nil
	}
	return up[n.rng.IntN(len(up))]
}

// want has an operator say what is wanted of a node, through another one. After an error the wish may have been heard
// all the same, and orders says it again.
func (n *nemesis) want(m *machine, w catalog.Wish) error {
	via := n.via(m)
	if via == nil {
		return errors.New("no node to ask")
	}
	m.wish = w
	ctx, cancel := context.WithTimeout(context.Background(), wishLimit)
	defer cancel()
	err := via.node.directory.Wish(ctx, m.id, w)
	n.w.event("an operator wants %q of %s, through %s: %v", w, m.id, via.id, err)
	return err
}

// known reports whether the catalog knows a node, as far as the nodes that run have heard.
func (n *nemesis) known(m *machine) bool {
	v := n.w.view()
	if v == nil {
		return false
	}
	_, known := v.Node(m.id)
	return known
}

// staying counts the nodes but one that may hold replicas.
func (n *nemesis) staying(but *machine) (count int) {
	for _, m := range n.w.there() {
		if m != but && m.wish == catalog.Serve {
			count++
		}
	}
	return count
}

// join starts a node that is new to the cluster.
func (n *nemesis) join(*machine) func() {
	if len(n.w.there()) >= n.w.cfg.MaxNodes {
		return nil
	}
	m := n.w.addMachine("", "", "")
	m.knows = n.given()
	n.w.event("%s joins", m.id)
	n.w.boot(m)
	return func() {}
}

// drain empties a node for a while, or for the rest of the run.
func (n *nemesis) drain(m *machine) func() {
	if m.wish != catalog.Serve || !n.known(m) || n.staying(m) < 2 {
		return nil
	}
	_ = n.want(m, catalog.Drain) // if nobody heard it, orders says it again
	if n.rng.IntN(4) == 0 {
		return func() {}
	}
	return func() { _ = n.want(m, catalog.Serve) }
}

// remove takes a node out of the cluster in good order. A quarter of the time an operator thinks better of it.
func (n *nemesis) remove(m *machine) func() {
	if m.wish != catalog.Serve || !n.known(m) || n.staying(m) < n.w.cfg.Replicas {
		return nil
	}
	_ = n.want(m, catalog.Remove) // as in drain
	if n.rng.IntN(4) > 0 {
		return func() {}
	}
	return func() {
		if n.known(m) {
			_ = n.want(m, catalog.Serve)
		}
	}
}

// switchOff ends the processes of nodes that the cluster has forgotten. Half of them are started once more, as by
// somebody who does not know, and must stay outside.
func (n *nemesis) switchOff() {
	v := n.w.view()
	if v == nil {
		return
	}
	for _, m := range n.w.there() {
		if !v.IsRemoved(m.id) {
			continue
		}
		n.w.event("%s is forgotten, and switched off", m.id)
		n.w.c.add("nodes removed", 1)
		m.out.Store(true)
		if m.node != nil {
			m.disk.unstick() // a stop in good order waits for the disk, and the fault's end for the stop
			m.node.stop(true)
		}
		if n.rng.IntN(2) == 0 {
			m.over.Store(true)
		} else {
			n.w.c.add("forgotten nodes started again", 1)
			n.w.boot(m)
		}
	}
}

// forget loses a machine for good, and has an operator say so.
func (n *nemesis) forget(m *machine) func() {
	if n.staying(m) < 2 || !n.known(m) || !n.mayLose(m) {
		return nil
	}
	n.lose(m)
	_ = n.want(m, catalog.Gone) // as in drain
	return func() {}
}

// replaceDisk loses a node's disk. The machine comes back with an empty one: another node of the same name. An operator
// may say that the first one never comes back.
func (n *nemesis) replaceDisk(m *machine) func() {
	if m.wish != catalog.Serve || !n.known(m) || !n.mayLose(m) {
		return nil
	}
	n.lose(m)
	next := n.w.addMachine(m.name, m.ip, m.zone)
	next.knows = n.given()
	n.w.event("%s comes in the place of %s", next.id, m.id)
	if n.rng.IntN(2) == 0 {
		n.w.boot(next)
	}
	return func() {
		n.w.boot(next)
		if n.rng.IntN(2) == 0 {
			_ = n.want(m, catalog.Gone) // as in drain
		}
	}
}

// lose ends a process whose disk nobody sees again.
func (n *nemesis) lose(m *machine) {
	n.w.c.add(disksLost, 1)
	m.over.Store(true)
	m.node.crash(true, n.rng)
}

// mayLose reports whether every group would keep a majority with all data without a node's disk.
func (n *nemesis) mayLose(m *machine) bool {
	if slices.ContainsFunc(n.list, func(r running) bool { return !r.light }) {
		return false
	}
	for _, o := range n.w.there() {
		if o.node == nil {
			return false
		}
	}
	for p := range n.w.cfg.Partitions + 1 {
		if !n.w.bears(fsm.PartitionID(p), m.id) {
			return false
		}
	}
	return true
}

// bears reports whether a group can lose a node: all its voters work and have caught up, and a majority remains.
func (w *world) bears(p fsm.PartitionID, lost fsm.NodeID) bool {
	leader := w.leaderOf(p)
	if leader == nil {
		return false
	}
	st := leader.node.host.Replica(p).Status()
	left := len(st.Voters)
	if slices.Contains(st.Voters, lost) {
		left--
	}
	if st.Changing || st.Configured == 0 || left <= len(st.Voters)/2 {
		return false
	}
	return !slices.ContainsFunc(st.Voters, func(v fsm.NodeID) bool {
		s, ok := w.statusOf(v, p)
		return !ok || s.Failure != "" || s.Applied+closeBehind < st.Committed
	})
}

// statusOf returns what a node says of its replica of a partition; false if it has none.
func (w *world) statusOf(id fsm.NodeID, p fsm.PartitionID) (replica.Status, bool) {
	m := w.computerOf(id)
	if m == nil || m.node == nil {
		return replica.Status{}, false
	}
	r := m.node.host.Replica(p)
	if r == nil {
		return replica.Status{}, false
	}
	return r.Status(), true
}

// away ends a process for so long that others may take its places.
func (n *nemesis) away(m *machine) func() {
	if n.rng.IntN(2) == 0 {
		return n.restart(m)
	}
	return n.kill(m)
}

// loseZone takes the power from all machines of a zone.
func (n *nemesis) loseZone(m *machine) func() {
	if m.zone == "" {
		return nil
	}
	var ends []func()
	for _, o := range n.w.there() {
		if o.zone == m.zone && o.node != nil {
			ends = append(ends, n.power(o))
		}
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// rebalance hands leaderships to the nodes that should have them.
func (n *nemesis) rebalance(m *machine) func() {
	v := m.node.directory.View()
	if v == nil {
		return nil
	}
	for _, g := range v.Groups() {
		ctx, cancel := context.WithTimeout(context.Background(), wishLimit)
		err := m.node.host.TransferLeadership(ctx, g.ID, g.Members[0])
		cancel()
		if err == nil {
			n.w.c.add("leadership transfers", 1)
		} else {
			n.w.event("rebalance: partition %d: %v", g.ID, err)
		}
	}
	return func() {}
}

// rehome moves a queue with one share to a partition that it is not in.
func (n *nemesis) rehome(m *machine) func() {
	v := m.node.directory.View()
	if v == nil {
		return nil
	}
	queues := slices.DeleteFunc(v.List(fsm.Queue, 0, -1), func(d *fsm.Descriptor) bool { return len(d.Partitions) != 1 })
	groups := v.Groups()
	if len(queues) == 0 || len(groups) < 2 {
		return nil
	}
	d := queues[n.rng.IntN(len(queues))]
	groups = slices.DeleteFunc(groups, func(g catalog.Group) bool { return g.ID == d.Partitions[0] })
	to := groups[n.rng.IntN(len(groups))].ID
	ctx, cancel := context.WithTimeout(context.Background(), wishLimit)
	defer cancel()
	moves, err := m.node.directory.Rehome(ctx, d.Name, to, false)
	if n.w.event("an operator moves %s from %v to partition %d: %v", d.Name, d.Partitions, to, err); err == nil {
		n.w.c.add("moves of shares begun", len(moves))
	}
	return func() {}
}

// orders has operators say again what they want, until the catalog knows all of it (I26). A cluster in which a founder died
// early takes no wish until it has its first version. It gets that when the founder has been silent for ReplaceAfter.
func (n *nemesis) orders() error {
	return within(n.w.homesLimit(), func(ctx context.Context) error {
		leader := n.w.leaderOf(fsm.CatalogPartition)
		if leader == nil {
			return errors.New("I26: the catalog has no leader")
		}
		// A leader may not have applied yet what is committed.
		if err := leader.node.host.Replica(fsm.CatalogPartition).Barrier(ctx, 0); err != nil {
			return fmt.Errorf("I26: no node says what is wanted: %w", err)
		}
		v := leader.node.directory.View()
		for _, m := range n.w.machines() {
			if row, known := v.Node(m.id); known && row.Wish != m.wish {
				if err := n.want(m, m.wish); err != nil {
					return fmt.Errorf("I26: an operator is not heard: %w", err)
				}
			}
		}
		return nil
	})
}
