package scenario

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

func window(d time.Duration) func(*fsm.Descriptor) {
	return func(e *fsm.Descriptor) { e.DetectDuplicates, e.DuplicateWindow = true, fsm.Millis(d.Milliseconds()) }
}

// T-174; S-188
func TestT174ADuplicateIsDroppedAndTheSendSucceeds(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", duplicates)
		c := b.client()
		s := c.sender("q")
		s.send(message("first", withID("x")), message("second", withID("x")), message("other"))
		list := c.peek("q", 0, 10)
		wantAll(b, "stored", texts(list), "first", "other")
		wantAll(b, "numbers", seqs(list), 1, 2)
	})
}

// T-175; S-189. The rows of transport/rest (2.1) have the windows that the management API refuses.
func TestT175AnIDIsRememberedForTheWindow(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", window(20*time.Second))
		c := b.client()
		s, r := c.sender("q"), c.receiver("q")
		s.send(message("x"))
		r.one().complete()
		b.pass(10 * time.Second)
		s.send(message("x")) // does not prolong it
		b.pass(9 * time.Second)
		s.send(message("x"))
		want(b, "stored at 19 s", len(c.peek("q", 0, 10)), 0)
		b.pass(2 * time.Second)
		s.send(message("x"))
		want(b, "stored at 21 s", len(c.peek("q", 0, 10)), 1)
	})
}

// T-176; S-190
func TestT176AShorterWindowForgets(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", window(10*time.Minute))
		c := b.client()
		s := c.sender("q")
		s.send(message("x"))
		b.pass(30 * time.Second)
		b.update("q", func(d *fsm.Descriptor) { d.DuplicateWindow = 20_000 })
		s.send(message("x"))
		want(b, "stored", len(c.peek("q", 0, 10)), 2)
	})
}

// T-177; S-191
func TestT177DetectionOnAPartitionedQueue(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", duplicates, partitioned)
		c := b.client()
		ids, senders := size("T-177", "ids sent twice", 1000, 200), 8
		var want []string
		var wg sync.WaitGroup
		for i := range ids {
			want = append(want, fmt.Sprint(i))
		}
		for w := range senders { // each id is sent by two of them, in the same instant
			s := b.clientAt(w % 3).sender("q")
			wg.Go(func() {
				for i := w / 2; i < ids; i += senders / 2 {
					if err := s.try(message(fmt.Sprint(i))); err != nil {
						b.Errorf("send: %v", err)
					}
				}
			})
		}
		wg.Wait()
		exactly(b, "stored", texts(c.peekAll("q")), want)
	})
}

// T-178; S-192, S-193
func TestT178IDsAreExactAlsoInABatch(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", duplicates)
		c := b.client()
		s := c.sender("q")
		s.send(message("x"), message("X"))
		m, err := batch(message("a"), message("b"), message("a"))
		b.must("pack", err)
		s.send(m)
		wantAll(b, "stored", texts(c.peek("q", 0, 10)), "x", "X", "a", "b")
	})
}

// T-182; S-197, S-282
func TestT182IDsAreRememberedThroughFailuresAndSnapshots(t *testing.T) {
	on(t, labOf(64), func(b *bench) {
		b.queue("q", duplicates)
		c := b.client()
		c.send("q", "x")
		leader := b.lab.Leader(1)
		b.lab.Crash(leader, true)
		b.survivor().send("q", "x")
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
		for i := range 3 {
			b.must("lead", b.lab.Lead(1, i))
			b.clientAt(i).send("q", "x")
		}
		want(b, "stored", b.counts("q").Active, 1)
	})
}

// T-183; S-198, S-200
func TestT183AnExpiredMessageIsNotDelivered(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		s := c.sender("q")
		s.send(message("a", living(2*time.Second)))
		b.pass(time.Second)
		r := c.receiver("q")
		r.one().complete()
		s.send(message("b", living(2*time.Second)))
		b.pass(3 * time.Second)
		r.none(time.Second)
	})
}

// T-184 on a queue; S-199
func TestT184TheShorterTimeToLiveCounts(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", defaultTTL(5*time.Second))
		c := b.client()
		c.sender("q").send(message("long", living(time.Hour)), message("short", living(2*time.Second)), message("none"))
		for i, d := range []time.Duration{5 * time.Second, 2 * time.Second, 5 * time.Second} {
			m := c.peek("q", 0, 10)[i]
			want(b, "time to live", m.expiresAt().Sub(m.enqueuedAt()), d)
		}
	})
}

// T-185; S-201, S-204
func TestT185ExpiredMessagesStayWhileNobodyListens(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.sender("q").send(message("a", living(2*time.Second)))
		b.pass(30 * time.Second)
		want(b, "in peek", len(c.peek("q", 0, 10)), 1)
		c.receiver("q").none(5 * time.Second)
		want(b, "in peek with a listener", len(c.peek("q", 0, 10)), 0)
	})
}

// T-186; S-202
func TestT186ALockedMessageDoesNotExpire(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", deadExpired, lockFor(time.Minute))
		c := b.client()
		c.sender("q").send(message("a", living(2*time.Second)), message("b", living(2*time.Second)))
		r := c.receiver("q")
		list := r.take(2)
		b.pass(3 * time.Second)
		list[0].complete()
		list[1].abandon()
		dead := c.peek(deadLetters("q"), 0, 10)
		wantAll(b, "dead letters", texts(dead), "b")
		want(b, "reason", dead[0].reason(), "TTLExpiredException")
		r.none(time.Second)
	})
}

// T-187; S-203
func TestT187ExpiryDeadLettersOrRemoves(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("kept", deadExpired)
		b.queue("gone")
		c := b.client()
		for _, q := range []string{"kept", "gone"} {
			c.sender(q).send(message("a", living(2*time.Second)))
			b.pass(3 * time.Second)
			c.receiver(q).none(5 * time.Second)
			want(b, "left in "+q, len(c.peek(q, 0, 10)), 0)
		}
		want(b, "dead letters", b.counts("kept").DeadLetter, 1)
		want(b, "dead letters", b.counts("gone").DeadLetter, 0)
	})
}
