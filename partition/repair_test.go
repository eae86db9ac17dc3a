package partition

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// revive starts a node again, over its disks, as another life of it.
func (b *brokers) revive(id fsm.NodeID) *broker {
	b.t.Helper()
	b.lifeOf[id]++
	life := b.lifeOf[id]
	b.cfg = func(c *Config) {
		c.Incarnation = fsm.Incarnation(1000*life + slices.Index(b.ids, id) + 100)
	}
	bootstrap := b.ids[:min(3, len(b.ids))]
	if !slices.Contains(bootstrap, id) {
		bootstrap = nil
	}
	return b.join(id, bootstrap)
}

func (b *brokers) kill(id fsm.NodeID) {
	b.t.Helper()
	b.all[id].sup.Close()
	delete(b.all, id)
	b.crash(id)
}

// voters returns the committed members of a partition as its leader has them: "n1 n2 (n3)", those
// without a vote in brackets; "" without a leader.
func (b *brokers) voters(p fsm.PartitionID) string {
	for _, id := range b.ids {
		if b.all[id] == nil {
			continue
		}
		r := b.all[id].host.Replica(p)
		if r == nil || !r.Leading() {
			continue
		}
		c, _ := r.Configuration()
		var out []string
		for _, s := range c.Servers {
			name := string(s.ID)
			if s.Suffrage != raft.Voter {
				name = "(" + name + ")"
			}
			out = append(out, name)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	return ""
}

// whole waits until every partition has exactly those voters, all of them working and caught up.
func (b *brokers) whole(want string) {
	b.t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	var why string
	for time.Now().Before(deadline) {
		if why = b.lacks(want); why == "" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.t.Fatalf("after five minutes: %s", why)
}

func (b *brokers) lacks(want string) string {
	for p := range fsm.PartitionID(b.partitions + 1) {
		if got := b.voters(p); got != want {
			return fmt.Sprintf("partition %d has the members %q, want %q", p, got, want)
		}
		var most uint64
		for _, id := range strings.Fields(want) {
			n := b.all[fsm.NodeID(id)]
			if n == nil || n.host.Replica(p) == nil {
				return fmt.Sprintf("partition %d is not open on %s", p, id)
			}
			s := n.host.Replica(p).Status()
			if s.Failure != "" {
				return fmt.Sprintf("partition %d on %s: %s", p, id, s.Failure)
			}
			most = max(most, s.Applied)
		}
		const caughtUp = 64
		for _, id := range strings.Fields(want) {
			if s := b.all[fsm.NodeID(id)].host.Replica(p).Status(); s.Applied+caughtUp < most {
				return fmt.Sprintf("partition %d on %s is at %d of %d", p, id, s.Applied, most)
			}
		}
	}
	return ""
}

// loaded makes a cluster of three with messages in every partition, and returns how many there are.
func loaded(t *testing.T) (*brokers, *fsm.Descriptor, int) {
	b := newBrokers(t, 3)
	d := b.createQueue(t.Context(), "n1", queue("orders", true))
	const each = 25
	for share := range d.Partitions {
		for i := range each {
			sendOne(t, b.all["n1"].r, reqOf(0, share+1, i+1),
				fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(share)})
		}
	}
	b.whole("n1 n2 n3")
	return b, d, each * len(d.Partitions)
}

func (b *brokers) wantActive(via fsm.NodeID, d *fsm.Descriptor, want int) {
	b.t.Helper()
	var c fsm.EntityCounts
	var err error
	for range 100 {
		var complete bool
		if c, complete, err = b.all[via].r.Counts(b.t.Context(), d); err == nil && complete {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil || c.Active != uint64(want) {
		b.t.Errorf("%d messages of %d, %v", c.Active, want, err)
	}
}

func TestFailedReplicaIsRebuiltFromItsPeers(t *testing.T) {
	tests := []struct {
		name string
		p    fsm.PartitionID
	}{
		{"of a data partition", 2},
		{"of the catalog", fsm.CatalogPartition},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, d, sent := loaded(t)
				defer b.close()
				bad := b.all["n2"]
				bad.disks[tt.p].log.set(func(l *faultyLog) { l.err = errDisk })
				for i := 0; !bad.host.Replica(tt.p).Status().Broken; i++ {
					b.touch(i)
				}
				if s := bad.host.Replica(1).Status(); tt.p != 1 && s.Broken {
					t.Errorf("another partition of the node failed too: %+v", s)
				}
				b.whole("n1 n2 n3")
				if bad.rebuilds.Load() != 1 {
					t.Errorf("rebuilt %d times", bad.rebuilds.Load())
				}
				b.wantActive("n2", d, sent)
			})
		})
	}
}

