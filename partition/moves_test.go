package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// big makes a cluster of three with a queue whose partition holds so many messages of 4 KiB, behind a snapshot of each
// replica. The bound of what a node sends to new replicas is low.
func big(t *testing.T, messages int, tune func(*Config)) (*brokers, *fsm.Descriptor) {
	b := newBrokersAs(t, 3, func(b *brokers) { b.tune = tune })
	d := b.createQueue(t.Context(), "n1", queue("big", false))
	for i := range messages {
		o, err := b.all["n1"].r.Propose(shortly(t, time.Minute), reqOf(0, 1, i+1), fsm.Key{Entity: d.ID},
			&fsm.Enqueue{Messages: []fsm.Message{{Body: make([]byte, 4<<10)}}})
		if err != nil || len(o.Numbers) != 1 {
			t.Fatalf("send %d: %+v, %v", i, o, err)
		}
	}
	b.whole("n1 n2 n3")
	for _, id := range b.ids {
		if err := b.all[id].host.Replica(d.Partitions[0]).Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	return b, d
}

const slowRate = 128 << 10 // bytes per second

func slowMoves(b *brokers) {
	for _, n := range b.all {
		n.host.SetMoveRate(slowRate)
	}
}

// sendings samples what is on its way from the leader of a partition to a node, until the node votes there.
func (b *brokers) sendings(p fsm.PartitionID, to fsm.NodeID, members string) (seen []raftnet.Sending) {
	b.until(fmt.Sprintf("partition %d has the members %s", p, members), func() string {
		for _, id := range b.ids {
			if n := b.all[id]; n != nil && n.host.Replica(p) != nil {
				for _, s := range n.host.Replica(p).Status().Sending {
					if s.To == to {
						seen = append(seen, s)
					}
				}
			}
		}
		if got := b.voters(p); got != members {
			return got
		}
		return ""
	})
	return seen
}

// A new replica is filled no faster than the setting says, the leader tells how far it is, and clients notice nothing.
func TestAMoveKeepsToItsRate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d := big(t, 1200, func(c *Config) { c.TrailingLogs = 64 })
		defer b.close()
		slowMoves(b)
		b.grow("n4")
		slowMoves(b)
		w := b.traffic("n1", "n2", "n3")
		b.wantVersion("n1", fsm.NewestVersion)
		b.wish("n1", "n3", catalog.Drain)
		seen := b.sendings(d.Partitions[0], "n4", "n1 n2 n4")
		w.end()
		const size = 1200 * 4 << 10
		if len(seen) < 300 {
			t.Fatalf("seen %d times on its way", len(seen))
		}
		for i, s := range seen {
			most := uint64(s.Taken.Seconds()*slowRate) + 128<<10
			if s.Size < size || s.Sent > most || s.Sent > s.Size || i > 0 && s.Index == seen[i-1].Index && s.Sent < seen[i-1].Sent {
				t.Fatalf("on its way: %+v, at most %d bytes", s, most)
			}
		}
		if last := seen[len(seen)-1]; last.Taken < size/slowRate*time.Second*9/10 {
			t.Errorf("all was sent after %v: %+v", last.Taken, last)
		}
		b.wantActive("n4", d, 1200)
	})
}

// A replica that is filled slowly catches up with a partition that is written to all the while: the log behind the
// snapshot that it is sent stays until then.
func TestASlowMoveUnderLoadIsSentOneSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d := big(t, 1200, func(c *Config) { c.TrailingLogs, c.SnapshotBytes = 64, 32<<10 })
		defer b.close()
		slowMoves(b)
		b.grow("n4")
		slowMoves(b)
		w := b.traffic("n1", "n2", "n3")
		b.wantVersion("n1", fsm.NewestVersion)
		before := b.net.Calls(KindSnapshot)
		b.wish("n1", "n3", catalog.Drain)
		b.until("n3 is empty", func() string { return b.drained("n3") + b.unfinished("n1") })
		w.end()
		if sent := b.net.Calls(KindSnapshot) - before; sent > b.partitions {
			t.Errorf("%d snapshots were sent for %d partitions", sent, b.partitions)
		}
		b.wantActive("n4", d, 1200)
	})
}

// busyCatalog has entities made and deleted all the time, so that each node writes, until stop is called.
func (b *brokers) busyCatalog(via fsm.NodeID) (stop func()) {
	end, done, dir := make(chan struct{}), make(chan struct{}), b.all[via].dir
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			case <-time.After(300 * time.Millisecond):
			}
			d, err := dir.Create(b.t.Context(), queue(fmt.Sprint("q", i), false))
			if err == nil {
				err = dir.Delete(b.t.Context(), d.Name)
			}
			if err != nil {
				b.t.Errorf("entity %d: %v", i, err)
			}
		}
	}()
	return func() { close(end); <-done }
}

// A node whose disk is much slower than the others' gets nothing to be balanced, is a place for want of another one, and
// gets its share when its disk is well again.
func TestASlowDiskGetsNothingUnlessNoOtherIsFree(t *testing.T) {
	simulatesLong(t)
	inBubble(t, func(t *testing.T) {
		b, d, sent := loaded(t)
		defer b.close()
		stop := b.busyCatalog("n1")
		b.wantVersion("n1", fsm.NewestVersion)
		b.ids = append(b.ids, "n4")
		b.nodes["n4"] = &testNode{id: "n4", disks: map[fsm.PartitionID]*disk{}}
		b.nodes["n4"].delay.Store(int64(400 * time.Millisecond))
		b.cfg = func(c *Config) { c.Incarnation = 504 }
		b.join("n4", nil)
		b.wish("n1", "n4", catalog.Drain) // nothing more, until its disk is judged
		b.until("n4 is empty", func() string { return b.drained("n4") + b.unfinished("n1") })
		time.Sleep(time.Minute)
		b.wish("n1", "n4", catalog.Serve)
		time.Sleep(5 * time.Minute)
		if load, leads := b.spread("n1"); load["n4"]+leads["n4"] > 0 {
			t.Errorf("the slow node has replicas: %v", load)
		}
		b.grow("n5")
		b.until("the others are level", func() string { return b.level("n1", "n2", "n3", "n5") })
		if load, _ := b.spread("n1"); load["n4"] > 0 {
			t.Errorf("the slow node has replicas: %v", load)
		}
		b.wish("n1", "n2", catalog.Drain)
		b.wish("n1", "n3", catalog.Drain)
		b.until("two nodes are empty", func() string { return b.drained("n2") + b.drained("n3") + b.unfinished("n1") })
		if load, leads := b.spread("n1"); load["n4"] != b.partitions || leads["n4"] > 0 {
			t.Errorf("replicas %v, leaders %v", load, leads)
		}
		b.nodes["n4"].delay.Store(0)
		b.until("all four are level", func() string { return b.level("n1", "n4", "n5") })
		stop()
		b.wantActive("n1", d, sent)
	})
}
