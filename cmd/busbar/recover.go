package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// candidate is the replica of a group in one data directory.
type candidate struct {
	node fsm.NodeID
	path string
	replica.Survivor
}

// recoverDirs looks at the groups in the directories of stopped nodes, and with apply recovers those without a majority.
func recoverDirs(ctx context.Context, dirs []string, store string, apply bool) (out []client.RecoveredGroup, err error) {
	nodes := map[string]stoppedNode{} // by path
	defer func() {
		for _, n := range nodes {
			err = errors.Join(err, n.dir.Close())
		}
	}()
	found := map[fsm.PartitionID][]candidate{}
	for _, path := range dirs {
		if _, twice := nodes[path]; twice {
			continue
		}
		n, err := openStopped(path, store)
		if err != nil {
			return nil, err
		}
		nodes[path] = n
		if err := survey(n, found); err != nil {
			return nil, err
		}
	}
	out = judgeGroups(found)
	if err := addCatalog(ctx, &out, nodes); err != nil {
		return nil, err
	}
	if !apply {
		return out, nil
	}
	for i := range out {
		if err := recoverGroup(&out[i], nodes); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// survey adds the replicas of one node.
func survey(n stoppedNode, found map[fsm.PartitionID][]candidate) error {
	ids, err := n.dir.Groups()
	if err != nil {
		return fmt.Errorf("%s: %w", n.path, err)
	}
	for _, id := range ids {
		p := fsm.PartitionID(id)
		s, err := openStores(n.dir, p)
		if err != nil {
			return fmt.Errorf("%s, partition %d: %w", n.path, p, err)
		}
		known, err := replica.Survey(s)
		if err = errors.Join(err, s.Close()); err != nil {
			return fmt.Errorf("%s, partition %d: %w", n.path, p, err)
		}
		if !known.Blank() {
			found[p] = append(found[p], candidate{fsm.NodeID(n.dir.NodeID()), n.path, known})
		}
	}
	return nil
}

// judgeGroups decides about each group. The replica with most of the log knows the voters best.
func judgeGroups(found map[fsm.PartitionID][]candidate) (out []client.RecoveredGroup) {
	for p, all := range found { // sorted below
		best := &all[0]
		for i := range all {
			if best.Behind(&all[i].Survivor) {
				best = &all[i]
			}
		}
		g := client.RecoveredGroup{Partition: p, Node: best.node, DataDir: best.path, Last: best.Last, Voters: best.Voters}
		if best.Written > 0 {
			at := time.UnixMilli(int64(best.Written)).UTC()
			g.Written = &at
		}
		present := 0
		for _, v := range best.Voters {
			if slices.ContainsFunc(all, func(c candidate) bool { return c.node == v }) {
				present++
			} else {
				g.Missing = append(g.Missing, v)
			}
		}
		g.Verdict = client.VerdictWhole
		if 2*present <= len(best.Voters) {
			g.Verdict = client.VerdictRecover
			for _, c := range all {
				if c.path != best.path {
					g.Rebuilt = append(g.Rebuilt, c.path)
				}
			}
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b client.RecoveredGroup) int { return int(a.Partition) - int(b.Partition) })
	return out
}

// addCatalog names the entities of each partition, and adds the partitions of which no replica is at hand.
func addCatalog(ctx context.Context, out *[]client.RecoveredGroup, nodes map[string]stoppedNode) error {
	at := slices.IndexFunc(*out, func(g client.RecoveredGroup) bool { return g.Partition == fsm.CatalogPartition })
	if at < 0 {
		return errors.New("no directory holds a replica of the catalog, which every node has: give the directory of one that was a member")
	}
	n := nodes[(*out)[at].DataDir]
	s, err := openStores(n.dir, fsm.CatalogPartition)
	if err != nil {
		return fmt.Errorf("%s, catalog: %w", n.path, err)
	}
	m, err := replica.Replay(ctx, fsm.CatalogPartition, s, func() replica.Machine { return newMachine(fsm.CatalogPartition) })
	if err = errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("%s, catalog: %w", n.path, err)
	}
	state, ok := m.(*catalog.State)
	if !ok {
		return fmt.Errorf("%s, catalog: a state of type %T", n.path, m)
	}
	view := state.View()
	for _, g := range view.Groups() {
		i := slices.IndexFunc(*out, func(r client.RecoveredGroup) bool { return r.Partition == g.ID })
		if i < 0 {
			*out = append(*out, client.RecoveredGroup{Partition: g.ID, Verdict: client.VerdictLost, Voters: g.Members, Missing: g.Members})
			i = len(*out) - 1
		}
		view.SharesOf(g.ID, func(d *fsm.Descriptor) bool {
			(*out)[i].Entities = append((*out)[i].Entities, d.Name)
			return true
		})
	}
	return nil
}

// recoverGroup makes the best replica of a group without a majority its only voter. The others at hand are deleted, so
// that they begin anew and can never vote with what they had.
func recoverGroup(g *client.RecoveredGroup, nodes map[string]stoppedNode) error {
	if g.Verdict != client.VerdictRecover {
		return nil
	}
	// They go first: a replica that is alone has a majority, so a second run would leave them as they are.
	for _, path := range g.Rebuilt {
		if err := nodes[path].dir.Rebuild(uint16(g.Partition), g.Last+1); err != nil {
			return fmt.Errorf("%s, partition %d: %w", path, g.Partition, err)
		}
	}
	s, err := openStores(nodes[g.DataDir].dir, g.Partition)
	if err != nil {
		return fmt.Errorf("%s, partition %d: %w", g.DataDir, g.Partition, err)
	}
	_, err = replica.RecoverAlone(s, g.Node)
	if err = errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("%s, partition %d: %w", g.DataDir, g.Partition, err)
	}
	return nil
}