// A replica that fails again before its group has taken it in is rebuilt again, by another leader too.
func TestReplicaThatFailsAgainIsRebuiltAgain(t *testing.T) {
	const p = fsm.PartitionID(2)
	for _, other := range []bool{false, true} {
		t.Run(fmt.Sprintf("another leader %t", other), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, d, sent := loaded(t)
				defer b.close()
				bad := b.notLeading(p)
				b.all[bad].host.Replica(p).Fail(errDisk)
				b.stages(p, bad, 2)
				b.all[bad].host.Replica(p).Fail(errDisk)
				if voters := b.voters(p); strings.Contains(voters, string(bad)) {
					t.Fatalf("it was taken in already: %s", voters)
				}
				if other {
					lead, next := b.other(bad), b.other(bad, b.other(bad))
					if !b.all[lead].host.Replica(p).Leading() {
						lead, next = next, lead
					}
					if err := b.all[lead].host.TransferLeadership(t.Context(), p, next); err != nil {
						t.Fatal(err)
					}
				}
				b.whole("n1 n2 n3")
				if n := b.nodes[bad].rebuilds.Load(); n != 2 {
					t.Errorf("rebuilt %d times", n)
				}
				b.wantActive(bad, d, sent)
			})
		})
	}
}

// touch makes every partition write something.
func (b *brokers) touch(i int) {
	for p := range fsm.PartitionID(b.partitions + 1) {
		for _, n := range b.all {
			if r := n.host.Replica(p); r != nil && r.Leading() {
				_ = r.Barrier(b.t.Context(), 0)
			}
		}
	}
	if i > 1000 {
		b.t.Fatal("the write that fails never came")
	}
	time.Sleep(10 * time.Millisecond)
}

// A node starts with every group damaged, the catalog too.
func TestNodeWithDamagedStoresIsRebuilt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d, sent := loaded(t)
		defer b.close()
		b.kill("n3")
		for _, d := range b.nodes["n3"].disks {
			d.damaged = errors.New("segment 7: checksum")
		}
		n := b.revive("n3")
		for _, s := range n.host.Status() {
			if s.Failure != "segment 7: checksum" && !strings.Contains(s.Failure, "segment 7: checksum") ||
				!s.Broken {
				t.Errorf("status %+v", s)
			}
		}
		b.whole("n1 n2 n3")
		if int(n.rebuilds.Load()) != b.partitions+1 {
			t.Errorf("%d rebuilds of %d partitions", n.rebuilds.Load(), b.partitions+1)
		}
		b.wantActive("n3", d, sent)
	})
}

// A process that dies between any two steps of a replacement, the leader's or that of the failed
// replica, leaves a group that goes on when it is back, with everything in it.
func TestKillBetweenAnyTwoStepsOfARebuild(t *testing.T) {
	const p = fsm.PartitionID(2)
	for step := 1; step <= 4; step++ {
		for _, victim := range []string{"leader", "failed"} {
			t.Run(fmt.Sprintf("%s after step %d", victim, step), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					b, d, sent := loaded(t)
					defer b.close()
					bad := b.notLeading(p)
					b.all[bad].disks[p].log.set(func(l *faultyLog) { l.err = errDisk })
					for i := 0; !b.all[bad].host.Replica(p).Status().Broken; i++ {
						b.touch(i)
					}
					stages := b.stages(p, bad, step)
					id := bad
					if victim == "leader" {
						for _, n := range b.ids {
							if b.all[n].host.Replica(p).Leading() {
								id = n
							}
						}
					}
					b.kill(id)
					if o := b.all[b.other(bad, id)]; o == nil {
						t.Fatal("nobody is left")
					}
					time.Sleep(8 * time.Second)
					b.revive(id)
					b.whole("n1 n2 n3")
					b.wantActive("n1", d, sent)
					if t.Failed() {
						t.Logf("stages before the kill: %q", stages)
					}
				})
			})
		}
	}
}

