package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// clusterVersion is what this node has heard of the cluster version, and has told its data directory. It rises only.
type clusterVersion struct {
	known atomic.Uint32
	mu    sync.Mutex // held while the data directory is told
}

// keepAgain is the pause before a data directory that could not be told the cluster version is told again.
const keepAgain = time.Second

// ClusterVersion returns the cluster version as the catalog here has it. It may lag behind, and is never too high.
func (h *Host) ClusterVersion() fsm.Version { return fsm.Version(h.version.known.Load()) }

// followVersion takes over the cluster version whenever the catalog here changes.
func (h *Host) followVersion() {
	for {
		changed := h.CatalogChanged() // before looking, then nothing is missed
		var again <-chan time.Time
		if err := h.adoptVersion(); err != nil {
			h.deps.Log.Warn("the data directory was not told the cluster version; it is told again", "error", err)
			again = time.After(keepAgain)
		}
		select {
		case <-changed:
		case <-again:
		case <-h.stop:
			return
		}
	}
}

// adoptVersion takes over the cluster version of the catalog here, once the data directory knows it.
func (h *Host) adoptVersion() error {
	v := h.catalog()
	if v == nil || v.ClusterVersion() <= h.ClusterVersion() {
		return nil
	}
	to := v.ClusterVersion()
	if err := h.keepVersion(to); err != nil {
		return err
	}
	h.version.mu.Lock()
	defer h.version.mu.Unlock()
	if to > h.ClusterVersion() {
		h.version.known.Store(uint32(to))
		h.deps.Log.Info("cluster version", "version", to.String())
	}
	return nil
}

// keepVersion has the data directory tell that what came with a version may be in it.
func (h *Host) keepVersion(to fsm.Version) error {
	h.version.mu.Lock()
	defer h.version.mu.Unlock()
	if h.deps.KeepVersion == nil || to < fsm.VersionUpgrades { // programs before that do not know such a directory
		return nil
	}
	if err := h.deps.KeepVersion(to); err != nil {
		return fmt.Errorf("keep cluster version %s: %w", to, err)
	}
	return nil
}

// mayPropose returns why a command must not be sent to a leader yet, nil if it may. The catalog here is read once more
// before the answer is no.
func (h *Host) mayPropose(c fsm.Command) error {
	err := replica.TooNew(c, h.ClusterVersion())
	if err == nil {
		return nil
	}
	if fault := h.adoptVersion(); fault != nil {
		return errors.Join(err, fault)
	}
	return replica.TooNew(c, h.ClusterVersion())
}

// versionedCaller makes no call that a node of the cluster might not know.
type versionedCaller struct {
	Caller
	h     *Host
	since [256]fsm.Version // by kind
}

func newVersionedCaller(c Caller, h *Host) *versionedCaller {
	v := &versionedCaller{Caller: c, h: h}
	for _, call := range fsm.Calls() {
		v.since[call.Kind] = call.Since
	}
	return v
}

func (c *versionedCaller) check(kind uint8) error {
	if needs, has := c.since[kind], c.h.ClusterVersion(); needs > has {
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable,
			&fsm.VersionError{What: fmt.Sprintf("call %d of nodes", kind), Needs: needs, Has: has})
	}
	return nil
}

// Call implements Caller.
func (c *versionedCaller) Call(ctx context.Context, to fsm.NodeID, kind uint8, request []byte) ([]byte, error) {
	if err := c.check(kind); err != nil {
		return nil, err
	}
	return c.Caller.Call(ctx, to, kind, request)
}

// Begin implements Caller.
func (c *versionedCaller) Begin(to fsm.NodeID, kind uint8, request []byte, done func([]byte, error)) (func(error), bool) {
	if c.check(kind) != nil {
		return nil, false // Call tells why
	}
	return c.Caller.Begin(to, kind, request, done)
}

// CallStream implements Caller.
func (c *versionedCaller) CallStream(ctx context.Context, to fsm.NodeID, kind uint8, header []byte, body io.Reader) (
	[]byte, error) {
	if err := c.check(kind); err != nil {
		return nil, err
	}
	return c.Caller.CallStream(ctx, to, kind, header, body)
}

// admitTimeout bounds the writing of a small file on another node.
const admitTimeout = 5 * time.Second

// AdmitVersion has nodes tell their data directories a version before the cluster gets it. From then on none of them
// starts with a program that does not know it. Each must have said that its program does.
func (h *Host) AdmitVersion(ctx context.Context, nodes []fsm.NodeID, to fsm.Version) error {
	if to < fsm.VersionUpgrades { // whose nodes do not know the call
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	b := binary.BigEndian.AppendUint32(nil, uint32(to))
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			// Not by the versioned caller: the nodes know the call, the cluster is about to.
			if _, err := h.unversioned.Call(ctx, n, KindVersion, b); err != nil {
				errs[i] = fmt.Errorf("node %s does not take cluster version %s: %w", n, to, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// serveVersion tells the data directory here a version that the cluster is about to get.
func (h *Host) serveVersion(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	if len(b) != 4 {
		return nil, fmt.Errorf("cluster version of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	to := fsm.Version(binary.BigEndian.Uint32(b))
	switch {
	case !h.allowed(from):
		return nil, fmt.Errorf("node %s is no member of the cluster", from)
	case to < fsm.VersionUpgrades || to > h.cfg.Knows:
		return nil, fmt.Errorf("cluster version %s is not known here, versions up to %s are", to, h.cfg.Knows)
	}
	return nil, h.keepVersion(to)
}
