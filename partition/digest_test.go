package partition

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/partition/wire"
)

// canary is a state that goes wrong once, at the first message after it was armed.
type canary struct {
	*fsm.State
	armed *atomic.Bool
}

func (c *canary) Apply(index uint64, e *fsm.Entry) fsm.Result {
	for i := range e.Requests {
		if _, ok := e.Requests[i].Command.(*fsm.Enqueue); ok && c.armed.Swap(false) {
			wrong := *e
			wrong.Wall += 3_600_000 // as a bit that flips in the memory of one node
			e = &wrong
		}
	}
	return c.State.Apply(index, e)
}

// checkpointed makes a cluster of three that compares digests every ten seconds, and a queue.
func checkpointed(t *testing.T, armed map[fsm.NodeID]*atomic.Bool) (*brokers, *fsm.Descriptor) {
	t.Helper()
	b := &brokers{testCluster: newTestCluster(t, 3), all: map[fsm.NodeID]*broker{}, partitions: 2,
		lifeOf: map[fsm.NodeID]int{}}
	for i, id := range b.ids {
		b.cfg = func(c *Config) {
			c.Incarnation, c.CheckpointEvery = fsm.Incarnation(100+i), 10*time.Second
		}
		b.machine = func(p fsm.PartitionID) replica.Machine {
			if p == 1 && armed[id] != nil {
				return &canary{State: fsm.New(p), armed: armed[id]}
			}
			return realMachine(p)
		}
		b.join(id, b.ids)
	}
	return b, b.createQueue(shortly(t, time.Minute), "n1", queue("orders", true))
}

// agree waits until all nodes have computed a digest behind the same entry, and compares.
func (b *brokers) agree(p fsm.PartitionID) {
	b.t.Helper()
	for range 600 {
		time.Sleep(100 * time.Millisecond)
		sums := map[uint64][]replica.Digest{}
		for _, id := range b.ids {
			for _, d := range b.nodes[id].host.Replica(p).Digests() {
				sums[d.Index] = append(sums[d.Index], d)
			}
		}
		common := false
		for _, all := range sums {
			for _, d := range all {
				if d != all[0] {
					b.t.Fatalf("digests differ: %+v", all)
				}
			}
			common = common || len(all) == len(b.ids)
		}
		if common {
			return
		}
	}
	b.t.Errorf("the replicas of partition %d never compute a digest of the same entry", p)
}

// I24: a replica whose state is not that of the others is found at the next checkpoint, fails, and is
// rebuilt, whether it follows or leads.
func TestReplicaThatDiffersIsRebuilt(t *testing.T) {
	for _, leads := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			armed := map[fsm.NodeID]*atomic.Bool{"n1": {}, "n2": {}, "n3": {}}
			b, d := checkpointed(t, armed)
			defer b.close()
			bad := b.leader(1).Node()
			if !leads {
				bad = b.others(bad)[0]
			}
			armed[bad].Store(true)
			sick := b.nodes[bad].host.Replica(1)
			k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(slices.Index(d.Partitions, 1))}
			sent := 0
			for range 40 {
				sent++
				sendOne(t, b.all["n1"].r, reqOf(0, 7, sent), k)
				time.Sleep(time.Second)
			}
			if armed[bad].Load() {
				t.Fatal("the canary did not sing")
			}
			if f := sick.Failure(); !errors.Is(f, errDiverged) {
				t.Fatalf("%s (leads is %v) goes on: %v", bad, leads, f)
			}
			b.whole("n1 n2 n3")
			if n := b.nodes[bad].rebuilds.Load(); n != 1 {
				t.Errorf("rebuilt %d times", n)
			}
			for range 30 {
				sent++
				sendOne(t, b.all["n1"].r, reqOf(0, 7, sent), k)
				time.Sleep(time.Second)
			}
			b.agree(1)
			b.wantActive("n1", d, sent)
			for _, id := range b.others(bad) {
				if b.nodes[id].rebuilds.Load() != 0 {
					t.Errorf("%s was rebuilt", id)
				}
			}
		})
	}
}

