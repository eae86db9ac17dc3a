package scenario

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// T-32; S-144
func TestT32AnEmptyQueueAnswersWhenTheWaitIsOver(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		r := b.client().receiver("q")
		at := time.Now()
		r.none(2 * time.Second) // then what was asked for is drained
		b.about("the end of the wait", time.Now(), at.Add(2*time.Second), 100*time.Millisecond)
		at = time.Now()
		r.none(0)
		b.about("no wait", time.Now(), at, 100*time.Millisecond)
	})
}

// T-33; S-144, S-267
func TestT33AWaitingReceiverIsServedAtOnce(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		r, s := b.clientAt(0).receiver("q"), b.clientAt(1).sender("q")
		done := b.waiting(r, patience)
		b.pass(time.Second)
		at := time.Now()
		s.send(message("a"))
		if <-done == nil {
			b.Fatal("nothing came")
		}
		b.about("delivery", time.Now(), at, 100*time.Millisecond)
	})
}

// T-34; S-144
func TestT34WhatIsThereIsGivenWithoutWaitingForMore(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "a")
		r := c.receiver("q")
		b.must("ask for ten", r.IssueCredit(10))
		r.open = 10
		at := time.Now()
		r.one()
		b.about("delivery", time.Now(), at, 100*time.Millisecond)
		r.none(time.Second)
	})
}

// T-35; S-145, S-148, S-146
func TestT35AMessageGoesToTheFirstWhoWaits(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		s := b.client().sender("q")
		var all []chan *got
		for i := range 5 {
			r := b.clientAt(i % 3).receiver("q")
			all = append(all, b.waiting(r, time.Duration(5+i)*time.Second))
			b.pass(20 * time.Millisecond) // in this order
		}
		at := time.Now()
		s.send(message("a"))
		for i, ch := range all {
			m := <-ch
			want(b, fmt.Sprintf("receiver %d got one", i), m != nil, i == 0)
			if i > 0 {
				b.about("its own time-out", time.Now(), at.Add(time.Duration(5+i)*time.Second), 200*time.Millisecond)
			}
		}
	})
}

// T-36; S-146
func TestT36WaitingReceiversAreServedInTheirOrder(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		s := b.client().sender("q")
		var all []chan *got
		for i := range 5 {
			all = append(all, b.waiting(b.clientAt(i%3).receiver("q"), patience))
			b.pass(20 * time.Millisecond)
		}
		for i := range 5 {
			s.send(message(fmt.Sprint(i)))
		}
		for i, ch := range all {
			m := <-ch
			if m == nil || m.text() != fmt.Sprint(i) {
				b.Fatalf("receiver %d got %v", i, m)
			}
		}
	})
}

// T-37; S-267
func TestT37NoWakeUpIsLost(t *testing.T) {
	rounds := size("T-37", "sends against a receive", 10_000, 300)
	onThree(t, func(b *bench) {
		b.queue("q")
		r, s := b.clientAt(0).receiver("q"), b.clientAt(1).sender("q")
		for i := range rounds {
			// The send arrives at any moment of the receive: before it, while it looks, after it.
			done := b.later(func() error {
				b.pass(time.Duration(i%40) * 100 * time.Microsecond)
				return s.try(message(fmt.Sprint(i)))
			})
			m, err := r.try(5 * time.Second)
			b.must("receive", err)
			b.must("send", <-done)
			if m == nil {
				b.Fatalf("round %d: a receive that waited 5 s got nothing", i)
			}
			m.complete()
		}
	})
}

// T-39; S-147
func TestT39NothingIsLockedForAReceiverThatHasGone(t *testing.T) {
	rounds := size("T-39", "receives cancelled", 1000, 60)
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(5*time.Minute))
		s := b.client().sender("q")
		c := b.clientAt(1)
		seen := map[string]bool{}
		for i := range rounds {
			text := fmt.Sprint(i)
			done := b.later(func() error {
				b.pass(time.Duration(i%30) * 100 * time.Microsecond)
				return s.try(message(text))
			})
			r := c.receiver("q")
			b.must("ask", r.IssueCredit(1))
			b.pass(time.Duration((i*7)%30) * 100 * time.Microsecond)
			r.close()
			if m := r.Prefetched(); m != nil { // delivered before the close: it has an owner
				g := &got{Message: m, rx: r, token: tokenOf(m.DeliveryTag)}
				b.must("complete", c.settleByToken("q", "completed", g.token))
				seen[g.text()] = true
			}
			b.must("send", <-done)
		}
		r := c.receiver("q")
		for len(seen) < rounds {
			m := r.one() // at once: the locks of this queue last five minutes
			want(b, "count of "+m.text(), m.count(), 1)
			m.complete()
			seen[m.text()] = true
		}
	})
}

