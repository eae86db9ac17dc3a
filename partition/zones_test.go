package partition

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// inZones makes a cluster whose nodes n1, n2 and so on stand in these zones.
func inZones(t *testing.T, votes int, zones ...string) *brokers {
	zone := map[fsm.NodeID]string{}
	for i, z := range zones {
		zone[fsm.NodeID(fmt.Sprint("n", i+1))] = z
	}
	return newBrokersAs(t, len(zones), func(b *brokers) { b.votes, b.zone = votes, zone })
}

// crowded reports a partition of which two replicas stand in one zone, or that is not yet where the catalog wants it.
func (b *brokers) crowded(via fsm.NodeID) string {
	for _, g := range b.all[via].dir.View().Groups() {
		if why := b.together(g.Members); why != "" {
			return fmt.Sprintf("partition %d: %s", g.ID, why)
		}
	}
	return b.unfinished(via)
}

// together reports two nodes that stand in one zone, as the catalog knows it.
func (b *brokers) together(nodes []fsm.NodeID) string {
	at := map[string]fsm.NodeID{}
	for _, id := range nodes {
		n, _ := b.all[b.anyone()].dir.View().Node(id)
		if n.Zone == "" {
			return fmt.Sprintf("%s has told no zone", id)
		}
		if at[n.Zone] != "" {
			return fmt.Sprintf("%s and %s are in %s", at[n.Zone], id, n.Zone)
		}
		at[n.Zone] = id
	}
	return ""
}

func (b *brokers) anyone() fsm.NodeID {
	for _, id := range b.ids {
		if b.all[id] != nil {
			return id
		}
	}
	b.t.Fatal("no node runs")
	return ""
}

// votersTogether reports voters of the catalog that stand in one zone.
func (b *brokers) votersTogether(want int) string {
	var voters []fsm.NodeID
	for name := range strings.FieldsSeq(b.voters(fsm.CatalogPartition)) {
		if !strings.HasPrefix(name, "(") {
			voters = append(voters, fsm.NodeID(name))
		}
	}
	if len(voters) != want {
		return fmt.Sprintf("%d voters: %v", len(voters), voters)
	}
	return b.together(voters)
}

// Replicas and voters of the catalog are moved apart as soon as nodes tell zones, and then rest. The loss of a zone
// leaves a majority of each group.
func TestReplicasAndVotersAvoidOneZone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := inZones(t, 3, "east", "east", "west", "west", "north")
		defer b.close()
		d := b.createQueue(t.Context(), "n1", queue("orders", true))
		w := b.traffic("n1", "n2", "n3")
		b.until("no two replicas are in one zone", func() string { return b.crowded("n1") })
		b.until("no two voters are in one zone", func() string { return b.votersTogether(3) })
		w.end()
		version := b.all["n1"].dir.View().Version()
		b.until("the load is even, as far as zones allow", func() string {
			before := version
			time.Sleep(time.Minute)
			if version = b.all["n1"].dir.View().Version(); version != before {
				return "the catalog changed within a minute"
			}
			return ""
		})
		time.Sleep(5 * time.Minute)
		if v := b.all["n1"].dir.View().Version(); v != version {
			t.Errorf("a cluster at rest changed its catalog %d times", v-version)
		}
		b.kill("n1")
		b.kill("n2")
		for share := range d.Partitions {
			sendOne(t, b.all["n3"].r, reqOf(3, 50+share, 1), fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(share)})
		}
		b.decides(t, "n3")
	})
}

// A node that starts anew in another zone has told it, and replicas are moved for it. Without a zone it is nowhere.
func TestANodeMovesToAnotherZone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := inZones(t, 3, "east", "west", "north", "north")
		defer b.close()
		b.createQueue(t.Context(), "n1", queue("orders", true))
		b.until("no two replicas are in one zone", func() string { return b.crowded("n1") })
		b.kill("n4")
		b.zone["n4"] = "east"
		b.revive("n4")
		b.until("the catalog knows the new zone", func() string {
			n, _ := b.all["n2"].dir.View().Node("n4")
			if n.Zone != "east" {
				return fmt.Sprintf("%+v", n)
			}
			return ""
		})
		b.until("no two replicas are in one zone", func() string { return b.crowded("n2") })
		for _, g := range b.all["n2"].dir.View().Groups() {
			if slices.Contains(g.Members, "n1") && slices.Contains(g.Members, "n4") {
				t.Errorf("partition %d: %v", g.ID, g.Members)
			}
		}
		b.kill("n4")
		delete(b.zone, "n4")
		b.revive("n4")
		b.until("the zone is forgotten", func() string {
			n, _ := b.all["n2"].dir.View().Node("n4")
			return n.Zone
		})
	})
}

// No zone is told while a node runs a program that does not know zones. Its catalog would be another one.
func TestZonesWaitForOlderNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := inZones(t, 3, "east", "west", "north")
		defer b.close()
		b.knows("n3", fsm.VersionFirst)
		b.createQueue(t.Context(), "n1", queue("orders", true))
		time.Sleep(5 * time.Minute)
		for _, n := range b.all["n1"].dir.View().Nodes() {
			if n.Zone != "" {
				t.Errorf("node %s told its zone %q", n.ID, n.Zone)
			}
		}
	})
}
