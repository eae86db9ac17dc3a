package partition

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// copyOf returns a disk with what d holds now, snapshots aside.
func copyOf(t *testing.T, d *disk) *disk {
	t.Helper()
	out := newDisk()
	first, _ := d.log.FirstIndex()
	last, _ := d.log.LastIndex()
	for i := first; i <= last && first > 0; i++ {
		l := new(raft.Log)
		if err := d.log.GetLog(i, l); err != nil {
			t.Fatal(err)
		}
		if err := out.log.LogStore.StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"CurrentTerm", "LastVoteTerm"} {
		if n, err := d.stable.GetUint64([]byte(key)); err == nil {
			_ = out.stable.SetUint64([]byte(key), n)
		}
	}
	if c, err := d.stable.Get([]byte("LastVoteCand")); err == nil {
		_ = out.stable.Set([]byte("LastVoteCand"), c)
	}
	return out
}

// R8's cousin: n3's directory of an earlier life is put back while n2, the only other one with the
// last messages, is down. A bare setup elects n1 and n3 and loses what was acknowledged; ours waits
// for n2, and then rebuilds n3.
func TestOldCopyOfADirectoryTakesNothingBack(t *testing.T) {
	for name, guarded := range map[string]bool{"bare": false, "ours": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newBrokers(t, 0)
				defer b.close()
				b.partitions = 1
				b.ids = []fsm.NodeID{"n1", "n2", "n3"}
				lives := map[fsm.NodeID]*memLives{}
				start := func(id fsm.NodeID) {
					if guarded {
						if lives[id] == nil {
							lives[id] = &memLives{seen: map[fsm.NodeID]memSighting{}}
						}
						l := lives[id]
						l.life++
						if b.nodes[id] == nil {
							b.nodes[id] = &testNode{id: id, disks: map[fsm.PartitionID]*disk{}}
						}
						b.nodes[id].lives = l
						l.mark = func() {
							b.nodes[id].mu.Lock()
							defer b.nodes[id].mu.Unlock()
							for _, d := range b.nodes[id].disks {
								d.damaged = errors.New("an old copy")
							}
						}
					}
					b.revive(id)
				}
				for _, id := range b.ids {
					start(id)
				}
				d := b.createQueue(t.Context(), "n1", queue("orders", true))
				b.whole("n1 n2 n3")
				old, oldLife := map[fsm.PartitionID]*disk{}, uint64(1)
				for p, d := range b.nodes["n3"].disks {
					old[p] = copyOf(t, d)
				}
				b.kill("n3")
				start("n3")
				b.whole("n1 n2 n3")
				b.net.Isolate("n1", true)
				key := fsm.Key{Entity: d.ID, By: fsm.ByShare}
				b.leaderOf(1, "n1")
				for i := range 10 {
					sendOne(t, b.all["n2"].r, reqOf(1, 1, i+1), key)
				}
				for _, id := range b.ids {
					b.kill(id)
				}
				b.net.Isolate("n1", false)

				b.nodes["n3"].disks = old
				if guarded {
					lives["n3"] = &memLives{life: oldLife, seen: map[fsm.NodeID]memSighting{}}
				}
				start("n1")
				start("n3")
				time.Sleep(30 * time.Second)
				elected := b.voters(1) != ""
				if elected == guarded {
					t.Fatalf("n1 and the old copy of n3 elected a leader: %v", elected)
				}
				if !guarded {
					return // what was acknowledged is lost by now
				}
				says := b.all["n3"].host.Replica(fsm.CatalogPartition).Status()
				if !strings.Contains(says.Failure, "old copy") || !says.Broken {
					t.Fatalf("n3 does not say why it stands aside: %+v", b.all["n3"].host.Status())
				}
				start("n2")
				b.whole("n1 n2 n3")
				b.wantActive("n3", d, 10)
				lives["n3"].mu.Lock()
				if lives["n3"].marks != 1 {
					t.Errorf("the directory was marked %d times", lives["n3"].marks)
				}
				lives["n3"].mu.Unlock()
			})
		})
	}
}

// leaderOf waits until a node other than one leads.
func (b *brokers) leaderOf(p fsm.PartitionID, except fsm.NodeID) {
	b.t.Helper()
	for range 10_000 {
		for id, n := range b.all {
			if r := n.host.Replica(p); id != except && r != nil && r.Leading() {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatal("nobody leads")
}

// A node alone has nobody to ask, and nobody to wait for: it leads at once after a restart.
func TestNodeAloneLeadsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		n := &testNode{id: "n1", disks: map[fsm.PartitionID]*disk{}}
		n.lives = &memLives{life: 1, seen: map[fsm.NodeID]memSighting{}, mark: func() {}}
		c.nodes["n1"] = n
		defer c.close()
		for life := range 2 {
			if life > 0 {
				c.crash("n1")
			}
			began := time.Now()
			n = c.start("n1")
			if err := n.host.Open(1, c.ids); err != nil {
				t.Fatal(err)
			}
			for !n.host.Replica(1).Leading() {
				time.Sleep(time.Millisecond)
			}
			if took, limit := time.Since(began), n.host.cfg.HeartbeatTimeout/4; took > limit {
				t.Errorf("life %d leads after %v, want %v at most", life, took, limit)
			}
		}
	})
}

