package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// publishTimeout bounds how long a change of the catalog waits for nodes that lag behind. A node that hangs must not
// hold up an administrator at another.
const publishTimeout = time.Second

// announce makes every share of the entities apply a command (A2), while all nodes take in the change
// of the catalog that it comes from.
func (d *Directory) announce(ctx context.Context, c fsm.Command, es ...*fsm.Descriptor) error {
	published := make(chan struct{})
	go func() { defer close(published); d.publish(ctx) }()
	var errs []error
	for _, e := range es {
		errs = append(errs, d.spread(ctx, e, c))
	}
	<-published
	return errors.Join(errs...)
}

// publish waits until the catalog of every node that answers is as new as group 0 is now. A client that has changed
// an entity through one node uses it at once through any other. There the copy of the catalog decides what may
// attach. A node that does not answer in time follows by itself.
func (d *Directory) publish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	index, err := d.newest(ctx)
	if err != nil {
		d.host.deps.Log.Debug("a change of the catalog was not published", "error", err)
		return
	}
	b := binary.BigEndian.AppendUint64(nil, index)
	var wg sync.WaitGroup
	for _, n := range d.membersOf(fsm.CatalogPartition) {
		wg.Go(func() {
			if _, err := d.host.deps.Caller.Call(ctx, n, KindCatalog, b); err != nil {
				d.host.deps.Log.Debug("catalog of a node lags behind", "peer", n, "error", err)
			}
		})
	}
	wg.Wait()
}

// serveCatalog answers when the catalog here is as new as the caller says.
func (h *Host) serveCatalog(ctx context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	if len(b) != 8 {
		return nil, fmt.Errorf("index of the catalog of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	if !h.allowed(from) {
		return nil, fmt.Errorf("node %s: %w", from, raftnet.ErrSilent)
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return nil, h.catalogAt(ctx, binary.BigEndian.Uint64(b))
}

// newest returns an index of group 0 behind which a catalog is as of now.
func (d *Directory) newest(ctx context.Context) (index uint64, err error) {
	var a attempts
	err = d.send.do(ctx, fsm.CatalogPartition, &a, func(ctx context.Context, g Group) (err error) {
		index, err = g.ReadIndex(ctx)
		return err
	}, nil)
	if err != nil {
		return 0, fmt.Errorf("ask the catalog: %w", err)
	}
	return index, nil
}

// catchUp waits until the catalog here is at least as new as group 0 was when it was called.
func (d *Directory) catchUp(ctx context.Context) error {
	index, err := d.newest(ctx)
	if err != nil {
		return err
	}
	return d.host.catalogAt(ctx, index)
}

// catalogAt waits until the catalog here has applied the entry of an index.
func (h *Host) catalogAt(ctx context.Context, index uint64) error {
	for {
		changed := h.catalogChanged.wait()
		r := h.Replica(fsm.CatalogPartition)
		if r == nil {
			return fmt.Errorf("no catalog on this node: %w", fsm.ErrUnavailable)
		}
		if r.Applied() >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("catalog here lags behind: %w: %w", fsm.ErrUnavailable, ctx.Err())
		}
	}
}
