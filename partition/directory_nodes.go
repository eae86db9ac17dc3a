package partition

import (
	"context"
	"fmt"

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
	if v == nil || v.Level() < 1 {
		return d.behind(ctx, v)
	}
	if _, err := d.change(ctx, &catalog.Change{Wish: &catalog.NodeWish{ID: n, Wish: w}}); err != nil {
		return fmt.Errorf("node %s: %w", n, err)
	}
	return nil
}

// behind returns an error that names a node because of which the catalog's level does not rise.
func (d *Directory) behind(ctx context.Context, v *catalog.View) error {
	if v == nil {
		return fmt.Errorf("no catalog on this node: %w", fsm.ErrUnavailable)
	}
	for _, n := range v.Nodes() {
		ask, cancel := context.WithTimeout(ctx, targetTimeout)
		all, err := askStatus(ask, d.host.deps.Caller, n.ID)
		cancel()
		switch {
		case err != nil:
			return fmt.Errorf("node %s (%s) does not answer, so it is not known whether its program is new enough; "+
				"start it: %w", n.ID, n.Name, fsm.ErrUnavailable)
		case levelOf(all) < catalog.Level:
			return fmt.Errorf("the program of node %s (%s) is too old for this; upgrade it: %w", n.ID, n.Name,
				fsm.ErrUnavailable)
		}
	}
	return fmt.Errorf("the cluster has not agreed yet that every node knows this; ask again in a few seconds: %w",
		fsm.ErrUnavailable)
}

// levelOf returns the level that a node told with the status of its replica of the catalog.
func levelOf(all []replica.Status) uint32 {
	for i := range all {
		if all[i].Partition == fsm.CatalogPartition {
			return all[i].CatalogLevel
		}
	}
	return 0
}