// I24: a replica that was found to differ is not used again by a process that ended before its rebuild;
// the next one has it rebuilt at once, not at the next checkpoint.
func TestQuarantineOutlastsTheProcess(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		armed := map[fsm.NodeID]*atomic.Bool{"n1": {}, "n2": {}, "n3": {}}
		b, d := checkpointed(t, armed)
		defer b.close()
		bad := b.others(b.leader(1).Node())[0]
		armed[bad].Store(true)
		sick := b.nodes[bad].host.Replica(1)
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(slices.Index(d.Partitions, 1))}
		sent := 0
		for sick.Failure() == nil {
			sent++
			if sent > 1000 {
				t.Fatal("the canary did not sing")
			}
			sendOne(t, b.all["n1"].r, reqOf(0, 7, sent), k)
			time.Sleep(50 * time.Millisecond)
		}
		b.crash2(t, bad)
		if b.nodes[bad].rebuilds.Load() != 0 {
			t.Fatal("it was rebuilt before: nothing is shown")
		}
		b.restart(bad, 200) // its CheckpointEvery is five minutes, and nothing changes meanwhile
		began := time.Now()
		for r := b.nodes[bad].host.Replica(1); r == nil; r = b.nodes[bad].host.Replica(1) {
			for _, s := range b.nodes[bad].host.Status() {
				if s.Partition == 1 && (!s.Broken || s.Failure == "") {
					t.Fatalf("status: %+v", s)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := b.nodes[bad].rebuilds.Load(); n != 1 {
			t.Errorf("opened again after %d rebuilds", n)
		}
		b.whole("n1 n2 n3")
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("whole again after %v", took)
		}
		b.agree(1)
		b.wantActive("n1", d, sent)
	})
}

// Digests of healthy replicas agree through captures, restores, installs and new leaders, and a group
// that does not change writes none.
func TestHealthyReplicasAgree(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d := checkpointed(t, nil)
		defer b.close()
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(slices.Index(d.Partitions, 1))}
		sent := 0
		for round := range 6 {
			for range 25 {
				sent++
				sendOne(t, b.all["n1"].r, reqOf(0, 7, sent), k)
				time.Sleep(time.Second)
			}
			b.agree(1)
			l := b.leader(1)
			if err := l.Snapshot(); err != nil {
				t.Fatal(err)
			}
			if round%2 == 0 {
				dead := b.others(l.Node())
				dead = slices.DeleteFunc(dead, func(n fsm.NodeID) bool { return n == "n1" })
				b.kill(dead[0])
				b.revive(dead[0])
			} else if err := l.Transfer(shortly(t, 10*time.Second), b.others(l.Node())[0]); err != nil {
				t.Fatal(err)
			}
			b.whole("n1 n2 n3")
		}
		b.wantActive("n2", d, sent)
		for _, id := range b.ids {
			if b.nodes[id].rebuilds.Load() != 0 {
				t.Errorf("%s was rebuilt", id)
			}
		}
		time.Sleep(time.Minute)
		before := b.leader(2).Applied()
		time.Sleep(10 * time.Minute)
		if after := b.leader(2).Applied(); after != before {
			t.Errorf("a silent group wrote %d entries", after-before)
		}
	})
}

// Nobody but the leader has a replica quarantined, and none that agrees with what it is told.
func TestQuarantineIsNotForTheAsking(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d := checkpointed(t, nil)
		defer b.close()
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(slices.Index(d.Partitions, 1))}
		for i := range 20 {
			sendOne(t, b.all["n1"].r, reqOf(0, 7, i+1), k)
			time.Sleep(time.Second)
		}
		b.agree(1)
		l := b.leader(1).Node()
		to := b.others(l)[0]
		own := b.nodes[to].host.Replica(1).Digests()
		last := own[len(own)-1]
		call := func(from fsm.NodeID, index uint64, sum string) error {
			msg := []byte{0, 1}
			for s := 56; s >= 0; s -= 8 {
				msg = append(msg, byte(index>>s))
			}
			_, err := b.nodes[from].port.Call(t.Context(), to, KindQuarantine, wire.AppendBytes(msg, []byte(sum)))
			return err
		}
		for name, err := range map[string]error{
			"by a follower":          call(b.others(l)[1], last.Index, "00"),
			"that agrees":            call(l, last.Index, last.Sum),
			"of an unknown entry":    call(l, last.Index+1, "00"),
			"with a digest too long": call(l, last.Index, string(make([]byte, 2*replica.SumBytes+1))),
		} {
			if err == nil {
				t.Errorf("quarantined %s", name)
			}
		}
		for _, msg := range [][]byte{nil, {0}, {0, 1, 2}, make([]byte, 10)} {
			if _, err := b.nodes[l].port.Call(t.Context(), to, KindQuarantine, msg); err == nil {
				t.Errorf("quarantined by %x", msg)
			}
		}
		if f := b.nodes[to].host.Replica(1).Failure(); f != nil {
			t.Errorf("failed: %v", f)
		}
	})
}
