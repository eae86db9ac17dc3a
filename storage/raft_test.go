package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// keeper is a tiny state machine in the shape of a partition's: it keeps a reference to the body of
// every entry, and an entry "del <n>" frees the body of entry n.
type keeper struct {
	bodies *Bodies

	mu   sync.Mutex
	refs map[uint64]uint32 // index to length
}

const imageEntryBytes = 12

func (k *keeper) Apply(l *raft.Log) any {
	if err := k.bodies.Put(l.Index, l.Data, Whole(l.Data)); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var del uint64
	if n, _ := fmt.Sscanf(string(l.Data), "del %d", &del); n == 1 {
		k.bodies.Free(l.Index, 0, uint32(len(l.Data)))
		if length, ok := k.refs[del]; ok {
			k.bodies.Free(del, 0, length)
			delete(k.refs, del)
		}
		return nil
	}
	k.refs[l.Index] = uint32(len(l.Data))
	return nil
}

type keeperImage struct {
	image []byte
	pin   interface {
		io.WriterTo
		io.Closer
	}
}

func (k *keeper) Snapshot() (raft.FSMSnapshot, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	image := binary.LittleEndian.AppendUint32(nil, uint32(len(k.refs)))
	for index, length := range k.refs {
		image = binary.LittleEndian.AppendUint64(image, index)
		image = binary.LittleEndian.AppendUint32(image, length)
	}
	return &keeperImage{image, k.bodies.Pin()}, nil
}

func (s *keeperImage) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s.image); err != nil {
		return err
	}
	if _, err := s.pin.WriteTo(sink); err != nil {
		return err
	}
	return sink.Close()
}

func (s *keeperImage) Release() { _ = s.pin.Close() }

func (k *keeper) Restore(rc io.ReadCloser) error {
	var count [4]byte
	if _, err := io.ReadFull(rc, count[:]); err != nil {
		return err
	}
	refs := map[uint64]uint32{}
	for range binary.LittleEndian.Uint32(count[:]) {
		var e [imageEntryBytes]byte
		if _, err := io.ReadFull(rc, e[:]); err != nil {
			return err
		}
		refs[binary.LittleEndian.Uint64(e[:])] = binary.LittleEndian.Uint32(e[8:])
	}
	k.mu.Lock()
	k.refs = refs
	k.mu.Unlock()
	return k.bodies.Restore(rc)
}

// all reads every body that the machine refers to.
func (k *keeper) all(t *testing.T) map[uint64]string {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[uint64]string{}
	for index, length := range k.refs {
		b, err := k.bodies.Read(index, 0, length)
		if err != nil {
			t.Fatalf("body of entry %d: %v", index, err)
		}
		out[index] = string(b)
	}
	return out
}

// raftNode is one replica on a real directory.
type raftNode struct {
	dir   *Dir
	group *Group
	fsm   *keeper
	raft  *raft.Raft
	trans *raft.InmemTransport
	addr  raft.ServerAddress
	cfg   Config
}

func testConfig(dir string) Config {
	cfg := Defaults()
	cfg.Dir = dir
	cfg.LogSegmentBytes = 1 << 20
	cfg.BodySegmentBytes = 8 << 10
	cfg.BodyCacheBytes = 16 << 10
	return cfg
}

func startRaft(t *testing.T, cfg Config, addr raft.ServerAddress) *raftNode {
	t.Helper()
	n := &raftNode{cfg: cfg, addr: addr}
	var err error
	if n.dir, err = Open(cfg, hclog.NewNullLogger()); err != nil {
		t.Fatal(err)
	}
	if n.group, err = n.dir.Group(1); err != nil {
		t.Fatal(err)
	}
	n.fsm = &keeper{bodies: n.group.Bodies(), refs: map[uint64]uint32{}}
	_, n.trans = raft.NewInmemTransport(addr)
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(addr)
	rc.Logger = hclog.NewNullLogger()
	rc.HeartbeatTimeout, rc.ElectionTimeout = 200*time.Millisecond, 200*time.Millisecond
	rc.LeaderLeaseTimeout, rc.CommitTimeout = 100*time.Millisecond, 5*time.Millisecond
	rc.SnapshotInterval, rc.SnapshotThreshold, rc.TrailingLogs = time.Hour, 1<<40, 5
	n.raft, err = raft.NewRaft(rc, n.fsm, n.group.Log(), n.group.Stable(), n.group.Snapshots(), n.trans)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.stop(t) })
	return n
}

func (n *raftNode) stop(t *testing.T) {
	t.Helper()
	if n.raft == nil {
		return
	}
	if err := n.raft.Shutdown().Error(); err != nil {
		t.Fatal(err)
	}
	n.raft = nil
	if err := n.dir.Close(); err != nil {
		t.Fatal(err)
	}
}

func (n *raftNode) restart(t *testing.T) *raftNode {
	t.Helper()
	n.stop(t)
	return startRaft(t, n.cfg, n.addr)
}

func body(i, size int) []byte {
	return append(fmt.Appendf(nil, "body %d ", i), bytes.Repeat([]byte{byte('a' + i%26)}, size)...)
}

func (n *raftNode) apply(t *testing.T, data []byte) uint64 {
	t.Helper()
	f := n.raft.Apply(data, 10*time.Second)
	if err := f.Error(); err != nil {
		t.Fatal(err)
	}
	if err, ok := f.Response().(error); ok {
		t.Fatal(err)
	}
	return f.Index()
}

