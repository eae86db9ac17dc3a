package partition

import (
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// alarm returns the error of an alarm.
func alarm(t *testing.T, h *Host, name string) error {
	t.Helper()
	for _, c := range h.Alarms() {
		if c.Name == name {
			return c.Err
		}
	}
	t.Fatalf("there is no alarm %q", name)
	return nil
}

// A catalog without a leader concerns all nodes alike: none of them may send its clients away for that.
func TestACatalogWithoutALeaderIsAnAlarm(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d, _ := loaded(t)
		defer b.close()
		l := b.leader(0).Node()
		others := b.others(l)
		// Two of three copies of the catalog fail, so the third elects nobody and nothing can be mended.
		b.all[l].host.Replica(0).Fail(errDisk)
		b.all[others[0]].host.Replica(0).Fail(errDisk)
		time.Sleep(30 * time.Second)
		last := b.all[others[1]]
		if err := alarm(t, last.host, CheckCatalogLeader); !errors.Is(err, fsm.ErrUnavailable) {
			t.Errorf("alarm: %v", err)
		}
		if err := last.host.Ready(t.Context()); err != nil {
			t.Errorf("not ready: %v", err)
		}
		for share := range d.Partitions { // and it is right to be
			sendOne(t, last.r, reqOf(7, share, 1), fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(share)})
		}
		// A failed replica is the node's own fault.
		if err := b.all[l].host.Ready(t.Context()); err == nil {
			t.Error("a node with a failed replica is ready")
		}
	})
}

func TestReadinessNamesWhatIsWrong(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		time.Sleep(10 * time.Second)
		failing := func(id fsm.NodeID) (names []string) {
			for _, check := range c.nodes[id].host.Readiness(t.Context()) {
				if check.Err != nil {
					names = append(names, check.Name)
				}
			}
			return names
		}
		far := c.others(r.Node())[0]
		if got := failing(far); len(got) != 0 {
			t.Errorf("all is well, and %v fail", got)
		}
		c.net.Isolate(far, true)
		time.Sleep(time.Minute)
		if got := failing(far); len(got) != 1 || got[0] != CheckLeaders {
			t.Errorf("cut off, and %v fail", got)
		}
		c.net.Isolate(far, false)
		time.Sleep(time.Minute)
		c.nodes[far].host.Replica(1).Fail(errDisk)
		if got := failing(far); len(got) != 1 || got[0] != CheckReplicas {
			t.Errorf("a replica failed, and %v fail", got)
		}
	})
}
