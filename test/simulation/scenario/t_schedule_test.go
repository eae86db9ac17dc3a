package scenario

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// T-63; S-90, S-111
func TestT63ActivationGivesANewNumber(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		at := time.Now().Add(2 * time.Second)
		var numbers []int64
		for i := range 10 {
			numbers = append(numbers, c.schedule("q", at, message(fmt.Sprint(i)))...)
		}
		wantAll(b, "numbers", numbers, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
		b.pass(3 * time.Second)
		wantAll(b, "after activation", seqs(c.peekAll("q")), 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
	})
}

// T-77; S-107, S-109, S-114
func TestT77AScheduledMessageComesInItsTime(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		due := time.Now().Add(3 * time.Second)
		c.sender("q").send(message("a", dueAt(due)))
		c.receiver("q").one()
		if now := time.Now(); now.Before(due) || now.After(due.Add(time.Second)) {
			b.Fatalf("received %s after it was due", now.Sub(due))
		}
	})
}

// T-78; S-108
func TestT78SchedulingReturnsTheNumbers(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		numbers := c.schedule("q", at, message("1"), message("2"), message("3"), message("4"), message("5"))
		wantAll(b, "numbers", numbers, 1, 2, 3, 4, 5)
		for _, n := range numbers {
			m := c.peek("q", n, 1)[0]
			want(b, "number", m.seq(), n)
			want(b, "state", m.state(), 2)
			due, _ := m.Annotations["x-opt-scheduled-enqueue-time"].(time.Time)
			want(b, "due", due.UnixMilli(), at.UnixMilli())
		}
	})
}

// T-79; S-111
func TestT79AnActivatedMessageIsANewOne(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", defaultTTL(time.Hour))
		c := b.client()
		due := time.Now().Add(5 * time.Second)
		c.schedule("q", due, message("late"))
		b.pass(time.Second)
		c.send("q", "early")
		b.pass(5 * time.Second)
		list := c.receiver("q").take(2)
		wantAll(b, "order", texts(list), "early", "late")
		m := list[1]
		want(b, "number", m.seq(), 3)
		b.about("enqueued", m.enqueuedAt(), due, time.Second)
		want(b, "expires", m.expiresAt().Sub(m.enqueuedAt()), time.Hour)
		want(b, "count", m.count(), 1)
	})
}

// T-80; S-112, S-116
func TestT80AnOldNumberCancelsNothing(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		n := c.schedule("q", time.Now().Add(time.Second), message("a"))
		b.pass(2 * time.Second)
		b.refused("cancel", c.cancel("q", n...), notFound)
		want(b, "received", c.receiver("q").one().text(), "a")
	})
}

// T-81; S-115
func TestT81ACancelledMessageIsGoneForEver(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.clientAt((b.lab.Leader(1) + 1) % 3)
		n := c.schedule("q", time.Now().Add(20*time.Second), message("a"))
		want(b, "scheduled", b.counts("q").Scheduled, 1)
		b.must("cancel", c.cancel("q", n...))
		want(b, "scheduled", b.counts("q").Scheduled, 0)
		want(b, "in peek", len(c.peek("q", 0, 10)), 0)
		b.lab.Crash(b.lab.Leader(1), true)
		c.receiver("q").none(40 * time.Second)
	})
}

// T-82; S-116
func TestT82OnlyScheduledMessagesAreCancelled(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		n := c.schedule("q", time.Now().Add(time.Hour), message("a"))
		b.must("cancel", c.cancel("q", n...))
		b.refused("cancel again", c.cancel("q", n...), notFound)
		c.send("q", "plain")
		m := c.peek("q", 0, 10)[0]
		b.refused("cancel a plain message", c.cancel("q", m.seq()), notFound)
		want(b, "received", c.receiver("q").one().text(), "plain")
	})
}

// T-83; S-117
func TestT83CancelIsAllOrNone(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		n := c.schedule("q", time.Now().Add(time.Hour), message("a"))
		b.refused("cancel", c.cancel("q", n[0], 99), notFound)
		want(b, "state", c.peek("q", 0, 10)[0].state(), 2)
	})
}

