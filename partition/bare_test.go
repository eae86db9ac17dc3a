package partition

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// The tests of this file show each hazard of raft on a bare setup first, so that the test beside it,
// in which ours passes, is known to be able to see it.

// bareNode is raft as its manual has it: no guard, no watchdog, no rules about configurations.
type bareNode struct {
	id   raft.ServerID
	conf *raft.Config
	log  *faultyLog
	// stable is what raft keeps its term and vote in, once it runs.
	stable *gatedStable
	snaps  *countingSnapshots
	tr     raft.Transport // of raft's own
	fsm    *bareMachine
	r      *raft.Raft
}

// bareMachine counts what was applied.
type bareMachine struct {
	mu   sync.Mutex
	seen []string
}

func (m *bareMachine) Apply(l *raft.Log) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = append(m.seen, string(l.Data))
	return nil
}

func (m *bareMachine) has(want ...string) (missing []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[string]bool{}
	for _, s := range m.seen {
		there[s] = true
	}
	for _, w := range want {
		if !there[w] {
			missing = append(missing, w)
		}
	}
	return missing
}

func (m *bareMachine) Snapshot() (raft.FSMSnapshot, error) { return bareSnapshot{}, nil }
func (m *bareMachine) Restore(r io.ReadCloser) error       { return r.Close() }

type bareSnapshot struct{}

func (bareSnapshot) Persist(s raft.SnapshotSink) error { return s.Close() }
func (bareSnapshot) Release()                          {}

// countingSnapshots counts the snapshots that are begun: of a follower, the installations.
type countingSnapshots struct {
	raft.SnapshotStore
	begun atomic.Int64
}

func (s *countingSnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration,
	ci uint64, tr raft.Transport) (raft.SnapshotSink, error) {
	s.begun.Add(1)
	return s.SnapshotStore.Create(v, index, term, c, ci, tr)
}

type bareCluster struct {
	t         *testing.T
	nodes     []*bareNode
	transport func(*bareNode) raft.Transport
}

// bare returns three nodes over raft's transport in memory.
func bare(t *testing.T, tune func(*raft.Config)) *bareCluster {
	t.Helper()
	b := bareOver(t, func(n *bareNode) raft.Transport {
		_, tr := raft.NewInmemTransportWithTimeout(raft.ServerAddress(n.id), 500*time.Millisecond)
		return tr
	}, tune)
	b.heal()
	return b
}

