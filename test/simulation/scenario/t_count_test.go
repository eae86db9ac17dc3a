package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// T-12; S-152, S-307
func TestT12ARepeatedSettlementIsAnsweredAsTheFirst(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "a")
		m := c.receiver("q").one()
		settle := &fsm.Settle{Items: []fsm.SettleItem{{Token: fsm.LockToken(m.token), Verdict: fsm.Complete}}}
		id := fsm.RequestID{Node: 77, Pump: 1, Counter: 1}
		for range 2 {
			o := b.propose("q", id, settle)
			wantAll(b, "answer", o.Refusals, fsm.None)
		}
		id.Counter++
		wantAll(b, "answer to another request", b.propose("q", id, settle).Refusals, fsm.MessageLockLost)
	})
}

// T-13; S-12
func TestT13WhatDoesNotDeliverChangesNothing(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q", lockFor(time.Minute), defaultTTL(time.Hour))
		c.send("q", "a")
		m := c.receiver("q").one()
		for i := range 10 {
			c.peek("q", 0, 10)
			if i%2 == 0 {
				m.renew()
			}
			if i%4 == 3 {
				b.must("move the leadership", b.lab.Lead(1, (b.lab.Leader(1)+1)%3))
			}
		}
		p := c.peek("q", 0, 10)[0]
		want(b, "number", p.seq(), m.seq())
		want(b, "enqueued", p.enqueuedAt(), m.enqueuedAt())
		want(b, "expires", p.expiresAt(), m.expiresAt())
		want(b, "count", p.count(), m.count())
		m.complete()
	})
}

// T-23; S-154. The limit is on what settlements have set; the sender's own properties had theirs.
func TestT23AVerdictWithTooManyPropertiesFails(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		part := strings.Repeat("x", 24<<10)
		c.send("q", "a")
		r := c.receiver("q")
		b.must("abandon", r.one().tryAbandon(map[string]any{"a": part, "b": part}))
		m := r.one()
		b.refused("72 KiB of properties", m.tryAbandon(map[string]any{"c": part}), tooLarge)
		b.must("complete with the same token", c.settleByToken("q", "completed", m.token))
	})
}

// T-25; S-151, S-164
func TestT25ALostLockMeansARedelivery(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "a")
		r := c.receiver("q")
		first := r.one()
		again := r.one()
		b.refused("complete", c.settleByToken("q", "completed", first.token), lockLost)
		want(b, "number", again.seq(), first.seq())
		want[any](b, "id", again.Properties.MessageID, first.Properties.MessageID)
		want(b, "count", again.count(), 2)
	})
}

// T-27; S-160, S-162, S-12; RUL-19
func TestT27LocksOfALostConnectionEndSoon(t *testing.T) {
	onThree(t, func(b *bench) {
		one, other := b.clientAt(0), b.clientAt(1)
		b.queue("q", lockFor(5*time.Minute))
		one.send("q", "a")
		m := one.receiver("q").one()
		one.die()
		at := time.Now()
		again := other.receiver("q").one()
		const grace = 5 * time.Second // what the front end grants, and what it may take to notice
		if d := time.Since(at); d > grace+2*time.Second {
			b.Fatalf("it came back after %s", d)
		}
		want(b, "count", again.count(), 2)
		b.refused("complete with the old token", other.settleByToken("q", "completed", m.token), lockLost)
	})
}

// T-28; S-162, S-14
func TestT28AConsumerThatDiesOnEveryDeliveryIsStopped(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", maxDelivery(3))
		b.client().send("q", "poison")
		for i := range 3 {
			c := b.clientAt(i)
			want(b, "count", c.receiver("q").one().count(), i+1)
			c.die()
		}
		dead := b.client().receiver(deadLetters("q")).one()
		want(b, "reason", dead.reason(), "MaxDeliveryCountExceeded")
	})
}

// T-30; S-142, S-283
func TestT30ReceiveAndDeleteDeliversAtMostOnce(t *testing.T) {
	onThree(t, func(b *bench) {
		c, other := b.clientAt(0), b.clientAt(1)
		b.queue("q")
		other.send("q", "a")
		r := c.receiver("q", deleting)
		heal := b.lab.CutClient(c.number, 0) // what the broker writes does not arrive
		b.must("ask", r.IssueCredit(1))
		b.pass(10 * time.Millisecond)
		heal()
		want(b, "delivered", r.one().text(), "a")
		other.receiver("q").none(10 * time.Second)
	})
}

// T-169; S-184, S-183
func TestT169DeferralAndTheCount(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "a")
		m := c.receiver("q").one()
		want(b, "first", m.count(), 1)
		m.deferIt()
		fetch := func(n int) *got {
			g := c.fetch("q", m.seq())[0]
			want(b, "count", g.count(), n)
			return g
		}
		b.must("abandon", c.settleByToken("q", "abandoned", fetch(2).token))
		b.must("defer", c.settleByToken("q", "defered", fetch(3).token))
		b.must("dead-letter", c.settleByToken("q", "suspended", fetch(4).token))
		want(b, "dead letter", c.receiver(deadLetters("q")).one().count(), 4)
	})
}

// T-170; S-184
func TestT170TheLastDeliveryCannotBeDeferred(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q", maxDelivery(1))
		c.send("q", "a")
		c.receiver("q").one().deferIt()
		want(b, "reason", c.receiver(deadLetters("q")).one().reason(), "MaxDeliveryCountExceeded")
	})
}
