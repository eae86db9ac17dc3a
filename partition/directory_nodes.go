package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Wish sets what an operator wants of a node. It is refused while a node of the cluster does not know such changes.
func (d *Directory) Wish(ctx context.Context, n fsm.NodeID, w catalog.Wish) error {
	if err := d.catchUp(ctx); err != nil {
		return err
	}
	v := d.View()
	_, err := d.change(ctx, &catalog.Change{Wish: &catalog.NodeWish{ID: n, Wish: w}})
	switch {
	case errors.Is(err, fsm.ErrVersion) && v != nil && v.ClusterVersion() == fsm.VersionFirst:
		return fmt.Errorf("node %s: the cluster has no version yet, and gets its first one by itself when every node has told its "+
			"program: %s: %w", n, d.awaited(d.Programs(ctx)), firstVersionError{err})
	case errors.Is(err, fsm.ErrVersion):
		return fmt.Errorf("node %s: %w; %s", n, err, Behind(d.Programs(ctx), d.host.cfg.Knows))
	case err != nil:
		return fmt.Errorf("node %s: %w", n, err)
	}
	return nil
}

// firstVersionError is a refusal of a cluster without a version, whose own text speaks of upgrades.
type firstVersionError struct{ error }

// Error is short: the text before it says what to do.
func (firstVersionError) Error() string { return "ask again then" }

// Unwrap returns the refusal.
func (e firstVersionError) Unwrap() error { return e.error }

// awaited names the nodes because of which a cluster has no first version yet. No wish is taken until then, so forgetting a
// node is no cure.
func (d *Directory) awaited(all []Program) string {
	var out []string
	for _, p := range all {
		switch {
		case p.Err != nil:
			out = append(out, fmt.Sprintf("node %s (%s) does not answer: start it, or wait until it has been silent for %v, then it "+
				"is left out", p.ID, p.Name, d.host.cfg.ReplaceAfter))
		case p.Knows <= fsm.VersionFirst:
			out = append(out, fmt.Sprintf("node %s (%s) runs a program from before cluster versions: run release %s or later on it", p.ID,
				p.Name, d.host.cfg.Knows.Release()))
		}
	}
	if len(out) == 0 {
		return "all have, and it comes within seconds"
	}
	return strings.Join(out, "; ")
}

// Program is the program of a node, as the node says.
type Program struct {
	catalog.Node
	// Release is the program's own version, "" if the program does not tell it.
	Release string
	// Knows is the newest cluster version that the program knows.
	Knows fsm.Version
	// Err is why the node did not answer.
	Err error
}

// Programs asks every node of the catalog for its program.
func (d *Directory) Programs(ctx context.Context) []Program {
	v := d.View()
	if v == nil {
		return nil
	}
	nodes := v.Nodes()
	out := make([]Program, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			ask, cancel := context.WithTimeout(ctx, targetTimeout)
			defer cancel()
			out[i].Node = n
			all, err := askStatus(ask, d.host.deps.Caller, n.ID)
			if out[i].Err = err; err == nil {
				out[i].Knows, out[i].Release = programOf(all)
			}
		})
	}
	wg.Wait()
	return out
}

// programOf returns what a node told with the status of its replica of the catalog.
func programOf(all []replica.Status) (fsm.Version, string) {
	for i := range all {
		if all[i].Partition == fsm.CatalogPartition {
			return all[i].CatalogLevel, all[i].Program
		}
	}
	return fsm.VersionFirst, ""
}

// Behind names the nodes because of which a cluster cannot have a version, "" if there are none.
func Behind(all []Program, to fsm.Version) string {
	var out []string
	for _, p := range all {
		switch {
		case p.Err != nil:
			out = append(out, fmt.Sprintf("node %s (%s) does not answer, so its program is not known: start it, or take it "+
				"out by busbar cluster forget", p.ID, p.Name))
		case p.Knows < to:
			out = append(out, fmt.Sprintf("node %s (%s) knows cluster versions up to %s: run release %s or later on it", p.ID,
				p.Name, p.Knows, to.Release()))
		}
	}
	return strings.Join(out, "; ")
}

// ErrNotFinalized says why the cluster version was not raised.
var ErrNotFinalized = errors.New("the cluster version was not raised")

// Finalize raises the cluster version to the highest that every node knows, and returns it. From then on no node starts
// with an earlier program. It is refused while a node does not answer, or if no higher version is known to all.
func (d *Directory) Finalize(ctx context.Context) (fsm.Version, error) {
	v, err := d.current(ctx)
	if err != nil {
		return 0, err
	}
	has, to := v.ClusterVersion(), d.host.cfg.Knows
	all := d.Programs(ctx)
	var ids []fsm.NodeID
	heard := []catalog.Life{}
	for _, p := range all {
		if p.Err == nil {
			to = min(to, p.Knows)
		}
		ids, heard = append(ids, p.ID), append(heard, catalog.Life{ID: p.ID, Incarnation: p.Incarnation})
	}
	switch {
	case has >= d.host.cfg.Knows:
		return has, nil
	case Behind(all, to) != "": // somebody does not answer
		return has, fmt.Errorf("%w: %s", ErrNotFinalized, Behind(all, to))
	case to <= has:
		return has, fmt.Errorf("%w: %s", ErrNotFinalized, Behind(all, d.host.cfg.Knows))
	}
	if err := d.host.AdmitVersion(ctx, ids, to); err != nil {
		return has, fmt.Errorf("%w: %w", ErrNotFinalized, err)
	}
	raise := &catalog.Change{Raise: to}
	if to >= fsm.VersionUpgrades {
		raise.Heard = heard
	}
	if _, err := d.change(ctx, raise); err != nil {
		return has, fmt.Errorf("%w: %w", ErrNotFinalized, err)
	}
	d.publish(ctx)
	return to, nil
}