func bareOver(t *testing.T, transport func(*bareNode) raft.Transport, tune func(*raft.Config)) *bareCluster {
	t.Helper()
	b := &bareCluster{t: t, transport: transport}
	var members raft.Configuration
	for i := range 3 {
		id := fmt.Sprintf("b%d", i+1)
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
		c := raft.DefaultConfig()
		c.LocalID, c.Logger = raft.ServerID(id), hclog.NewNullLogger()
		c.SnapshotInterval = 1000 * time.Hour
		if tune != nil {
			tune(c)
		}
		b.nodes = append(b.nodes, &bareNode{id: c.LocalID, conf: c,
			log:   &faultyLog{LogStore: raft.NewInmemStore()},
			snaps: &countingSnapshots{SnapshotStore: raft.NewInmemSnapshotStore()}})
	}
	for _, n := range b.nodes {
		n.tr = b.transport(n)
		stable := n.log.LogStore.(raft.StableStore)
		if err := raft.BootstrapCluster(n.conf, n.log, stable, n.snaps, n.tr, members); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range b.nodes {
		b.start(n)
	}
	return b
}

func (b *bareCluster) start(n *bareNode) {
	b.t.Helper()
	n.fsm = &bareMachine{}
	var err error
	n.stable = &gatedStable{StableStore: n.log.LogStore.(raft.StableStore)}
	n.r, err = raft.NewRaft(n.conf, n.fsm, n.log, n.stable, n.snaps, n.tr)
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bareCluster) stop(n *bareNode) {
	b.t.Helper()
	b.cut(n)
	if err := n.r.Shutdown().Error(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bareCluster) close() {
	var ends []raft.Future
	for _, n := range b.nodes {
		ends = append(ends, n.r.Shutdown())
	}
	for i, n := range b.nodes {
		_ = ends[i].Error()
		_ = n.tr.(raft.WithClose).Close()
	}
}

// peers is a node's transport in memory.
func (n *bareNode) peers() *raft.InmemTransport { return n.tr.(*raft.InmemTransport) }

// cut isolates a node, heal connects all but those excepted.
func (b *bareCluster) cut(n *bareNode) {
	n.peers().DisconnectAll()
	for _, o := range b.nodes {
		o.peers().Disconnect(raft.ServerAddress(n.id))
	}
}

func (b *bareCluster) heal(except ...*bareNode) {
	out := func(n *bareNode) bool {
		for _, e := range except {
			if e == n {
				return true
			}
		}
		return false
	}
	for _, n := range b.nodes {
		for _, o := range b.nodes {
			if n != o && !out(n) && !out(o) {
				n.peers().Connect(raft.ServerAddress(o.id), o.tr)
			}
		}
	}
}

func (b *bareCluster) leader(among ...*bareNode) *bareNode {
	b.t.Helper()
	if len(among) == 0 {
		among = b.nodes
	}
	for range 6000 {
		for _, n := range among {
			if n.r.State() == raft.Leader && n.r.Barrier(time.Second).Error() == nil {
				return n
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func (b *bareCluster) others(not ...*bareNode) (out []*bareNode) {
	for _, n := range b.nodes {
		if n != not[0] && (len(not) < 2 || n != not[1]) {
			out = append(out, n)
		}
	}
	return out
}

// R1: ten minutes of a disk that hangs, and nobody but the leader knows. Ours is
// TestStalledDiskHandsOver.
func TestBareRaftKeepsALeaderWhoseDiskHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := bare(t, nil)
		defer b.close()
		l := b.leader()
		release := l.log.hang()
		f := l.r.Apply([]byte("x"), time.Second)
		done := make(chan error, 1)
		go func() { done <- f.Error() }()
		time.Sleep(10 * time.Minute)
		select {
		case err := <-done:
			t.Errorf("the write ended: %v", err)
		default:
		}
		for _, n := range b.others(l) {
			if addr, _ := n.r.LeaderWithID(); addr != raft.ServerAddress(l.id) {
				t.Errorf("%s follows %q: this raft has no hazard R1 any more", n.id, addr)
			}
		}
		release()
		<-done
	})
}

// R3: entries that were kept although an error was reported come back after a restart, under a term
// that makes the log look older than it is, and its owner votes for a leader that lacks what both
// acknowledged.
func TestBareRaftLosesWritesAfterAFailedOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := bare(t, func(c *raft.Config) { c.BatchApplyCh = true })
		defer b.close()
		l := b.leader()
		for range 5 {
			if err := l.r.Apply([]byte("early"), time.Second).Error(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		// A write that hangs holds the others up, so one batch has all twenty: what is kept of a short
		// batch would be overwritten by the entries of the next leader.
		release := l.log.hang()
		tries := []raft.ApplyFuture{l.r.Apply([]byte("before"), time.Second)}
		synctest.Wait()
		l.log.set(func(f *faultyLog) { f.err, f.keep = errDisk, true })
		for range 20 {
			tries = append(tries, l.r.Apply([]byte("unsure"), time.Second))
		}
		release()
		for _, f := range tries {
			_ = f.Error()
		}
		b.cut(l) // or it may be elected again
		next := b.leader(b.others(l)...)
		if next == nil {
			t.Fatal("nobody leads behind the failed write")
		}
		l.log.set(func(f *faultyLog) { f.err = nil })
		b.heal()
		third := b.others(l, next)[0]
		time.Sleep(time.Second)
		b.cut(third)
		for _, w := range []string{"one", "two"} {
			if err := next.r.Apply([]byte(w), time.Second).Error(); err != nil {
				t.Fatal(err)
			}
		}
		b.stop(next)
		b.stop(l)
		l.tr = b.transport(l)
		l.conf.HeartbeatTimeout, l.conf.ElectionTimeout = time.Hour, time.Hour // it is asked and does not ask
		b.start(l)
		b.heal(next)
		now := b.leader(l, third)
		if now == nil || len(now.fsm.has("one", "two")) == 0 {
			t.Error("nothing is lost: this raft has no hazard R3 any more")
		}
	})
}

// R3, ours: the replica stops at the error, so it acknowledges nothing that its disk contradicts.
func TestNothingIsLostAfterAFailedWrite(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		l := c.leader(1)
		acked := 0
		for i := range uint64(5) {
			if _, err := l.Propose(t.Context(), enqueue(reqID(1, i+1), "early")); err != nil {
				t.Fatal(err)
			}
			acked++
		}
		bad := l.Node()
		c.nodes[bad].disks[1].log.set(func(f *faultyLog) { f.err, f.keep = errDisk, true })
		for i := range uint64(20) {
			_, _ = l.Propose(shortly(t, time.Second), enqueue(reqID(2, i+1), "unsure"))
		}
		c.nodes[bad].disks[1].log.set(func(f *faultyLog) { f.err = nil })
		next := c.leader(1, bad)
		third := ""
		for _, id := range c.others(bad) {
			if id != next.Node() {
				third = string(id)
			}
		}
		c.net.Isolate(fsm.NodeID(third), true)
		for i := range uint64(2) {
			if _, err := next.Propose(shortly(t, time.Second), enqueue(reqID(3, i+1), "late")); err == nil {
				acked++
			}
		}
		c.crash(next.Node())
		c.crash(bad)
		c.net.Isolate(fsm.NodeID(third), false)
		c.start(bad)
		if err := c.nodes[bad].host.Open(1, c.ids); err != nil {
			t.Fatal(err)
		}
		c.leader(1)
		if s := c.settled(next.Node()); s.Enqueues < acked {
			t.Errorf("%d effects, %d were acknowledged", s.Enqueues, acked)
		}
		c.start(next.Node())
	})
}

