package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
)

// T-269; S-317
func TestT269EverythingFindsItsPartitionAtOnce(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", partitioned, lockFor(time.Minute))
		b.queue("s", partitioned, sessions, lockFor(time.Minute))
		for p := range fsm.PartitionID(4) { // none is led where the client is
			b.must("lead", b.lab.Lead(p+1, 1+int(p)%2))
		}
		c := b.clientAt(0)
		tx := c.sender("q")
		for i := range 12 {
			tx.send(message(fmt.Sprint(i), withKey(fmt.Sprint("k", i))))
		}
		r := c.receiver("q")
		list := r.take(12)
		r.close()
		b.must("renew", b.lockOf(c, list[0])) // opens the links
		once := func(what string, p fsm.PartitionID, f func()) {
			b.Helper()
			hops := b.lab.Hops(f)
			to := b.lab.ID(b.lab.Leader(p))
			if len(hops) != 1 || hops[0] != (simulation.Hop{From: b.lab.ID(0), To: to}) {
				b.Fatalf("%s in partition %d, led by %s: %v", what, p, to, hops)
			}
		}
		seen := map[fsm.PartitionID]bool{}
		for i, m := range list {
			p := fsm.PartitionID(m.seq() >> 48)
			seen[p] = true
			once("renew", p, func() { b.must("renew", b.lockOf(c, m)) })
			if i%2 == 0 {
				once("complete", p, func() { b.must("complete", c.settleByToken("q", "completed", m.token)) })
				continue
			}
			once("defer", p, func() { b.must("defer", c.settleByToken("q", "defered", m.token)) })
			once("fetch", p, func() { c.fetch("q", m.seq()) })
		}
		if len(seen) < 3 {
			b.Fatalf("the messages are in %d partitions", len(seen))
		}
		for i := range 6 {
			id := fmt.Sprint("S", i)
			sendTo(c, "s", id, "x")
			p := fsm.PartitionID(c.peekSession("s", id).seq() >> 48)
			var held *receiver
			once("accept "+id, p, func() { held = c.accept("s", id, 0) })
			once("renew "+id, p, func() {
				_, err := held.tryRenewSession()
				b.must("renew", err)
			})
		}
	})
}

// lockOf renews the lock of a message.
func (b *bench) lockOf(c *client, m *got) error {
	_, err := c.tryRenew("q", m.token)
	return err
}

// peekSession shows the first message of a session.
func (c *client) peekSession(entity, id string) *got {
	c.b.Helper()
	list, err := c.tryPeek(entity, map[string]any{
		"from-sequence-number": int64(0), "message-count": int32(1), "session-id": id,
	})
	c.b.must("peek", err)
	want(c.b, "messages of "+id, len(list), 1)
	return list[0]
}
