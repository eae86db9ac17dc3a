package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// reconciler makes the partitions led here agree with the catalog (A2). The leader proposes what its partition has
// missed, so Apply depends on the partition's own log alone.
type reconciler struct {
	done map[fsm.PartitionID]reconciled
}

// reconciled is what a partition was last compared with.
type reconciled struct {
	epoch   uint64
	version uint64 // of the catalog
	lost    map[fsm.Incarnation]bool
	at      time.Time
}

const (
	// reconcileEvery is how often a partition is compared although nothing seems to have changed. A PutEntity that
	// was under way when its entity was deleted leaves a share without an entity.
	reconcileEvery = 30 * time.Second
	// reconcileWidth bounds the proposals under way per partition.
	reconcileWidth = 64
	// reconcileTimeout bounds one comparison; the next one continues.
	reconcileTimeout = 10 * time.Second
)

// step compares every partition that is led here and may differ.
func (r *reconciler) step(ctx context.Context, f Facts) {
	v := f.View
	for _, rep := range f.Replicas {
		if rep.ID() == fsm.CatalogPartition || !rep.Leading() || ctx.Err() != nil {
			continue
		}
		epoch, ok := rep.Led()
		last := r.done[rep.ID()]
		if !ok || last.epoch == epoch && last.version == v.Version() &&
			time.Since(last.at) < reconcileEvery {
			continue
		}
		next := reconciled{epoch: epoch, version: v.Version(), at: time.Now(), lost: last.lost}
		if last.epoch != epoch {
			next.lost = map[fsm.Incarnation]bool{}
		}
		if err := r.reconcile(ctx, rep, v, next.lost); err != nil {
			rep.Log().Debug("reconciliation is not complete", "error", err)
			continue
		}
		r.done[rep.ID()] = next
	}
}

// reconcile proposes what rep lacks or has too much.
func (r *reconciler) reconcile(ctx context.Context, rep *replica.Replica, v *catalog.View,
	told map[fsm.Incarnation]bool) error {
	missing := missingOf(rep, v)
	for _, i := range v.Lost() {
		if !told[i] {
			missing = append(missing, fsm.Request{Command: &fsm.NodeLost{Node: i}})
		}
	}
	if err := proposeAll(ctx, rep, missing); err != nil {
		return err
	}
	for _, i := range v.Lost() {
		told[i] = true
	}
	return nil
}

// missingOf compares what the partition knows with the catalog.
func missingOf(rep *replica.Replica, v *catalog.View) []fsm.Request {
	var known []fsm.KnownEntity
	tells := false
	rep.View(func(m replica.Machine, _ uint64) {
		if k, ok := m.(replica.Knower); ok {
			known, tells = k.Known(), true
		}
	})
	if !tells {
		return nil
	}
	return missing(rep.ID(), known, v)
}

// missing returns what a partition that knows some entities lacks or has too much.
func missing(p fsm.PartitionID, known []fsm.KnownEntity, v *catalog.View) []fsm.Request {
	versions := make(map[fsm.EntityID]uint64, len(known))
	for _, k := range known {
		versions[k.ID] = max(versions[k.ID], k.Version)
	}
	var out []fsm.Request
	v.SharesOf(p, func(d *fsm.Descriptor) bool {
		if versions[d.ID] < d.Version {
			out = append(out, fsm.Request{Entity: d.ID, Command: &fsm.PutEntity{Descriptor: *d}})
		}
		return true
	})
	for _, k := range known {
		// The catalog here may lag behind. A view that is as new as the share's description has seen the entity
		// created, so only then its absence means that it was deleted.
		d := v.ByID(k.ID)
		switch since := max(k.Version, k.Arriving); {
		case since > v.Version():
		case d == nil:
			out = append(out, fsm.Request{Entity: k.ID, Command: &fsm.DropEntity{}})
		case k.Arriving != 0 && !slices.Contains(d.Partitions, p):
			// A share that came in vain, late steps of a move that is over included.
			if r, ok := v.Rehoming(k.ID); !ok || !r.Active() || r.Epoch != k.Arriving {
				out = append(out, fsm.Request{Entity: k.ID, Command: &fsm.Rehome{Step: fsm.RehomeDiscard, Epoch: k.Arriving}})
			}
		}
	}
	return out
}

// proposeAll proposes requests that change nothing when done twice.
func proposeAll(ctx context.Context, rep *replica.Replica, requests []fsm.Request) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	width := make(chan struct{}, reconcileWidth)
	errs := make([]error, len(requests))
	var wg sync.WaitGroup
	for i := range requests {
		width <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-width }()
			o, err := rep.Propose(ctx, requests[i])
			// Dropped meanwhile, or never known: nothing is left to do.
			fine := o.Refusal == fsm.None || o.Refusal == fsm.Stale || o.Refusal == fsm.EntityNotFound
			if err == nil && !fine {
				err = &fsm.RefusedError{Refusal: o.Refusal, Detail: o.Detail}
			}
			if err != nil {
				errs[i] = fmt.Errorf("entity %d: %w", requests[i].Entity, err)
			}
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}