// R7: a follower with more uncommitted entries than the leader keeps behind its snapshot is sent the
// same snapshot for ever. Ours is TestDeposedLeaderNeedsOneSnapshot.
func TestBareRaftInstallsASnapshotForEver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := bare(t, func(c *raft.Config) { c.TrailingLogs, c.BatchApplyCh = 10, true })
		defer b.close()
		l := b.leader()
		b.cut(l)
		var tail []raft.ApplyFuture
		for range 200 {
			tail = append(tail, l.r.Apply([]byte("lost"), 0))
		}
		next := b.leader(b.others(l)...)
		for _, f := range tail {
			_ = f.Error()
		}
		for range 100 {
			if err := next.r.Apply([]byte("y"), time.Second).Error(); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range b.others(l) {
			if err := n.r.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
		before := l.snaps.begun.Load()
		b.heal()
		time.Sleep(10 * time.Second)
		if n := l.snaps.begun.Load() - before; n < 20 {
			t.Errorf("%d installations: this raft has no hazard R7 any more", n)
		}
	})
}

// R8: an empty node with the name of a voter votes for anybody, so a node that lags is elected. Ours
// are TestReplicaWithoutAConfigurationDoesNotVote and TestOldCopyOfADirectoryTakesNothingBack.
func TestBareRaftElectsAStaleNodeWithAWipedOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := bare(t, nil)
		defer b.close()
		l := b.leader()
		stale, wiped := b.others(l)[0], b.others(l)[1]
		b.cut(stale)
		if err := l.r.Apply([]byte("acknowledged"), time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		b.stop(l)
		b.stop(wiped)
		wiped.log = &faultyLog{LogStore: raft.NewInmemStore()}
		wiped.tr = b.transport(wiped)
		b.start(wiped)
		b.heal(l)
		now := b.leader(stale, wiped)
		if now == nil || len(now.fsm.has("acknowledged")) == 0 {
			t.Error("the stale node was not elected: this raft has no hazard R8 any more")
		}
	})
}
