package partition

import (
	"context"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// The leadership of a partition goes to the node through which its clients come, and comes back when they do. Leaders
// stay level, and nothing is refused to the clients.
func TestALeadershipGoesWhereTheClientsAre(t *testing.T) {
	simulatesLong(t)
	inBubble(t, func(t *testing.T) {
		b := newBrokersAs(t, 3, func(b *brokers) { b.followFrom = 10 })
		defer b.close()
		ctx := shortly(t, 30*time.Minute)
		d := b.createQueue(ctx, "n1", queue("orders", false))
		p := d.Partitions[0]
		pump := 0
		through := func(id fsm.NodeID, perSecond int, lasts time.Duration) {
			t.Helper()
			over, stop := context.WithTimeout(ctx, lasts)
			defer stop()
			pump++
			for n := 1; over.Err() == nil; n++ {
				c := &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("body")}}}
				o, err := b.all[id].r.Propose(ctx, reqOf(int(id[1]-'1'), pump, n), fsm.Key{Entity: d.ID}, c)
				if err != nil || o.Refusal != fsm.None {
					t.Fatalf("send through %s: %+v, %v", id, o, err)
				}
				time.Sleep(time.Second / time.Duration(perSecond))
			}
		}
		leads := func(id fsm.NodeID, when string) {
			t.Helper()
			if got := b.leader(p).Node(); got != id {
				t.Errorf("%s: %s leads, want %s", when, got, id)
			}
			if text := b.level("n1", "n2", "n3"); text != "" {
				t.Errorf("%s: %s", when, text)
			}
		}
		b.until("leaders are level", func() string { return b.level("n1", "n2", "n3") })
		home := b.leader(p).Node()
		away := b.others(home)[0]
		through(away, 20, 45*time.Second)
		leads(home, "after less than two windows")
		through(away, 20, 2*time.Minute)
		leads(away, "when all come through another node")
		time.Sleep(10 * time.Minute)
		leads(away, "when nobody comes")
		through(home, 5, 5*time.Minute)
		leads(away, "when few come through the first node")
		through(home, 20, 3*time.Minute)
		leads(home, "when all come through the first node again")
	})
}
