package partition

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/cluster/callnet"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// simulatesLong marks a test that simulates so much time that it takes about half a minute under the race detector. With -short
// only a build without the detector runs it (docs/testing.md).
func simulatesLong(t *testing.T) {
	if raceDetector && testing.Short() {
		t.Skip("with -short it runs without the race detector")
	}
}

var errDisk = errors.New("input/output error")

// memBodies is Bodies in memory. A snapshot holds all of them inline.
type memBodies struct {
	mu      sync.Mutex
	entries map[uint64][]byte
	live    map[uint64]int
	fail    error
	unread  error // a body cannot be read
	noRoom  error // a snapshot cannot be restored
}

func newMemBodies() *memBodies {
	return &memBodies{entries: map[uint64][]byte{}, live: map[uint64]int{}}
}

func (b *memBodies) Put(index uint64, e []byte, bodies []replica.Span) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	b.entries[index] = bytes.Clone(e)
	b.live[index] = 0
	for _, s := range bodies {
		b.live[index] += int(s.Length)
	}
	return nil
}

func (b *memBodies) Read(index uint64, off, n uint32) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unread != nil {
		return nil, b.unread
	}
	e, ok := b.entries[index]
	if !ok || int(off)+int(n) > len(e) {
		return nil, fmt.Errorf("no body %d/%d+%d: %w", index, off, n, fs.ErrNotExist)
	}
	return bytes.Clone(e[off : off+n]), nil
}

func (b *memBodies) Free(index uint64, _, n uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live[index] -= int(n)
	if b.live[index] < 0 {
		panic(fmt.Sprintf("entry %d is freed twice", index))
	}
	if b.live[index] == 0 {
		delete(b.live, index)
		delete(b.entries, index)
	}
}

type memPin struct{ bytes.Buffer }

func (*memPin) Close() error { return nil }

func (p *memPin) Inline(w io.Writer) (int64, error) {
	n, err := w.Write(p.Bytes())
	return int64(n), err
}

// eachMemBody is the BodyReader of what memBodies pins. A body is a whole entry.
func eachMemBody(r io.Reader, each func(uint64, uint32, []byte) error) error {
	entries, live := map[uint64][]byte{}, map[uint64]int{}
	whole, err := io.ReadAll(r)
	in := bytes.NewReader(whole) // a byte reader: the decoders take no more than theirs
	if err := errors.Join(err, gob.NewDecoder(in).Decode(&entries), gob.NewDecoder(in).Decode(&live)); err != nil {
		return err
	}
	for _, index := range slices.Sorted(maps.Keys(entries)) {
		if err := each(index, 0, entries[index]); err != nil {
			return err
		}
	}
	return nil
}

func (b *memBodies) Pin() interface {
	io.WriterTo
	Inline(io.Writer) (int64, error)
	io.Closer
} {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &memPin{}
	for _, v := range []any{b.entries, b.live} {
		if err := gob.NewEncoder(&p.Buffer).Encode(v); err != nil {
			panic(err)
		}
	}
	return p
}

func (b *memBodies) Restore(r io.Reader) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.noRoom != nil {
		return b.noRoom
	}
	b.entries, b.live = map[uint64][]byte{}, map[uint64]int{}
	whole, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	in := bytes.NewReader(whole) // a byte reader: the decoders take no more than theirs
	return errors.Join(gob.NewDecoder(in).Decode(&b.entries), gob.NewDecoder(in).Decode(&b.live))
}

// disk is what survives a restart of a test node's replica.
type disk struct {
	log    *faultyLog
	stable *raft.InmemStore
	snaps  *raft.InmemSnapshotStore
	bodies *memBodies // of the replica that was opened last

	rejoins bool
	removed uint64 // index of the last rebuild
	damaged error  // opening it fails
}

func newDisk() *disk {
	s := raft.NewInmemStore()
	return &disk{log: &faultyLog{LogStore: s}, stable: s, snaps: raft.NewInmemSnapshotStore()}
}

func (d *disk) stores() replica.Stores {
	d.bodies = newMemBodies()
	return replica.Stores{Log: d.log, Stable: d.stable, Snapshots: d.snaps, Bodies: d.bodies,
		Close: func() error { return nil }, Rejoins: d.rejoins}
}