// T-40; S-147
func TestT40AReceiveThatWasCancelledTakesNothing(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		one, other := b.clientAt(0), b.clientAt(1)
		r := one.receiver("q", deleting)
		b.must("ask", r.IssueCredit(1))
		b.pass(time.Second)
		r.close()
		other.send("q", "a")
		want(b, "count", other.receiver("q").one().count(), 1)
	})
}

// T-41; S-149
func TestT41PrefetchedMessagesGrowOld(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "1", "2", "3")
		r := c.receiver("q")
		b.must("prefetch", r.IssueCredit(3))
		r.open = 3
		list := r.take(3)
		b.pass(3 * time.Second)
		list[0].complete()
		b.pass(3 * time.Second)
		b.refused("complete after 6 s", list[1].tryComplete(), lockLost)
		m := r.one()
		want(b, "back", m.text(), "2")
		want(b, "count", m.count(), 2)
	})
}

// T-42; S-149
func TestT42WithoutPrefetchNothingIsHeld(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q", lockFor(5*time.Minute))
		c.send("q", "1", "2", "3")
		r := c.receiver("q")
		r.one().complete()
		b.pass(time.Second)
		want(b, "locked messages", b.counts("q").Locked, 0)
		m := r.one()
		want(b, "locked messages while one is worked on", b.counts("q").Locked, 1)
		m.complete()
	})
}

// S-149: messages are locked while they lie in a client's buffer unread, their lock time runs there, and
// when it ends that was an attempt.
func TestWhatLiesInABufferIsLockedAndGrowsOld(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		c.send("q", "1", "2", "3", "4")
		r := c.receiver("q")
		b.must("prefetch", r.IssueCredit(3))
		r.open = 3
		b.pass(time.Second)
		want(b, "locked before the application has seen any", b.counts("q").Locked, 3)
		wantAll(b, "what others get", texts([]*got{b.client().receiver("q").one()}), "4")
		b.pass(6 * time.Second)
		want(b, "locked when their time is over", b.counts("q").Locked, 0)
		for _, m := range r.take(3) {
			want(b, "count of "+m.text()+" in the buffer", m.count(), 1)
			b.refused("complete "+m.text(), m.tryComplete(), lockLost)
		}
		for _, m := range b.client().receiver("q").take(3) {
			want(b, "count of "+m.text()+" afterwards", m.count(), 2)
		}
	})
}

// S-149: what was received and deleted into a buffer is lost with it, and nothing else is.
func TestWhatWasDeletedIntoALostBufferIsLost(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		b.client().send("q", "1", "2", "3", "4")
		c := b.client()
		r := c.receiver("q", deleting)
		b.must("prefetch", r.IssueCredit(3))
		b.pass(time.Second)
		c.die() // the application has seen none of them
		b.pass(time.Minute)
		n := b.counts("q")
		want(b, "left", n.Active, 1)
		want(b, "dead letters", n.DeadLetter, 0)
		other := b.client().receiver("q")
		m := other.one()
		want(b, "the one that was not asked for", m.text(), "4")
		want(b, "its count", m.count(), 1)
		m.complete()
		other.none(time.Second)
	})
}

// T-37 on a partitioned queue; S-316, T-268
func TestT268AReceiverGetsEverythingFromAllPartitions(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", partitioned)
		c := b.client()
		s := c.sender("q")
		for i := range 100 {
			s.send(message(fmt.Sprint(i)))
		}
		var mu sync.Mutex
		var all []string
		r := b.clientAt(1).receiver("q")
		for range 100 {
			m := r.one()
			mu.Lock()
			all = append(all, m.text())
			mu.Unlock()
			m.complete()
		}
		var sent []string
		for i := range 100 {
			sent = append(sent, fmt.Sprint(i))
		}
		exactly(b, "received", all, sent)
		r.none(time.Second)
	})
}
