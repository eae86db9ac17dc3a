package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// A node whose catalog is old, as after a restart, leads a group. Its catalog wants a node in the group that has been
// forgotten since. That node must not be taken in: it would get a vote and never answer. S-318.
func TestALeaderWithAnOldCatalogTakesNobodyIn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokersAs(t, 3, func(b *brokers) { b.partitions = 1 })
		defer b.close()
		b.until("there is a partition", func() string { return b.unfinished("n1", "n2", "n3") })
		b.grow("n4")
		b.wantVersion("n4", fsm.NewestVersion)
		b.until("n4 belongs to the cluster", func() string {
			if _, known := b.all["n1"].dir.View().Node("n4"); !known {
				return "n1 does not know it"
			}
			return ""
		})
		away := func(p fsm.PartitionID) { // n1 does not lead
			if r := b.all["n1"].host.Replica(p); r != nil && r.Leading() {
				_ = b.all["n1"].host.TransferLeadership(t.Context(), p, "n2") // asked again
			}
		}
		b.until("n2 leads", func() string {
			away(0)
			away(1)
			if !b.all["n2"].host.Replica(1).Leading() || b.all["n1"].host.Replica(0).Leading() {
				return "n1 does"
			}
			return ""
		})
		b.net.Swallow(func(_, to fsm.NodeID, kind uint8, msg []byte) bool { // n1 hears nothing of the catalog
			if to != "n1" || kind != KindRaft {
				return false
			}
			c, err := raftnet.ParseCall(msg)
			return err == nil && c.Group == fsm.CatalogPartition
		})
		b.wish("n2", "n3", catalog.Remove)
		b.until("n3 is forgotten", func() string {
			away(1)
			if _, known := b.all["n2"].dir.View().Node("n3"); known {
				return "it is known"
			}
			return ""
		})
		if _, known := b.all["n1"].dir.View().Node("n3"); !known {
			t.Fatal("n1 has heard of it")
		}

		b.until("n1 leads the partition", func() string {
			if err := b.all["n2"].host.TransferLeadership(t.Context(), 1, "n1"); err != nil {
				return err.Error()
			}
			return ""
		})
		for range 60 {
			_ = b.all["n3"].host.Open(1, nil) // as n3 does when it has started with an old catalog
			time.Sleep(time.Second)
			if st := b.all["n1"].host.Replica(1).Status(); slices.Contains(slices.Concat(st.Voters, st.Nonvoters), "n3") {
				t.Fatalf("n3 is a member again: %v, without a vote %v", st.Voters, st.Nonvoters)
			}
		}
		if !b.all["n1"].host.Replica(1).Leading() {
			t.Error("n1 does not lead, so nothing was tried")
		}
		b.net.Swallow(nil)
		b.until("the group is whole", func() string { return b.unfinished("n2") })
	})
}

// The catalog gives the places of two voters to others, and then all three voters fail. The two have no place any more
// when they come back, but the group needs their votes to get its new members. S-319.
func TestAVoterWithoutAPlaceStillVotes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokersAs(t, 3, func(b *brokers) { b.partitions = 1 })
		defer b.close()
		b.until("there is a partition", func() string { return b.unfinished("n1", "n2", "n3") })
		d := b.createQueue(t.Context(), "n1", queue("orders", false))
		const sent = 20
		for i := range sent {
			sendOne(t, b.all["n1"].r, reqOf(0, 1, i+1), fsm.Key{Entity: d.ID, By: fsm.ByShare})
		}
		b.grow("n4")
		b.grow("n5")
		b.until("n4 and n5 belong to the cluster", func() string {
			for _, id := range []fsm.NodeID{"n4", "n5"} {
				if _, known := b.all["n1"].dir.View().Node(id); !known {
					return string(id)
				}
			}
			return ""
		})
		b.place(t, 1, "n4", "n2", "n5")
		for _, id := range []fsm.NodeID{"n1", "n2", "n3"} {
			b.kill(id)
		}
		time.Sleep(10 * time.Second)
		for _, id := range []fsm.NodeID{"n1", "n2", "n3"} {
			b.revive(id)
		}
		b.until("the partition has its new members", func() string { return b.unfinished("n4") })
		b.wantActive("n4", d, sent)
		if got := b.voters(1); got != "n2 n4 n5" && got != "n4 n2 n5" {
			t.Errorf("the voters are %s", got)
		}
	})
}

// A node that was silent while one leader of the catalog looked, and is again when the next one does, was not silent in
// between. It keeps its places.
func TestSilenceIsNotCountedAcrossLeaderships(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokersAs(t, 3, func(b *brokers) {
			b.partitions = 1
			b.tune = func(c *Config) { c.ReplaceAfter = 2 * time.Minute }
		})
		defer b.close()
		b.until("there is a partition", func() string { return b.unfinished("n1", "n2", "n3") })
		b.grow("n4")
		b.wantVersion("n4", fsm.NewestVersion)
		lead := func(id fsm.NodeID) {
			b.until("the catalog is led by "+string(id), func() string {
				if r := b.all[id].host.Replica(fsm.CatalogPartition); r.Leading() {
					return ""
				}
				if err := b.all[id].host.TransferLeadership(t.Context(), fsm.CatalogPartition, id); err != nil {
					return err.Error()
				}
				return "not yet"
			})
		}
		lead("n2")
		b.net.Isolate("n1", true)
		time.Sleep(5 * time.Second) // n2 sees it
		lead("n3")
		b.net.Isolate("n1", false)
		time.Sleep(3 * time.Minute)
		b.net.Isolate("n1", true)
		lead("n2")
		time.Sleep(20 * time.Second)
		for _, g := range b.all["n2"].dir.View().Groups() {
			if !slices.Contains(g.Members, "n1") {
				t.Errorf("n1 was silent for 20 seconds and has lost its place: %v", g.Members)
			}
		}
		b.net.Heal()
		b.until("the group is whole", func() string { return b.unfinished("n2") })
	})
}