// leaderOf waits, in the bubble's time, until one of the nodes leads.
func leaderOf(t *testing.T, nodes ...*raftNode) *raftNode {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(10 * time.Millisecond) {
		for _, n := range nodes {
			if n.raft.State() == raft.Leader && n.raft.Barrier(time.Second).Error() == nil {
				return n
			}
		}
	}
	t.Fatal("no leader after a minute")
	return nil
}

func bootstrap(t *testing.T, nodes ...*raftNode) {
	t.Helper()
	var conf raft.Configuration
	for _, n := range nodes {
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(n.addr), Address: n.addr})
	}
	for _, n := range nodes {
		if err := n.raft.BootstrapCluster(conf).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *raftNode) snapshot(t *testing.T) {
	t.Helper()
	if err := n.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
}

// waitApplied waits, in the bubble's time, until the state machine has seen an entry.
func (n *raftNode) waitApplied(t *testing.T, index uint64) {
	t.Helper()
	for start := time.Now(); n.raft.AppliedIndex() < index; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("applied %d after a minute, want %d", n.raft.AppliedIndex(), index)
		}
	}
	// The index is counted when the entries are handed over; what is handed over is done when all
	// goroutines wait.
	synctest.Wait()
}

func sameBodies(t *testing.T, got, want map[uint64]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d bodies, want %d", len(got), len(want))
	}
	for index, b := range want {
		if got[index] != b {
			t.Fatalf("body of entry %d is %.20q, want %.20q", index, got[index], b)
		}
	}
}

func TestSingleNodeKeepsBodiesOverSnapshotAndRestart(t *testing.T) {
	for _, log := range []string{LogWAL, LogBolt} {
		t.Run(log, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig(t.TempDir())
				cfg.Log = log
				n := startRaft(t, cfg, "a")
				bootstrap(t, n)
				leaderOf(t, n)
				want := map[uint64]string{}
				put := func(i, size int) {
					b := body(i, size)
					want[n.apply(t, b)] = string(b)
				}
				for i := range 60 {
					put(i, i*37)
				}
				put(60, 30<<10) // more than a segment
				for index := range want {
					if index%3 == 0 {
						n.apply(t, fmt.Appendf(nil, "del %d", index))
						delete(want, index)
					}
				}
				n.snapshot(t)
				for i := range 20 {
					put(100+i, 500) // above the snapshot: comes again from the log
				}
				sameBodies(t, n.fsm.all(t), want)

				for round := range 3 {
					n = n.restart(t)
					leaderOf(t, n)
					sameBodies(t, n.fsm.all(t), want)
					put(200+round, 100)
					if round == 1 {
						n.snapshot(t)
					}
				}
				if s := n.group.Stats(); s.Bodies.Entries != uint64(len(want)) {
					t.Fatalf("keeps %d entries, want %d", s.Bodies.Entries, len(want))
				}
			})
		})
	}
}

func TestSnapshotCarriesBodiesToALaggingFollower(t *testing.T) {
	synctest.Test(t, laggingFollower)
}

func laggingFollower(t *testing.T) {
	var nodes []*raftNode
	for _, addr := range []raft.ServerAddress{"a", "b", "c"} {
		nodes = append(nodes, startRaft(t, testConfig(t.TempDir()), addr))
	}
	for _, n := range nodes {
		for _, m := range nodes {
			n.trans.Connect(m.addr, m.trans)
		}
	}
	bootstrap(t, nodes...)
	leader := leaderOf(t, nodes...)
	want := map[uint64]string{}
	for i := range 30 {
		b := body(i, 300)
		want[leader.apply(t, b)] = string(b)
	}
	var lagging *raftNode
	for _, n := range nodes {
		if n != leader {
			lagging = n
		}
	}
	lagging.trans.DisconnectAll()
	for _, n := range nodes {
		n.trans.Disconnect(lagging.addr)
	}
	for index := range want {
		if index%4 == 0 {
			leader.apply(t, fmt.Appendf(nil, "del %d", index))
			delete(want, index)
		}
	}
	var last uint64
	for i := range 100 {
		b := body(1000+i, 200)
		last = leader.apply(t, b)
		want[last] = string(b)
	}
	// Both others have a short log, whoever of them leads when the follower comes back.
	for _, n := range nodes {
		if n == lagging {
			continue
		}
		n.waitApplied(t, last)
		n.snapshot(t)
		first, err := n.group.Log().FirstIndex()
		if err != nil || first <= lagging.raft.LastIndex()+1 {
			t.Fatalf("the log of %s begins at %d, the follower's ends at %d: nothing to install, %v",
				n.addr, first, lagging.raft.LastIndex(), err)
		}
	}
	for _, n := range nodes {
		for _, m := range nodes {
			n.trans.Connect(m.addr, m.trans)
		}
	}
	lagging.waitApplied(t, last)
	if lagging.group.Stats().Snapshots.Written == 0 {
		t.Fatal("no snapshot was installed")
	}
	for _, n := range nodes {
		n.waitApplied(t, last)
		sameBodies(t, n.fsm.all(t), want)
	}
	// The follower restarts from what was installed, and from a snapshot of its own.
	lagging.stop(t)
	again := startRaft(t, lagging.cfg, lagging.addr)
	for _, n := range nodes {
		if n != lagging {
			again.trans.Connect(n.addr, n.trans)
			n.trans.Connect(again.addr, again.trans)
		}
	}
	again.waitApplied(t, last)
	sameBodies(t, again.fsm.all(t), want)
}
