package scenario

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
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
		r.one()
		b.update("q", status(fsm.ReceiveDisabled))
		if _, err := r.tryState(); err == nil {
			b.Fatal("the state was read")
		}
		if _, err := r.tryRenewSession(); err == nil {
			b.Fatal("the session was renewed")
		}
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

// T-138; S-64, S-65, S-66, S-67
func TestT138StateIsBytesOrNone(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		r := b.client().accept("q", "S", 0)
		check := func(value []byte) {
			b.Helper()
			state, err := r.tryState()
			b.must("get", err)
			want(b, "none", state == nil, value == nil)
			want(b, "state", string(state), string(value))
		}
		check(nil)
		for _, value := range [][]byte{[]byte(strings.Repeat("\x00\xffx", 341)), {}, nil} {
			b.must("set", r.trySetState(value))
			check(value)
		}
	})
}

// T-139; S-68
func TestT139StateWantsTheLock(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		r := b.client().accept("q", "S", 0)
		b.pass(6 * time.Second)
		_, err := r.tryState()
		b.refused("get", err, sessionLost)
		b.refused("set", r.trySetState([]byte("x")), sessionLost)
		_, err = b.client().tryAsk("q", "get-session-state", map[string]any{"session-id": "S"})
		b.refused("get without a session", err, sessionLost)
	})
}

// T-140; S-69
func TestT140StateIsAsLargeAsAMessage(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions)
		r := b.client().accept("q", "S", 0)
		most := bytes.Repeat([]byte("state of 16 byte"), 16<<10)
		b.must("set", r.trySetState(most))
		b.refused("one byte more", r.trySetState(make([]byte, len(most)+1)), tooLarge)
		state, err := r.tryState()
		b.must("get", err)
		want(b, "the old state stays", bytes.Equal(state, most), true)
	})
}

// T-141; S-70
func TestT141StateOutlivesEverything(t *testing.T) {
	on(t, labOf(64), func(b *bench) {
		b.queue("q", sessions)
		check := func(when string) {
			b.Helper()
			c := b.survivor()
			r := c.accept("q", "S", 0)
			state, err := r.tryState()
			b.must("get "+when, err)
			want(b, "state "+when, string(state), "kept")
			r.close()
			c.close()
		}
		c := b.client()
		sendTo(c, "q", "S", "a")
		r := c.accept("q", "S", 0)
		b.must("set", r.trySetState([]byte("kept")))
		r.one().complete()
		r.close()
		check("after draining and closing")
		c.accept("q", "S", 0)
		b.pass(6 * time.Second)
		check("after the lock expired")
		leader := b.lab.Leader(1)
		b.lab.Crash(leader, true)
		check("after a crash of the leader")
		b.must("start", b.lab.Start(leader))
		b.must("serve", b.lab.Settled())
		for i := range 3 {
			b.lab.Snapshot(i)
		}
		for i := range 3 {
			b.lab.Crash(i, true)
		}
		for i := range 3 {
			b.must("start", b.lab.Start(i))
		}
		b.must("serve", b.lab.Settled())
		check("after a power loss of all")
	})
}

// T-142; S-71, S-225
func TestT142StateCountsForTheQuota(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions, maxBytes(40<<10))
		c := b.client()
		r := c.accept("q", "S", 0)
		b.must("set", r.trySetState(make([]byte, 30<<10)))
		before := b.counts("q").SizeBytes
		other := c.accept("q", "T", 0)
		b.refused("set", other.trySetState(make([]byte, 20<<10)), quotaExceeded)
		big := message(strings.Repeat("x", 20<<10), withID("m"), inSession("S"))
		b.refused("send", c.sender("q").try(big), quotaExceeded)
		b.must("clear", r.trySetState(nil))
		if after := b.counts("q").SizeBytes; after+(30<<10) > before {
			b.Fatalf("%d bytes before, %d after", before, after)
		}
		c.sender("q").send(big)
	})
}

// T-143; S-72
func TestT143AnAcknowledgedStateIsNeverLost(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(5*time.Minute))
		leader := b.lab.Leader(1)
		r := b.clientAt((leader+1)%3).accept("q", "S", 0)
		last := 0
		crash := b.later(func() error {
			b.pass(300 * time.Millisecond)
			b.lab.Crash(leader, true)
			return nil
		})
		for i := 1; i <= 200; i++ {
			if r.trySetState([]byte(fmt.Sprint(i))) == nil {
				last = i
			}
		}
		b.must("crash", <-crash)
		state, err := r.tryState()
		b.must("get", err)
		var got int
		_, err = fmt.Sscan(string(state), &got)
		b.must("read", err)
		if got < last {
			b.Fatalf("the state is %d, %d was acknowledged", got, last)
		}
	})
}
