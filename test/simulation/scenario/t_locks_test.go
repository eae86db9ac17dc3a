package scenario

import (
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
)

// T-1; S-5, S-143, S-150
func TestT1ACompletedMessageIsGone(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "a")
		r := c.receiver("q")
		r.one().complete()
		r.none(0)
		want(b, "messages in peek", len(c.peek("q", 0, 10)), 0)
	})
}

// T-2; S-13, S-153, S-9
func TestT2AnAbandonedMessageComesBackFirst(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "1", "2", "3")
		r := c.receiver("q")
		r.one().abandon()
		list := r.take(3)
		wantAll(b, "order", texts(list), "1", "2", "3")
		want(b, "count of the abandoned", list[0].count(), 2)
		want(b, "count of the next", list[1].count(), 1)
	})
}

// T-3; S-9, S-8
func TestT3AbandonedMessagesKeepTheirPlaces(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "1", "2", "3")
		r := c.receiver("q")
		list := r.take(3)
		list[2].abandon()
		list[0].abandon()
		wantAll(b, "order", texts(r.take(2)), "1", "3")
	})
}

// T-4; S-10, S-148
func TestT4ALockedMessageIsPassedBy(t *testing.T) {
	onThree(t, func(b *bench) {
		one, other := b.clientAt(0), b.clientAt(1)
		b.queue("q")
		one.send("q", "1", "2", "3")
		one.receiver("q").one()
		at := time.Now()
		want(b, "what the other gets", other.receiver("q").one().text(), "2")
		b.about("and when", time.Now(), at, 100*time.Millisecond)
	})
}

// T-5; S-18, S-159, S-293
func TestT5AnExpiredLockIsLost(t *testing.T) {
	onThree(t, func(b *bench) {
		one, other := b.clientAt(0), b.clientAt(1)
		b.queue("q")
		one.send("q", "a")
		first := one.receiver("q").one()
		at := time.Now()
		again := other.receiver("q").one()
		if d := time.Since(at); d < 4900*time.Millisecond || d > 5500*time.Millisecond {
			b.Fatalf("the message came back after %s", d)
		}
		want(b, "count", again.count(), 2)
		b.pass(time.Second)
		b.refused("complete", first.tryComplete(), lockLost)
		again.complete()
	})
}

// T-7; S-14, S-165
func TestT7TheLastDeliveryDeadLetters(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q", maxDelivery(3))
		c.send("q", "a")
		r := c.receiver("q")
		for i := range 2 {
			m := r.one()
			want(b, "count", m.count(), i+1)
			m.abandon()
		}
		want(b, "count", r.one().count(), 3)
		r.none(10 * time.Second)
		dead := c.receiver(deadLetters("q")).one()
		want(b, "reason", dead.reason(), "MaxDeliveryCountExceeded")
	})
}

// T-8; S-14
func TestT8WithOneDeliveryAbandonDeadLetters(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q", maxDelivery(1))
		c.send("q", "a")
		c.receiver("q").one().abandon()
		want(b, "dead letters", c.peek(deadLetters("q"), 0, 10)[0].text(), "a")
	})
}

// T-9; S-15, S-170; RUL-11
func TestT9TheCountOfADeadLetterStands(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "a")
		r := c.receiver("q")
		r.one().abandon()
		r.one().deadLetter("enough", "")
		dead := c.receiver(deadLetters("q"))
		for range 25 {
			m := dead.one()
			want(b, "count", m.count(), 2)
			m.abandon()
		}
		dead.one().complete()
	})
}

// T-10; S-16
func TestT10TheCountComesBeforeTheExpiry(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q", maxDelivery(1))
		c.sender("q").send(message("a", living(2*time.Second)))
		m := c.receiver("q").one()
		b.pass(3 * time.Second)
		m.abandon()
		want(b, "reason", c.receiver(deadLetters("q")).one().reason(), "MaxDeliveryCountExceeded")
	})
}

// T-11; S-17, S-152
func TestT11AnOldTokenIsDead(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "a")
		r := c.receiver("q")
		first := r.one()
		first.abandon()
		second := r.one()
		if first.token == second.token {
			b.Fatal("a token was given twice")
		}
		b.refused("complete with the first token", c.settleByToken("q", "completed", first.token), lockLost)
		b.must("complete with the second", c.settleByToken("q", "completed", second.token))
	})
}

// T-15; S-21
func TestT15ATokenSettlesOnAnotherConnection(t *testing.T) {
	onThree(t, func(b *bench) {
		one, other := b.clientAt(0), b.clientAt(2)
		b.queue("q")
		one.send("q", "a")
		m := one.receiver("q").one()
		b.must("complete elsewhere", other.settleByToken("q", "completed", m.token))
		want(b, "messages left", len(other.peek("q", 0, 10)), 0)
	})
}

// T-17; S-7, S-183
func TestT17ADeferredMessageStaysDeferredWhenItsLockEnds(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "a")
		r := c.receiver("q")
		m := r.one()
		m.deferIt()
		want(b, "count when fetched", c.fetch("q", m.seq())[0].count(), 2)
		b.pass(6 * time.Second)
		want(b, "state in peek", c.peek("q", 0, 10)[0].state(), 1)
		r.none(0)
		want(b, "count when fetched again", c.fetch("q", m.seq())[0].count(), 3)
	})
}

