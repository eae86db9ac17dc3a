package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
)

const (
	// homesBase is how long after the last fault every replica must be where it should be (I27). Replicas move one after
	// the other, so each of them adds homesEach.
	homesBase = 90 * time.Second
	homesEach = 20 * time.Second
	// closeBehind is how many entries a replica may be behind under load and count as one that has caught up.
	closeBehind = 64
)

// homesLimit is the bound of I27, I29 and I30. Nodes that never come back are replaced after ReplaceAfter.
func (w *world) homesLimit() time.Duration {
	moves := w.cfg.Partitions * w.cfg.Replicas
	return homesBase + w.cfg.partition.ReplaceAfter + time.Duration(moves)*homesEach
}

// homes waits until every replica, every vote and every node is where it should be.
func (n *nemesis) homes() error {
	w, began := n.w, time.Now()
	err := within(w.homesLimit(), func(context.Context) error {
		w.heal()
		n.switchOff()
		return w.misplaced()
	})
	w.c.add("seconds until the replicas were back", int(time.Since(began).Seconds()))
	if err != nil {
		return fmt.Errorf("%w, %v after the faults", err, w.homesLimit())
	}
	return nil
}

// breach is an error that names the invariant that does not hold.
type breach struct {
	invariant string
	err       error
}

// breaks returns a breach.
func breaks(invariant, format string, args ...any) error {
	return &breach{invariant, fmt.Errorf(format, args...)}
}

// Error implements error.
func (b *breach) Error() string { return b.invariant + ": " + b.err.Error() }

// Unwrap returns what is wrong.
func (b *breach) Unwrap() error { return b.err }

// placement is what the catalog wants, and the nodes that can have it.
type placement struct {
	w    *world
	v    *catalog.View
	able map[fsm.NodeID]bool // runs, and is not to be empty
}

// misplaced returns what is not where it should be, nil if all is.
func (w *world) misplaced() error {
	pl := &placement{w: w, v: w.view(), able: map[fsm.NodeID]bool{}}
	if pl.v == nil {
		return breaks("I27", "no node has a catalog")
	}
	for _, m := range w.there() {
		row, known := pl.v.Node(m.id)
		if m.node == nil || !known {
			return breaks("I27", "%s runs: %v, is in the catalog: %v", m.id, m.node != nil, known)
		}
		if !row.Leaves() {
			pl.able[m.id] = true
		}
	}
	for _, g := range pl.v.Groups() {
		if err := pl.group(g); err != nil {
			return breaks("I27", "partition %d, members %v: %w", g.ID, g.Members, err)
		}
	}
	for _, r := range pl.v.Rehomings() {
		if r.Active() {
			return breaks("I27", "share %d of entity %d moves from partition %d to %d: %s", r.Share, r.ID, r.From, r.To, r.Step)
		}
	}
	if err := pl.level(); err != nil {
		return err
	}
	return pl.electorate()
}

// free counts the nodes that can hold replicas and are not among some.
func (pl *placement) free(members []fsm.NodeID) (count int) {
	for n := range pl.able { // order-free: only counts
		if !slices.Contains(members, n) {
			count++
		}
	}
	return count
}

// group returns why a partition does not have its replicas. A node that is to be empty keeps its replicas only if no
// other node is free.
func (pl *placement) group(g catalog.Group) error {
	if want := min(pl.w.cfg.Replicas, len(pl.able)); len(g.Members) < want {
		return fmt.Errorf("%d replicas of %d", len(g.Members), want)
	}
	free := pl.free(g.Members)
	for _, n := range g.Members {
		if m := pl.w.computerOf(n); m.over.Load() || m.out.Load() {
			if free > 0 || m.wish == catalog.Gone {
				return fmt.Errorf("%s is gone for good", n)
			}
			continue // nobody can take its place, and no operator has given it up
		}
		if !pl.able[n] && free > 0 {
			return fmt.Errorf("%s is to be empty, and %d nodes are free", n, free)
		}
	}
	leader := pl.w.leaderOf(g.ID)
	if leader == nil {
		return fmt.Errorf("no leader")
	}
	st := leader.node.host.Replica(g.ID).Status()
	if st.Changing || len(st.Nonvoters) > 0 || !same(st.Voters, g.Members) {
		return fmt.Errorf("voters %v, without a vote %v, changing %v", st.Voters, st.Nonvoters, st.Changing)
	}
	if free := pl.emptyZone(g.Members); free != "" && pl.crowded(g.Members) {
		return fmt.Errorf("two replicas stand in one zone, and %s in a zone without one", free)
	}
	if !pl.able[leader.id] && slices.ContainsFunc(g.Members, func(n fsm.NodeID) bool { return pl.able[n] }) {
		return fmt.Errorf("%s leads and is to lead nothing", leader.id)
	}
	return pl.holders(g, &st)
}

// crowded reports whether two of the nodes stand in one zone.
func (pl *placement) crowded(nodes []fsm.NodeID) bool {
	in := map[string]bool{}
	for _, n := range nodes {
		zone := pl.w.computerOf(n).zone
		if in[zone] {
			return zone != ""
		}
		in[zone] = true
	}
	return false
}

