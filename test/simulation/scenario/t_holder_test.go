package scenario

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// T-119; S-43
func TestT119WhatASessionGetsGoesToItsHolder(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(time.Minute))
		one, other := b.clientAt(0), b.clientAt(1)
		r := one.accept("q", "S", 0)
		sendTo(other, "q", "S", "a", "b")
		_, err := other.tryAccept("q", nil, 5*time.Second)
		b.refused("accept next", err, timedOut)
		wantAll(b, "the holder gets", texts(r.take(2)), "a", "b")
	})
}

// T-120; S-43, S-55
func TestT120NothingOfAFreeSessionIsDelivered(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(time.Minute))
		c := b.client()
		for i := range 4 {
			sendTo(c, "q", fmt.Sprint("S", i), fmt.Sprint(i))
		}
		for i := range 3 {
			r := b.clientAt(i).accept("q", nil, 5*time.Second)
			want(b, "session", r.held(), fmt.Sprint("S", i))
			want(b, "message", r.one().text(), fmt.Sprint(i))
			r.none(time.Second)
		}
		at := time.Now()
		want(b, "the fourth", b.client().accept("q", nil, 5*time.Second).held(), "S3")
		b.about("at once", time.Now(), at, 200*time.Millisecond)
	})
}

// T-121; S-44, S-46
func TestT121AMessageIsLockedAsLongAsItsSession(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "a", "b")
		r := c.accept("q", "S", 0)
		m := r.one()
		b.about("locked until", m.lockedUntil(), r.lockedUntil(), 50*time.Millisecond)
		b.pass(3 * time.Second)
		until, err := r.tryRenewSession()
		b.must("renew", err)
		b.about("renewed until", until, time.Now().Add(5*time.Second), 100*time.Millisecond)
		b.about("the next message", r.one().lockedUntil(), until, 50*time.Millisecond)
		_, err = c.tryRenew("q", m.token)
		b.refused("renew one message of a session", err, notAllowed)
		b.pass(4 * time.Second)
		m.complete()
	})
}

// T-122; S-45
func TestT122ASessionLockLastsItsDuration(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		r := c.accept("q", "S", 0)
		b.pass(4500 * time.Millisecond)
		b.must("set the state", r.trySetState([]byte("x")))
		b.pass(time.Second)
		b.refused("set the state after the end", r.trySetState([]byte("y")), sessionLost)
	})
}

// T-124; S-47
func TestT124ABlockedHolderHearsOfTheLoss(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		r := b.client().accept("q", "S", 0)
		at := time.Now()
		_, err := r.try(time.Minute)
		b.refused("receive", err, sessionLost)
		b.about("the loss", time.Now(), at.Add(5*time.Second), time.Second)
	})
}

// T-125; S-48, S-49
func TestT125AClosedSessionIsFreeAndCountsNothing(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "1", "2", "3")
		r := c.accept("q", "S", 0)
		r.take(3)
		r.close()
		list := b.clientAt(1).accept("q", "S", 0).take(3)
		wantAll(b, "order", texts(list), "1", "2", "3")
		for _, m := range list {
			want(b, "count", m.count(), 1)
		}
	})
}

// T-126; S-50
func TestT126AnExpiredSessionCountsWhatWasInFlight(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "1", "2", "3", "4", "5")
		c.accept("q", "S", 0).take(2)
		b.pass(6 * time.Second)
		list := b.clientAt(1).accept("q", "S", 0).take(5)
		wantAll(b, "order", texts(list), "1", "2", "3", "4", "5")
		for i, m := range list {
			want(b, "count of "+m.text(), m.count() == 2, i < 2)
		}
	})
}

// T-127; S-51
func TestT127CompletedMessagesLeaveNothingBehind(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "1", "2", "3", "4")
		r := c.accept("q", "S", 0)
		for _, m := range r.take(3) {
			m.complete()
		}
		r.close()
		r = c.accept("q", "S", 0)
		m := r.one()
		want(b, "left", m.text(), "4")
		want(b, "count", m.count(), 1)
		r.none(0)
	})
}

// T-128; S-50, S-14
func TestT128SessionExpiriesCountToTheLimit(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, maxDelivery(2))
		c := b.client()
		sendTo(c, "q", "S", "1", "2")
		for range 2 {
			want(b, "in flight", c.accept("q", "S", 0).one().text(), "1")
			b.pass(6 * time.Second)
		}
		want(b, "next", c.accept("q", "S", 0).one().text(), "2")
		want(b, "dead letter", c.receiver(deadLetters("q")).one().reason(), "MaxDeliveryCountExceeded")
	})
}

// T-129; S-52; RUL-2, RUL-19
func TestT129ASessionOfALostConnectionIsFreeSoon(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(5*time.Minute))
		one, other := b.clientAt(0), b.clientAt(1)
		sendTo(one, "q", "S", "1", "2")
		one.accept("q", "S", 0).one()
		one.die()
		at := time.Now()
		r := other.accept("q", nil, time.Minute)
		if d := time.Since(at); d > 7*time.Second {
			b.Fatalf("free after %s", d)
		}
		want(b, "count", r.one().count(), 2)
	})
}

