package partition

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// want has nodes ask for so many partitions, from now on and after a restart.
func (b *brokers) want(n int, ids ...fsm.NodeID) {
	if b.wanted == nil {
		b.wanted = map[fsm.NodeID]int{}
	}
	for _, id := range ids {
		b.wanted[id] = n
		b.all[id].host.SetPartitions(n)
	}
}

// has reports why the cluster has not so many partitions, all of them at their members and evenly spread.
func (b *brokers) has(n int, nodes ...fsm.NodeID) string {
	if got := len(b.all[nodes[0]].dir.View().Groups()); got != n {
		return fmt.Sprintf("%d partitions", got)
	}
	return b.level(nodes...)
}

// stays fails the test unless the cluster has so many partitions for five minutes, one in the short form.
func (b *brokers) stays(n int, via fsm.NodeID) {
	b.t.Helper()
	span := 5 * time.Minute
	if testing.Short() {
		span = time.Minute
	}
	time.Sleep(span)
	if got := len(b.all[via].dir.View().Groups()); got != n {
		b.t.Errorf("%d partitions, want %d", got, n)
	}
}

// A cluster has as many partitions as every node asks for. New entities use all of them, entities that were there keep
// their shares and their messages, and clients notice nothing. A lower number takes nothing away.
func TestPartitionsAreAddedUnderLoad(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, old, sent := loaded(t)
		defer b.close()
		w := b.traffic("n1", "n2", "n3")
		b.want(11, "n1", "n2")
		b.want(9, "n3")
		b.until("there are as many as all ask for", func() string { return b.has(9, "n1", "n2", "n3") })
		b.want(11, "n3")
		b.until("there are more", func() string { return b.has(11, "n1", "n2", "n3") })
		fresh := b.createQueue(t.Context(), "n2", queue("fresh", true))
		if len(fresh.Partitions) != 11 {
			t.Errorf("shares of a new queue: %v", fresh.Partitions)
		}
		for share, p := range fresh.Partitions {
			n := sendOne(t, b.all["n3"].r, reqOf(2, 60+share, 1), fsm.Key{Entity: fresh.ID, By: fsm.ByShare, Share: uint16(share)})
			if n.Prefix() != p {
				t.Errorf("a message of share %d has the number %d", share, n)
			}
		}
		if now, err := b.all["n1"].dir.Get(t.Context(), "orders"); err != nil || !slices.Equal(now.Partitions, old.Partitions) {
			t.Errorf("shares %v, before %v, %v", now.Partitions, old.Partitions, err)
		}
		b.want(2, "n1", "n2", "n3")
		b.stays(11, "n1")
		w.end()
		b.wantActive("n1", old, sent)
	})
}

// Partitions wait for a node that does not answer, for one that drains if no other is free, and for older programs. A
// number that nobody set is no number.
func TestPartitionsWaitForEveryNode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, _, _ := loaded(t)
		defer b.close()
		b.want(6, "n1", "n2")
		b.kill("n3")
		b.stays(4, "n1")
		b.wanted["n3"] = 5
		b.revive("n3")
		b.until("there are five", func() string { return b.has(5, "n1", "n2", "n3") })
		b.want(0, "n3") // nobody says
		b.until("there are six", func() string { return b.has(6, "n1", "n2", "n3") })
	})
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		b.knows("n3", fsm.VersionFirst)
		b.createQueue(t.Context(), "n1", queue("orders", true))
		b.want(6, "n1", "n2", "n3")
		b.stays(4, "n1")
	})
}

// The leader of the catalog may die at any moment while partitions are added. Each is founded once, all get leaders, and
// the number is reached.
func TestPartitionsAreAddedWhateverDies(t *testing.T) {
	simulatesLong(t)
	for after := range 6 {
		inBubble(t, func(t *testing.T) {
			b, d, sent := loaded(t)
			defer b.close()
			b.wantVersion("n1", fsm.NewestVersion)
			b.want(24, "n1", "n2", "n3")
			time.Sleep(time.Duration(after) * 700 * time.Millisecond)
			victim := b.leader(fsm.CatalogPartition).Node()
			b.kill(victim)
			time.Sleep(20 * time.Second)
			b.revive(victim)
			b.until("all are there", func() string { return b.has(24, "n1", "n2", "n3") })
			fresh := b.createQueue(t.Context(), "n1", queue("fresh", true))
			for share := range fresh.Partitions {
				sendOne(t, b.all["n2"].r, reqOf(1, 60+share, 1), fsm.Key{Entity: fresh.ID, By: fsm.ByShare, Share: uint16(share)})
			}
			b.wantActive("n1", d, sent)
		})
	}
}

// New partitions avoid one zone and slow loads from the start: nothing has to move afterwards.
func TestNewPartitionsStandWhereTheyBelong(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := inZones(t, 3, "east", "east", "west", "west", "north")
		defer b.close()
		b.createQueue(t.Context(), "n1", queue("orders", true))
		b.until("no two replicas are in one zone", func() string { return b.crowded("n1") })
		b.want(20, b.ids...)
		b.until("all are there", func() string {
			if n := len(b.all["n1"].dir.View().Groups()); n != 20 {
				return fmt.Sprint(n)
			}
			return b.crowded("n1")
		})
		for _, g := range b.all["n1"].dir.View().Groups() {
			if g.ID > 4 && (!slices.Equal(g.Members, g.Founders) || g.Epoch != 0) {
				t.Errorf("partition %d was moved: %+v", g.ID, g)
			}
		}
	})
}