// faultyLog is a log store that fails or hangs when told to.
type faultyLog struct {
	raft.LogStore
	mu    sync.Mutex
	err   error
	keep  bool          // keep the entries although an error is reported (R3)
	gate  chan struct{} // writes wait until it is closed
	delay *atomic.Int64 // nanoseconds that each write takes, nil for none
	// whole says that the store has no holes, as that of package storage: raft empties it when it
	// installs a snapshot.
	whole bool
}

// IsMonotonic implements raft.MonotonicLogStore.
func (l *faultyLog) IsMonotonic() bool { return l.whole }

func (l *faultyLog) set(f func(*faultyLog)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

// hang lets writes wait until they are released.
func (l *faultyLog) hang() (release func()) {
	gate := make(chan struct{})
	l.set(func(l *faultyLog) { l.gate = gate })
	return func() {
		l.set(func(l *faultyLog) { l.gate = nil })
		close(gate)
	}
}

func (l *faultyLog) StoreLogs(logs []*raft.Log) error {
	l.mu.Lock()
	err, keep, gate := l.err, l.keep, l.gate
	l.mu.Unlock()
	if l.delay != nil && l.delay.Load() > 0 {
		time.Sleep(time.Duration(l.delay.Load()))
	}
	if gate != nil {
		<-gate
	}
	if err != nil {
		if keep {
			return errors.Join(err, l.LogStore.StoreLogs(logs))
		}
		return err
	}
	return l.LogStore.StoreLogs(logs)
}

// hints is a Locator shared by all nodes of a test.
type hints struct {
	mu sync.Mutex
	m  map[fsm.PartitionID]hint
}

type hint struct {
	node fsm.NodeID
	term uint64
}

func (h *hints) Leader(p fsm.PartitionID) (fsm.NodeID, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, ok := h.m[p]
	return x.node, ok
}

func (h *hints) Announce(p fsm.PartitionID, n fsm.NodeID, term uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if term >= h.m[p].term {
		h.m[p] = hint{n, term}
	}
}

// testNode is one host with its disks.
type testNode struct {
	id    fsm.NodeID
	host  *Host
	port  *callnet.Port
	disks map[fsm.PartitionID]*disk
	lives Lives // nil unless a test is about them
	// rebuilds counts the calls that were heeded.
	rebuilds atomic.Int64
	delay    atomic.Int64 // nanoseconds that a write of a log takes
	mu       sync.Mutex   // of disks, while a host runs
	// kept is the cluster version that the data directory was told, keepFault why it cannot be told one.
	kept      fsm.Version
	keepFault error
}

// refuseVersions has the data directory refuse every cluster version; nil ends that.
func (n *testNode) refuseVersions(why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keepFault = why
}

// keptVersion is the cluster version that the data directory was told last.
func (n *testNode) keptVersion() fsm.Version {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kept
}

// keep is the data directory of a node that is told a cluster version.
func (n *testNode) keep(v fsm.Version) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.keepFault == nil {
		n.kept = max(n.kept, v)
	}
	return n.keepFault
}

// rebuild makes the disk of a partition empty.
func (n *testNode) rebuild(p fsm.PartitionID, removed uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.disks[p]
	if d != nil && removed <= d.removed {
		return fmt.Errorf("partition %d was rebuilt at %d before", p, d.removed)
	}
	n.rebuilds.Add(1)
	n.disks[p] = newDisk()
	n.disks[p].log.delay = &n.delay
	n.disks[p].rejoins, n.disks[p].removed = true, removed
	return nil
}

// quarantine marks the disk of a partition.
func (n *testNode) quarantine(p fsm.PartitionID, reason string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.disks[p].damaged = errors.New(reason)
	return nil
}

// testCluster is some hosts on one network.
type testCluster struct {
	t     testing.TB
	net   *callnet.Net
	hints *hints
	nodes map[fsm.NodeID]*testNode
	ids   []fsm.NodeID
	cfg   func(*Config)
	// machine makes the state machines; the small queue of this package if nil.
	machine func(fsm.PartitionID) replica.Machine
	fatal   chan error
	disk    *memDisk // nil unless a test is about it
}