// emptyZone returns a node that can hold more and stands in a zone in which none of the others does, "" if there is none.
func (pl *placement) emptyZone(others []fsm.NodeID) fsm.NodeID {
	for _, m := range pl.w.there() {
		if pl.able[m.id] && m.zone != "" && !slices.ContainsFunc(others, func(n fsm.NodeID) bool {
			return pl.w.computerOf(n).zone == m.zone
		}) {
			return m.id
		}
	}
	return ""
}

// holders returns which node should have a working replica and has none, or has one and should not.
func (pl *placement) holders(g catalog.Group, leader *replica.Status) error {
	for _, m := range pl.w.machines() {
		st, holds := pl.w.statusOf(m.id, g.ID)
		switch member := slices.Contains(g.Members, m.id); {
		case member && m.over.Load(): // group has judged it
		case member && !holds:
			return fmt.Errorf("%s holds no replica", m.id)
		case member && (st.Failure != "" || st.Applied+closeBehind < leader.Committed):
			return fmt.Errorf("%s has applied %d of %d: %s", m.id, st.Applied, leader.Committed, st.Failure)
		case !member && holds && !m.out.Load():
			return fmt.Errorf("%s holds a replica, and is no member", m.id)
		}
	}
	return nil
}

// level returns why replicas and preferred leaders are not spread evenly over the nodes that can have them.
func (pl *placement) level() error {
	load, leads := map[fsm.NodeID]int{}, map[fsm.NodeID]int{}
	for n := range pl.able { // order-free: fills maps
		load[n], leads[n] = 0, 0
	}
	for _, g := range pl.v.Groups() {
		for _, n := range g.Members {
			load[n]++
		}
		leads[g.Members[0]]++
	}
	for what, count := range map[string]map[fsm.NodeID]int{"replicas": load, "preferred leaders": leads} {
		maps.DeleteFunc(count, func(n fsm.NodeID, _ int) bool { return !pl.able[n] })
		most, least := 0, pl.v.GroupCount()
		for _, c := range count { // order-free: extremes
			most, least = max(most, c), min(least, c)
		}
		if most > least+1 && pl.w.cfg.Zones == 0 { // zones come before an even load
			return breaks("I27", "%s are not level: %v", what, count)
		}
	}
	return nil
}

// electorate returns why the catalog does not have the voters that it should (I29), or has forgotten nodes (I30).
func (pl *placement) electorate() error {
	leader := pl.w.leaderOf(fsm.CatalogPartition)
	if leader == nil {
		return breaks("I29", "the catalog has no leader")
	}
	st := leader.node.host.Replica(fsm.CatalogPartition).Status()
	for _, n := range slices.Concat(st.Voters, st.Nonvoters) {
		if m := pl.w.computerOf(n); (pl.v.IsRemoved(n) || m.over.Load() || m.out.Load()) && !pl.irreplaceable(m, &st) {
			return breaks("I30", "%s is gone for good and belongs to the catalog: voters %v, without a vote %v", n, st.Voters,
				st.Nonvoters)
		}
	}
	placed := control.Placed(pl.v)
	want := control.CatalogVotes(len(placed), catalogVoters)
	if len(placed) == 2 && len(st.Voters) == 2 { // one alone would hold what the catalog has answered
		want = 2
	}
	if st.Changing || len(st.Voters) != want {
		return breaks("I29", "%d nodes of %d with a place vote in the catalog, not %d: %v, changing %v", len(st.Voters),
			len(placed), want, st.Voters, st.Changing)
	}
	for _, n := range st.Voters {
		if !placed[n] {
			return breaks("I29", "%s votes in the catalog and has no place", n)
		}
	}
	for _, m := range pl.w.there() {
		if !slices.Contains(slices.Concat(st.Voters, st.Nonvoters), m.id) {
			return breaks("I29", "%s does not belong to the catalog", m.id)
		}
		if _, known := pl.v.Node(m.id); known && m.wish == catalog.Remove && len(pl.able) >= pl.w.cfg.Replicas {
			return breaks("I30", "%s is to be removed and is in the cluster", m.id)
		}
	}
	for _, row := range pl.v.Nodes() {
		if row.Wish == catalog.Gone {
			return breaks("I30", "%s is gone for good and in the catalog", row.ID)
		}
	}
	return nil
}

// enoughVoters is how many nodes vote in the catalog before it does without one that is lost.
const enoughVoters = 3

// irreplaceable reports whether a node that is lost keeps its vote in the catalog rightly. Then no operator has given it up,
// no other node can vote in its place, and too few nodes would vote without it.
func (pl *placement) irreplaceable(m *machine, st *replica.Status) bool {
	if pl.v.IsRemoved(m.id) || m.wish == catalog.Gone || !slices.Contains(st.Voters, m.id) {
		return false
	}
	return pl.free(st.Voters) == 0 && len(pl.able) < enoughVoters
}

// same reports whether two lists name the same nodes.
func same(a, b []fsm.NodeID) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