// T-84; S-118, S-119
func TestT84CancelAndActivationRace(t *testing.T) {
	count := size("T-84", "scheduled messages", 10_000, 400)
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(5*time.Minute))
		c := b.client()
		// As many as there are clients are due at a time, and each client cancels one of them within 5 ms.
		const clients = 20
		first := time.Now().Add(time.Duration(count/2+5000) * time.Millisecond)
		due := func(i int) time.Time { return first.Add(time.Duration(i/clients) * 50 * time.Millisecond) }
		var numbers []int64
		for len(numbers) < count {
			at := len(numbers)
			numbers = append(numbers, c.schedule("q", due(at), message(fmt.Sprint(at)))...)
		}
		want(b, "scheduled", b.counts("q").Scheduled, uint64(count))
		if time.Now().After(first) {
			b.Fatalf("scheduling took until %s after the first was due", time.Since(first))
		}
		cancelled := make([]bool, count)
		var wg sync.WaitGroup
		for w := range clients {
			o := b.clientAt(w % 3)
			wg.Go(func() {
				for i := w; i < count; i += clients {
					b.pass(time.Until(due(i)) + time.Duration(i%11-5)*time.Millisecond)
					err := o.cancel("q", numbers[i])
					if err != nil && conditionOf(err) != notFound {
						b.Errorf("cancel: %v", err)
					}
					cancelled[i] = err == nil
				}
			})
		}
		raced := make(chan struct{})
		go func() { wg.Wait(); close(raced) }()
		before, samples := uint64(count), 0
		for over := false; !over; samples++ {
			select {
			case <-raced:
				over = true
			case <-time.After(20 * time.Millisecond):
			}
			n := b.counts("q").Scheduled // unsigned: one below zero would be huge
			if n > before {
				b.Fatalf("the scheduled count went from %d to %d", before, n)
			}
			before = n
		}
		if samples < count/clients {
			b.Fatalf("the count was looked at %d times", samples)
		}
		b.pass(time.Second)
		delivered := map[string]int{}
		r, left := c.receiver("q"), 0
		for i := range count {
			if !cancelled[i] {
				left++
			}
		}
		if left < count/10 || left > count*9/10 {
			b.Fatalf("%d of %d cancels came too late: that is no race", left, count)
		}
		for range left {
			m := r.one()
			delivered[m.text()]++
			m.complete()
		}
		r.none(0)
		for i := range count {
			times := 1
			if cancelled[i] {
				times = 0
			}
			want(b, fmt.Sprintf("deliveries of %d, cancelled %t", i, cancelled[i]), delivered[fmt.Sprint(i)], times)
		}
		want(b, "scheduled at the end", b.counts("q").Scheduled, 0)
	})
}

// T-85; S-110
func TestT85WhatIsDueInThePastIsActiveAtOnce(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		wantAll(b, "numbers", c.schedule("q", time.Now().Add(-time.Second), message("a")), 1)
		want(b, "number", c.receiver("q").one().seq(), 1)
		c.send("q", "b")
		want(b, "next number", c.peek("q", 0, 10)[1].seq(), 2)
	})
}

// T-86; S-113
func TestT86SameTimeMeansTheOrderOfScheduling(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		at := time.Now().Add(3 * time.Second)
		for i := range 5 {
			c.schedule("q", at, message(fmt.Sprint(i)))
		}
		wantAll(b, "order", texts(c.receiver("q").take(5)), "0", "1", "2", "3", "4")
	})
}

// T-87; S-114, S-300
func TestT87WhatBecameDueInAnOutageComesAfterIt(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		due := time.Now().Add(10 * time.Second)
		c.schedule("q", due, message("a"))
		c.schedule("q", due.Add(60*time.Second), message("b"))
		b.lab.Crash(1, true)
		b.lab.Crash(2, true)
		b.pass(20 * time.Second)
		b.must("start", b.lab.Start(1))
		b.must("elect", b.lab.Led())
		at := time.Now()
		r := b.survivor().receiver("q")
		first := r.one()
		want(b, "received", first.text(), "a")
		first.complete()
		b.about("soon", time.Now(), at, 1500*time.Millisecond)
		want(b, "then", r.one().text(), "b")
		if time.Now().Before(due.Add(60 * time.Second)) {
			b.Fatal("activated early")
		}
	})
}