// A peer that is down delays a restarted replica for VerifyPatience and no longer.
func TestReplicaWaitsForThePeersThatAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		for _, id := range c.ids {
			n := &testNode{id: id, disks: map[fsm.PartitionID]*disk{}}
			n.lives = &memLives{life: 1, seen: map[fsm.NodeID]memSighting{}, mark: func() {}}
			c.nodes[id] = n
		}
		open := func(ids ...fsm.NodeID) {
			for _, id := range ids {
				c.start(id)
				if err := c.nodes[id].host.Open(1, c.ids); err != nil {
					t.Fatal(err)
				}
			}
		}
		defer c.close()
		began := time.Now()
		open("n1", "n2")
		verified := func(id fsm.NodeID) bool { return !c.nodes[id].host.Replica(1).Unverified() }
		for !verified("n1") || !verified("n2") {
			time.Sleep(10 * time.Millisecond)
		}
		if d := time.Since(began); d < Defaults().VerifyPatience || d > Defaults().VerifyPatience+time.Second {
			t.Errorf("verified after %v with one peer down", d)
		}
		c.leader(1)
		began = time.Now()
		open("n3")
		for !verified("n3") {
			time.Sleep(10 * time.Millisecond)
		}
		if d := time.Since(began); d > 50*time.Millisecond {
			t.Errorf("verified after %v with all peers up", d)
		}
	})
}

func TestNobodyVouchesForAReplicaThatIsAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.nodes["n1"] = &testNode{id: "n1", disks: map[fsm.PartitionID]*disk{},
			lives: &memLives{life: 1, seen: map[fsm.NodeID]memSighting{}, mark: func() {}}}
		c.start("n1")
		defer c.close()
		if err := c.nodes["n1"].host.Open(1, c.ids); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r := c.nodes["n1"].host.Replica(1)
		if !r.Unverified() || r.Err() == nil || r.Status().Broken {
			t.Errorf("status %+v", r.Status())
		}
	})
}

// R8: an empty replica of a name that has votes in its group is asked for one.
func TestReplicaWithoutAConfigurationDoesNotVote(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		c.leader(1)
		n := c.nodes["n3"]
		c.crash("n3")
		n.disks[1] = newDisk() // its disk was lost
		c.start("n3")
		c.net.Isolate("n3", true)
		if err := n.host.Open(1, nil); err != nil {
			t.Fatal(err)
		}
		r := n.host.Replica(1)
		l := &line{from: "n1", to: r}
		from := newPeer("n1", r.ID(), l)
		h := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n1"), Addr: []byte("n1")}
		_ = from.RequestVote("n3", "n3", &raft.RequestVoteRequest{RPCHeader: h, Term: 99}, new(raft.RequestVoteResponse))
		if !errors.Is(l.err, raftnet.ErrBlank) {
			t.Errorf("vote: %v", l.err)
		}
		l.err = nil
		_ = from.RequestPreVote("n3", "n3", &raft.RequestPreVoteRequest{RPCHeader: h, Term: 99}, new(raft.RequestPreVoteResponse))
		if !errors.Is(l.err, raftnet.ErrBlank) {
			t.Errorf("pre-vote: %v", l.err)
		}
		if term := termOf(r); term != 0 {
			t.Errorf("term went to %d", term)
		}
		c.net.Isolate("n3", false)
	})
}

// R8's cousin: what the group has given a node since its old copy was found is no old copy. A replica of that node that is
// opened anew in the same process takes part again.
func TestAReplicaThatWasRebuiltForAnOldCopyOpensAnew(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 0)
		defer b.close()
		b.partitions = 1
		b.ids = []fsm.NodeID{"n1", "n2", "n3"}
		for _, id := range b.ids {
			n := &testNode{id: id, disks: map[fsm.PartitionID]*disk{}}
			n.lives = &memLives{life: 2, seen: map[fsm.NodeID]memSighting{}, mark: func() {
				n.mu.Lock()
				defer n.mu.Unlock()
				for _, d := range n.disks {
					d.damaged = errors.New("an old copy")
				}
			}}
			b.nodes[id] = n
			b.revive(id)
		}
		b.createQueue(t.Context(), "n1", queue("orders", true))
		b.whole("n1 n2 n3")
		b.kill("n3")
		lives := b.nodes["n3"].lives.(*memLives)
		lives.life = 1 // its directory is that of an earlier start
		b.revive("n3")
		time.Sleep(10 * time.Second)
		b.whole("n1 n2 n3")
		if lives.marks != 1 {
			t.Fatalf("the directory was marked %d times", lives.marks)
		}
		first := b.all["n3"].host.Replica(1)
		first.RestartStuck(errors.New("as if it were stuck"))
		time.Sleep(time.Minute)
		r := b.all["n3"].host.Replica(1)
		if r == first || r.Unverified() || r.Status().Failure != "" {
			t.Errorf("a minute after its new start: %+v", r.Status())
		}
	})
}