// T-130; S-53
func TestT130AnEarlierDeliveryCannotBeSettled(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "a")
		first := c.accept("q", "S", 0).one()
		b.pass(6 * time.Second)
		again := c.accept("q", "S", 0).one()
		b.refused("complete the earlier delivery", first.tryComplete(), sessionLost)
		again.complete()
		want(b, "left", len(c.peek("q", 0, 10)), 0)
	})
}

// T-131; S-54, S-254
func TestT131ADisabledQueueTakesItsSessionsBack(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "a")
		r := c.accept("q", "S", 0)
		m := r.one()
		b.update("q", status(fsm.ReceiveDisabled))
		_, err := r.tryState()
		b.refused("get the state", err, entityDisabled)
		_, err = r.tryRenewSession()
		b.refused("renew", err, sessionLost)
		b.refused("complete", m.tryComplete(), entityDisabled)
		b.update("q", status(fsm.Active))
		want(b, "count", b.client().accept("q", "S", 0).one().count(), 1)
	})
}

// T-132; S-56, S-57
func TestT132MessagesOfASessionAreSettledInAnyOrder(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "1", "2", "3")
		r := c.accept("q", "S", 0)
		list := r.take(3)
		wantAll(b, "order", texts(list), "1", "2", "3")
		for _, i := range []int{2, 0, 1} {
			list[i].complete()
		}
		want(b, "left", len(c.peek("q", 0, 10)), 0)
	})
}

// T-133; S-58
func TestT133AnAbandonedMessageIsNextInItsSession(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "1", "2", "3", "4")
		r := c.accept("q", "S", 0)
		r.take(3)[1].abandon()
		m := r.one()
		want(b, "next", m.text(), "2")
		want(b, "count", m.count(), 2)
		want(b, "then", r.one().text(), "4")
	})
}

// T-134; S-59
func TestT134TheNextHolderGoesOnWhereTheLastOneStopped(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c, other := b.clientAt(0), b.clientAt(1)
		sendTo(c, "q", "S", "1", "2", "3", "4")
		list := c.accept("q", "S", 0).take(3)
		list[0].complete()
		c.die()
		r := other.accept("q", nil, time.Minute)
		wantAll(b, "order", texts(r.take(3)), "2", "3", "4")
	})
}

// T-135; S-60
func TestT135OrderHoldsThroughCrashesOfConsumers(t *testing.T) {
	count, ids := size("T-135", "messages", 100_000, 400), size("T-135", "sessions", 50, 20)
	crashes := size("T-135", "crashes of consumers", 40, 4)
	onThree(t, func(b *bench) {
		b.queue("q", sessions, maxDelivery(1000))
		s := b.client().sender("q")
		for i := range count {
			s.send(message(fmt.Sprint(i), inSession(fmt.Sprint("S", i%ids))))
		}
		var mu sync.Mutex
		first := map[string][]int64{} // by session: numbers in the order of their first completion
		seen := map[int64]bool{}
		var wg sync.WaitGroup
		work := func(c *client, limit int) {
			for n := 0; n < limit; {
				r, err := c.tryAccept("q", nil, 3*time.Second)
				if err != nil {
					return
				}
				for range 20 {
					m, err := r.try(50 * time.Millisecond)
					if err != nil || m == nil {
						break
					}
					if n++; n == limit {
						break
					}
					if m.tryComplete() != nil {
						break
					}
					mu.Lock()
					if !seen[m.seq()] {
						seen[m.seq()] = true
						first[m.session()] = append(first[m.session()], m.seq())
					}
					mu.Unlock()
				}
				if n < limit {
					_ = r.Close(b.ctx) // it may be lost already
				}
			}
			c.die()
		}
		for i := range crashes {
			c := b.clientAt(i % 3)
			wg.Go(func() { work(c, 10+i) })
		}
		wg.Wait()
		for i := range 6 {
			c := b.clientAt(i % 3)
			wg.Go(func() { work(c, count+1) })
		}
		wg.Wait()
		for left := b.counts("q").Active; left > 0; left = b.counts("q").Active {
			b.pass(10 * time.Second) // sessions of the crashed
			work(b.client(), count+1)
		}
		for id, numbers := range first {
			if !slices.IsSorted(numbers) {
				b.Errorf("session %s was completed as %v", id, numbers)
			}
		}
		want(b, "completed", len(seen), count)
	})
}

// T-136; S-61
func TestT136AResubmittedMessageIsANewOne(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "1", "2", "3")
		r := c.accept("q", "S", 0)
		r.one().complete()
		r.one().deadLetter("bad", "")
		r.one().complete()
		dead := c.receiver(deadLetters("q")).one()
		sendTo(c, "q", "S", dead.text())
		dead.complete()
		m := r.one()
		want(b, "text", m.text(), "2")
		want(b, "number", m.seq(), 4)
	})
}

// T-137; S-62
func TestT137ReceiveAndDeleteInASession(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "1", "2", "3")
		r, err := c.tryAcceptWith("q", "S", 0, deleting)
		b.must("accept", err)
		wantAll(b, "order", texts(r.take(3)), "1", "2", "3")
		b.pass(6 * time.Second)
		_, err = r.try(time.Second)
		b.refused("receive after the end", err, sessionLost)
	})
}
