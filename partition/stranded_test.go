package partition

import (
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// While a node is off, all that voted beside it are exchanged for others and forgotten. None of them can say any more that its data is
// not an old copy, so its replicas are taken in anew.
func TestANodeOutlivesAllVotersThatItKnew(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 0)
		defer b.close()
		b.partitions = 1
		b.ids = []fsm.NodeID{"n1", "n2", "n3"}
		begin := func(id fsm.NodeID, f func(fsm.NodeID)) {
			if b.nodes[id] == nil {
				l := &memLives{seen: map[fsm.NodeID]memSighting{}, mark: func() {}}
				b.nodes[id] = &testNode{id: id, disks: map[fsm.PartitionID]*disk{}, lives: l}
			}
			b.nodes[id].lives.(*memLives).life++
			f(id)
		}
		revive := func(id fsm.NodeID) { b.revive(id) }
		for _, id := range b.ids { // they found the cluster
			begin(id, revive)
		}
		b.createQueue(t.Context(), "n1", queue("orders", true))
		b.whole("n1 n2 n3")
		begin("n4", b.grow)
		b.until("n4 knows the cluster", func() string {
			if r := b.all["n4"].host.Replica(fsm.CatalogPartition); r.Unverified() || r.Blank() {
				return "it does not"
			}
			return ""
		})
		time.Sleep(time.Minute)
		b.kill("n4")
		for i, id := range []fsm.NodeID{"n5", "n6", "n7"} {
			begin(id, b.grow)
			old := b.ids[i]
			b.wish(id, old, catalog.Remove)
			b.until(string(old)+" is forgotten", func() string { return b.forgotten(id, old) })
			b.kill(old)
		}
		begin("n4", revive)
		b.until("n4 is in the cluster again", func() string {
			if s := b.all["n4"].host.Replica(fsm.CatalogPartition).Status(); s.Failure != "" || s.Leader == "" {
				return s.Failure
			}
			return ""
		})
	})
}