// T-18; S-156, S-157
func TestT18ARenewedLockLastsItsDurationFromNow(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "a")
		r := c.receiver("q")
		m := r.one()
		at := time.Now()
		b.pass(4 * time.Second)
		b.about("locked until", m.renew(), at.Add(9*time.Second), 200*time.Millisecond)
		b.pass(4 * time.Second)
		want(b, "count", m.count(), 1)
		m.complete()
		r.none(0)
	})
}

// T-19; S-156
func TestT19ALockLivesAsLongAsItIsRenewed(t *testing.T) {
	onThree(t, func(b *bench) {
		one, other := b.clientAt(0), b.clientAt(1)
		b.queue("q")
		one.send("q", "a")
		m := one.receiver("q").one()
		r := other.receiver("q")
		for range 20 {
			r.none(3 * time.Second)
			m.renew()
		}
		b.pass(6 * time.Second)
		_, err := one.tryRenew("q", m.token)
		b.refused("renew after the end", err, lockLost)
	})
}

// T-20; S-156
func TestT20RenewalIsAllOrNone(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "1", "2", "3")
		r := c.receiver("q")
		list := r.take(3)
		at := time.Now()
		list[1].complete()
		b.pass(3 * time.Second)
		_, err := c.tryRenew("q", list[0].token, list[1].token, list[2].token)
		b.refused("renew", err, lockLost)
		again := r.take(2)
		b.about("back", time.Now(), at.Add(5*time.Second), 500*time.Millisecond)
		wantAll(b, "the others", texts(again), "1", "3")
	})
}

// T-21; S-157, S-262. What the management API refuses is in transport/rest.
func TestT21ALockKeepsTheDurationItWasTakenWith(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q", lockFor(30*time.Second))
		c.send("q", "1", "2")
		r := c.receiver("q")
		m := r.one()
		b.update("q", lockFor(5*time.Second))
		next := r.one()
		b.about("the new lock", next.lockedUntil(), time.Now().Add(5*time.Second), 200*time.Millisecond)
		b.pass(20 * time.Second)
		m.complete()
	})
}

// T-22; S-154
func TestT22AVerdictSetsProperties(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.sender("q").send(message("m", with("a", int32(1))))
		r := c.receiver("q")
		check := func(m *got) {
			want[any](b, "a", m.property("a"), int32(2))
			want[any](b, "b", m.property("b"), "x")
		}
		m := r.one()
		b.must("abandon", m.tryAbandon(map[string]any{"a": int32(2), "b": "x"}))
		m = r.one()
		check(m)
		b.must("defer", m.tryDefer(map[string]any{"c": "y"}))
		m = c.fetch("q", m.seq())[0]
		check(m)
		want[any](b, "c", m.property("c"), "y")
		b.must("abandon", c.settleByToken("q", "abandoned", m.token))
	})
}

// T-24; S-155, S-11
func TestT24ADeadLetterIsTheSameMessage(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "a")
		m := c.receiver("q").one()
		m.deadLetter("R", "D")
		dead := c.receiver(deadLetters("q")).one()
		want(b, "reason", dead.reason(), "R")
		want[any](b, "description", dead.property("DeadLetterErrorDescription"), "D")
		want(b, "number", dead.seq(), m.seq())
		want(b, "enqueued", dead.enqueuedAt(), m.enqueuedAt())
		want[any](b, "id", dead.Properties.MessageID, m.Properties.MessageID)
		want(b, "count", dead.count(), 1)
	})
}

// T-26; S-161, S-21
func TestT26LocksOutliveTheirLink(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "1", "2", "3", "4", "5", "6")
		r := c.receiver("q")
		list := r.take(6)
		at := time.Now()
		r.close()
		for i, verdict := range []string{"completed", "abandoned", "defered", "suspended"} {
			b.must(verdict, c.settleByToken("q", verdict, list[i].token))
		}
		_, err := c.tryRenew("q", list[4].token)
		b.must("renew", err)
		again := c.receiver("q")
		want(b, "the abandoned", again.one().text(), "2")
		last := again.one()
		want(b, "the one left alone", last.text(), "6")
		want(b, "its count", last.count(), 2)
		b.about("not before its lock ended", time.Now(), at.Add(5*time.Second), 500*time.Millisecond)
	})
}

// T-31; S-6, S-246
func TestT31PeekShowsLockedMessagesAsActive(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "1", "2")
		c.receiver("q").one()
		list := c.peek("q", 0, 10)
		wantAll(b, "peeked", texts(list), "1", "2")
		for _, m := range list {
			want(b, "state", m.state(), 0)
			want(b, "locked until", m.lockedUntil(), time.Time{})
			want(b, "token", m.token, goamqp.UUID{})
		}
	})
}

// T-219; S-262
func TestT219AnUpdateOfMaxDeliveryCountsForWhatIsLocked(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "a")
		r := c.receiver("q")
		for range 3 {
			r.one().abandon()
		}
		m := r.one()
		b.update("q", func(d *fsm.Descriptor) { d.MaxDelivery = 2 })
		m.abandon()
		want(b, "reason", c.receiver(deadLetters("q")).one().reason(), "MaxDeliveryCountExceeded")
	})
}