func newTestCluster(t testing.TB, n int) *testCluster {
	c := &testCluster{t: t, net: callnet.New(callnet.Config{}), hints: &hints{m: map[fsm.PartitionID]hint{}},
		nodes: map[fsm.NodeID]*testNode{}, fatal: make(chan error, 16),
		machine: func(fsm.PartitionID) replica.Machine { return newSmall() }}
	for i := range n {
		c.ids = append(c.ids, fsm.NodeID(fmt.Sprintf("n%d", i+1)))
	}
	return c
}

func (c *testCluster) start(id fsm.NodeID) *testNode {
	c.t.Helper()
	n := c.nodes[id]
	if n == nil {
		n = &testNode{id: id, disks: map[fsm.PartitionID]*disk{}}
		c.nodes[id] = n
	}
	n.port = c.net.Port(id)
	cfg := Defaults()
	cfg.Node = id
	cfg.Incarnation = 1
	if c.cfg != nil {
		c.cfg(&cfg)
	}
	var d Disk
	if c.disk != nil {
		d = c.disk
	}
	h, err := NewHost(cfg, Deps{
		Disk: d, KeepVersion: n.keep,
		Caller: n.port, Locator: c.hints, Machine: c.machine, Log: testLog(c.t),
		Open: func(p fsm.PartitionID) (replica.Stores, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.disks[p] == nil {
				n.disks[p] = newDisk()
				n.disks[p].log.delay = &n.delay
			}
			if err := n.disks[p].damaged; err != nil {
				return replica.Stores{}, err
			}
			return n.disks[p].stores(), nil
		},
		Held: func() (held []fsm.PartitionID, _ error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			for p, d := range n.disks { // order-free: it becomes a set
				if last, err := d.log.LastIndex(); err == nil && last > 0 {
					held = append(held, p)
				}
			}
			return held, nil
		},
		OnFatal: func(err error) { c.fatal <- err }, Rebuild: n.rebuild, Lives: n.lives, Quarantine: n.quarantine,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	n.host = h
	c.net.Attach(n.port)
	return n
}

// open starts all nodes with partition p on all of them.
func (c *testCluster) open(p fsm.PartitionID) {
	c.t.Helper()
	for _, id := range c.ids {
		if c.nodes[id] == nil {
			c.start(id)
		}
		if err := c.nodes[id].host.Open(p, c.ids); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *testCluster) close() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no handing over: all stop
	for _, id := range c.ids {
		if n := c.nodes[id]; n != nil && n.host != nil {
			if err := n.host.Close(ctx); err != nil {
				c.t.Error(err)
			}
			n.port.Kill()
		}
	}
	time.Sleep(10 * c.net.Delay()) // a bubble ends only when the calls under way have ended
}

// crash stops a node without handing anything over; its disks stay.
func (c *testCluster) crash(id fsm.NodeID) {
	c.t.Helper()
	n := c.nodes[id]
	n.port.Kill()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := n.host.Close(ctx); err != nil {
		c.t.Error(err)
	}
	n.host = nil
}

// leader waits for a leader of p that serves, other than those excepted.
func (c *testCluster) leader(p fsm.PartitionID, except ...fsm.NodeID) *replica.Replica {
	c.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		for _, id := range c.ids {
			n := c.nodes[id]
			if n.host == nil || slices.Contains(except, id) {
				continue
			}
			if r := n.host.Replica(p); r != nil && r.Leading() && begun(r) {
				return r
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatalf("partition %d has no leader after a minute", p)
	return nil
}

// begun reports whether BecomeLeader is applied.
func begun(r *replica.Replica) bool {
	_, ok := r.Led()
	return ok
}

// termOf returns raft's term.
func termOf(r *replica.Replica) uint64 {
	_, term := r.Leader()
	return term
}

func testLog(t testing.TB) hclog.Logger {
	if testing.Verbose() && *verbose {
		return hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: t.Output()})
	}
	return hclog.NewNullLogger()
}