func (b *brokers) notLeading(p fsm.PartitionID) fsm.NodeID {
	for _, id := range b.ids {
		if !b.all[id].host.Replica(p).Leading() {
			return id
		}
	}
	b.t.Fatal("all lead")
	return ""
}

func (b *brokers) other(ids ...fsm.NodeID) fsm.NodeID {
	for _, id := range b.ids {
		if !slices.Contains(ids, id) {
			return id
		}
	}
	return ""
}

// stages waits until the group has gone through so many steps: changes of its members, and the
// rebuild. It checks that the group never changes two members at once.
func (b *brokers) stages(p fsm.PartitionID, bad fsm.NodeID, steps int) (seen []string) {
	b.t.Helper()
	now := func() string { return fmt.Sprintf("%s, rebuilt %d", b.voters(p), b.nodes[bad].rebuilds.Load()) }
	last := now()
	for range 100_000 {
		if s := now(); s != last && !strings.HasPrefix(s, ",") {
			if seen = append(seen, s); len(seen) == steps {
				return seen
			}
			last = s
		}
		time.Sleep(time.Millisecond)
	}
	b.t.Fatalf("step %d never came: %q", steps, seen)
	return nil
}

// A node that lost its disk comes back under its name with another identity and gets the places of
// the old one; the old identity votes nowhere any more (R8).
func TestWipedNodeIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d, sent := loaded(t)
		defer b.close()
		b.kill("n3")
		b.ids = append(b.ids, "n4")
		b.cfg = func(c *Config) { c.Incarnation = 777 }
		b.named = "n3"
		b.join("n4", nil)
		b.whole("n1 n2 n4")
		b.wantActive("n4", d, sent)
		for _, g := range b.all["n1"].dir.View().Groups() {
			if slices.Contains(g.Members, "n3") || !slices.Contains(g.Founders, "n3") {
				t.Errorf("partition %d: %+v", g.ID, g)
			}
		}
	})
}

// A node that is only away for a while keeps its places.
func TestNodeThatIsAwayIsNotReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, _, _ := loaded(t)
		defer b.close()
		b.ids = append(b.ids, "n4")
		b.cfg = func(c *Config) { c.Incarnation = 777 }
		b.join("n4", nil)
		b.kill("n3")
		time.Sleep(Defaults().ReplaceAfter - time.Minute)
		for _, g := range b.all["n1"].dir.View().Groups() {
			if !slices.Contains(g.Members, "n3") {
				t.Errorf("partition %d: %+v", g.ID, g)
			}
		}
		time.Sleep(2 * time.Minute)
		for _, g := range b.all["n1"].dir.View().Groups() {
			if slices.Contains(g.Members, "n3") {
				t.Errorf("partition %d after ten minutes: %+v", g.ID, g)
			}
		}
	})
}

func TestRebuildTouchesNoReplicaThatWorks(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		n := c.nodes[c.others(r.Node())[0]]
		err := askRebuild(t.Context(), c.nodes[r.Node()].port, n.id, 1, 100)
		if err == nil || n.rebuilds.Load() != 0 {
			t.Fatalf("a working replica was rebuilt: %v", err)
		}
		n.host.Replica(1).Fail(errDisk)
		if err := askRebuild(t.Context(), c.nodes[r.Node()].port, n.id, 1, 100); err != nil {
			t.Fatal(err)
		}
		// The same call once more, late, when the replica has failed again.
		n.host.Replica(1).Fail(errDisk)
		if err := askRebuild(t.Context(), c.nodes[r.Node()].port, n.id, 1, 100); err == nil {
			t.Error("a late call was heeded")
		}
		if n.rebuilds.Load() != 1 {
			t.Errorf("%d rebuilds", n.rebuilds.Load())
		}
	})
}

// memLives is Lives in memory.
type memLives struct {
	mu    sync.Mutex
	life  uint64
	seen  map[fsm.NodeID]memSighting
	marks int
	mark  func() // marks the disks
}

type memSighting struct {
	life uint64
	inc  fsm.Incarnation
}

func (l *memLives) Life() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.life
}

func (l *memLives) Witness(n fsm.NodeID, life uint64, i fsm.Incarnation) (uint64, fsm.Incarnation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.seen[n]
	if life > was.life {
		l.seen[n] = memSighting{life, i}
	}
	return was.life, was.inc, nil
}

func (l *memLives) Distrust(_ string, life uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks++
	l.life = life
	l.mark()
	return nil
}