// T-88; S-120, S-246
func TestT88PeekShowsScheduledMessagesAmongTheOthers(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.send("q", "1")
		c.schedule("q", time.Now().Add(time.Hour), message("2"))
		c.send("q", "3")
		list := c.peek("q", 0, 10)
		wantAll(b, "order", texts(list), "1", "2", "3")
		for i, m := range list {
			want(b, "state", m.state() == 2, i == 1)
		}
		b.topic("t", "a")
		c.send("t", "now")
		c.schedule("t", time.Now().Add(time.Hour), message("later"))
		wantAll(b, "in a subscription", texts(c.peek(subA, 0, 10)), "now")
		want(b, "scheduled on the topic", b.counts("t").Scheduled, 1)
	})
}

// T-90; S-123
func TestT90ScheduledMessagesCountForTheQuota(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", maxBytes(20<<10))
		c := b.client()
		body := string(make([]byte, 8<<10))
		at := time.Now().Add(time.Hour)
		n := c.schedule("q", at, message(body, withID("1")))
		c.schedule("q", at, message(body, withID("2")))
		s := c.sender("q")
		b.refused("send", s.try(message(body, withID("3"))), quotaExceeded)
		b.must("cancel", c.cancel("q", n...))
		c.sender("q").send(message(body, withID("3")))
	})
}

// T-91; S-124
func TestT91ASchedulingIsASendToDetection(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", duplicates)
		c := b.client()
		at := time.Now().Add(5 * time.Second)
		c.schedule("q", at, message("x"))
		c.send("q", "x")
		c.send("q", "y")
		c.schedule("q", at, message("y"))
		b.pass(6 * time.Second)
		wantAll(b, "stored", texts(c.peekAll("q")), "y", "x")
	})
}

// T-92; S-125
func TestT92SchedulingTwiceGivesTheNumberOfTheFirst(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", duplicates)
		c := b.client()
		at := time.Now().Add(5 * time.Second)
		first := c.schedule("q", at, message("x"))
		second := c.schedule("q", at, message("x"))
		wantAll(b, "numbers", second, first...)
		b.must("cancel", c.cancel("q", second...))
		c.receiver("q").none(10 * time.Second)
	})
}

// T-93; S-126
func TestT93ACancelledIDIsStillRemembered(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", duplicates)
		c := b.client()
		at := time.Now().Add(5 * time.Second)
		b.must("cancel", c.cancel("q", c.schedule("q", at, message("x"))...))
		c.schedule("q", at, message("x"))
		c.receiver("q").none(10 * time.Second)
	})
}

// T-95; S-128
func TestT95SchedulingOnAQueueThatTakesNothing(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		due := time.Now().Add(10 * time.Second)
		n := c.schedule("q", due, message("a"))
		b.update("q", status(fsm.SendDisabled))
		_, err := c.trySchedule("q", due, message("b"))
		b.refused("schedule", err, entityDisabled)
		b.refused("cancel", c.cancel("q", n...), entityDisabled)
		want(b, "received", b.client().receiver("q").one().text(), "a")
	})
}

// T-98; S-130
func TestT98TenYearsAreNotTooFar(t *testing.T) {
	on(t, labOf(64), func(b *bench) {
		b.queue("q")
		c := b.client()
		due := time.Now().AddDate(10, 0, 0).Truncate(time.Millisecond)
		n := c.schedule("q", due, message("a"))
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
		m := b.client().peek("q", n[0], 1)[0]
		at, _ := m.Annotations["x-opt-scheduled-enqueue-time"].(time.Time)
		want(b, "due", at.UnixMilli(), due.UnixMilli())
	})
}
