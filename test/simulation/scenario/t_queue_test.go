package scenario

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
)

// T-64; S-92, S-93, S-312; RUL-21
func TestT64ANumberTellsItsPartition(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", partitioned)
		c := b.client()
		s := c.sender("q")
		for i := range 60 {
			s.send(message(fmt.Sprint(i), withKey(fmt.Sprint("key", i))))
		}
		last := map[int64]int64{}
		for _, m := range c.peekAll("q") {
			partition, n := m.seq()>>48, m.seq()&(1<<48-1)
			if m.seq() < 0 || partition < 1 || partition > 4 {
				b.Fatalf("number %x", m.seq())
			}
			want(b, "the next of its partition", n, last[partition]+1)
			last[partition] = n
		}
		want(b, "partitions in use", len(last), 4)
	})
}

// T-69; S-100
func TestT69AMessageKeepsItsNumber(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.send("q", "first", "a")
		r := c.receiver("q")
		r.one().complete()
		m := r.one()
		n := m.seq()
		m.abandon()
		m = r.one()
		want(b, "number after abandon", m.seq(), n)
		m.deferIt()
		m = c.fetch("q", n)[0]
		want(b, "number when fetched", m.seq(), n)
		b.must("dead-letter", c.settleByToken("q", "suspended", m.token))
		want(b, "number of the dead letter", c.receiver(deadLetters("q")).one().seq(), n)
	})
}

// T-73, T-74; S-104, S-105, S-286
func TestT73TimeDoesNotGoBackWithTheLeader(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		for i, offset := range []time.Duration{3 * time.Second, 0, -3 * time.Second} {
			b.lab.Clock(i, offset)
		}
		c := b.client()
		s := c.sender("q")
		for i := range 9 {
			b.must("lead", b.lab.Lead(1, i%3))
			for n := range 10 {
				s.send(message(fmt.Sprint(i, "-", n)))
				b.pass(50 * time.Millisecond)
			}
		}
		var last time.Time
		for _, m := range c.peekAll("q") {
			if m.enqueuedAt().Before(last) {
				b.Fatalf("%s was enqueued at %s, the one before at %s", m.text(), m.enqueuedAt(), last)
			}
			last = m.enqueuedAt()
		}
	})
}

// T-74; S-105
func TestT74TheEnqueuedTimeIsNearTheTrueOne(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		for i, offset := range []time.Duration{3 * time.Second, 0, -3 * time.Second} {
			b.lab.Clock(i, offset)
		}
		c := b.client()
		s := c.sender("q")
		for i := range 9 {
			b.must("lead", b.lab.Lead(1, i%3))
			text := fmt.Sprint(i)
			s.send(message(text))
			list := c.peekAll("q")
			b.about("the time of "+text, list[len(list)-1].enqueuedAt(), time.Now(), 4*time.Second)
			b.pass(time.Second)
		}
	})
}

// T-75; S-106, S-63
func TestT75OnlyASessionKeepsTheOrderOfProcessing(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		b.queue("s", sessions, lockFor(time.Minute))
		slow, fast := b.clientAt(0), b.clientAt(1)
		slow.send("q", "1", "2", "3")
		r := slow.receiver("q")
		first := r.one()
		f := fast.receiver("q")
		var order []string
		for range 2 {
			m := f.one()
			m.complete()
			order = append(order, m.text())
		}
		first.complete()
		wantAll(b, "without a session", append(order, first.text()), "2", "3", "1")
		sendTo(slow, "s", "S", "1", "2", "3")
		held := slow.accept("s", nil, time.Second)
		_, err := fast.tryAccept("s", nil, time.Second)
		b.refused("accept next", err, timedOut)
		order = nil
		for range 3 {
			m := held.one()
			m.complete()
			order = append(order, m.text())
		}
		wantAll(b, "with a session", order, "1", "2", "3")
	})
}

// T-96; S-129, S-258
func TestT96AScheduledMessageKeepsItsQueue(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", func(d *fsm.Descriptor) { d.AutoDeleteOnIdle = 300_000 })
		c := b.client()
		due := time.Now().Add(12 * time.Minute)
		c.schedule("q", due, message("a"))
		c.close()
		b.pass(12*time.Minute + time.Second)
		want(b, "received", b.client().receiver("q").one().text(), "a")
	})
}

// T-145; S-84
func TestT145SessionsAreListedByTheTimeOfTheirState(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "messages", "a")
		at := time.Now()
		b.pass(time.Second)
		r := c.accept("q", "state", 0)
		b.must("set", r.trySetState([]byte("x")))
		wantAll(b, "updated since", c.sessionsOf("q", at), "state")
		want(b, "updated in the future", len(c.sessionsOf("q", time.Now().Add(time.Hour))), 0)
	})
}

// T-146; S-83
func TestT146SessionsAreListedPageByPage(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(time.Minute))
		c := b.client()
		s := c.sender("q")
		for i := range 250 {
			s.send(message("x", inSession(fmt.Sprint("S", i))))
		}
		c.accept("q", "S7", 0)
		list := c.sessionsOf("q", withMessages)
		want(b, "listed", len(list), 250)
		slices.Sort(list)
		want(b, "different", len(slices.Compact(list)), 250)
	})
}

// T-207; S-225
func TestT207AFullQueueStillGives(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", maxBytes(30<<10))
		c := b.client()
		body := func(id string) *goamqp.Message { return message(strings.Repeat("x", 9<<10), withID(id)) }
		n := c.schedule("q", time.Now().Add(time.Hour), body("1"))
		c.sender("q").send(body("2"), body("3"))
		err := c.sender("q").try(body("4"))
		b.refused("send", err, quotaExceeded)
		if !strings.Contains(err.Error(), fmt.Sprint(30<<10)) {
			b.Fatalf("the sizes are missing: %v", err)
		}
		r := c.receiver("q")
		r.one().deadLetter("R", "")
		b.must("cancel", c.cancel("q", n...))
		r.one().complete()
		c.sender("q").send(body("4"))
	})
}

// T-208; S-226
func TestT208TheLimitOfAMessageIsExact(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		sized := func(n int) *goamqp.Message {
			m := message("")
			m.Properties = &goamqp.MessageProperties{MessageID: "m"}
			for size := n; ; size-- {
				m.Data = [][]byte{make([]byte, size)}
				if raw, err := m.MarshalBinary(); err == nil && len(raw) <= n {
					want(b, "bytes", len(raw), n)
					return m
				}
			}
		}
		c.sender("q").send(sized(256 << 10))
		b.refused("one byte too much", c.sender("q").try(sized(256<<10+1)), tooLarge)
		want(b, "stored", len(c.peek("q", 0, 10)), 1)
		b.update("q", func(d *fsm.Descriptor) { d.MaxMessageBytes = 64 << 10 })
		want(b, "delivered", len(b.client().receiver("q").one().GetData()) > 200<<10, true)
	})
}

// T-209; S-227, S-228: the sizes are those of names and values, as a user counts them.
func TestT209PropertiesAndNamesHaveLimits(t *testing.T) {
	onOne(t, func(b *bench) {
		long := strings.Repeat("n", 260) // 261 are refused by the management API, see its own test
		b.queue(long, func(d *fsm.Descriptor) { d.MaxMessageBytes = 1 << 20 })
		c := b.client()
		tx := c.sender(long)
		value := func(n int) string { return strings.Repeat("v", n) }
		var stored []string
		for _, one := range []struct {
			name    string
			m       *goamqp.Message
			refused bool
		}{
			{"32767", message("32767", with("p", value(32_767))), false},
			{"32768", message("32768", with("p", value(32_768))), false},
			{"32769", message("32769", with("p", value(32_769))), true},
			{"32768 bytes that are no text", message("binary", with("p", []byte(value(32_768)))), false},
			{"32769 bytes that are no text", message("x", with("p", []byte(value(32_769)))), true},
			{"64 KiB", message("64 KiB", with("p", value(32_768)), with("q", value(32_766))), false},
			{"64 KiB and one", message("x", with("p", value(32_768)), with("q", value(32_767))), true},
			{"a name of 32 KiB", message("name", with(value(32_768), "v")), false},
			{"an id of 128", message("id", withID(value(128))), false},
			{"an id of 129", message("x", withID(value(129))), true},
		} {
			if one.refused {
				b.refused(one.name, tx.try(one.m), invalidArgument)
				continue
			}
			tx.send(one.m)
			stored = append(stored, string(one.m.Data[0]))
		}
		wantAll(b, "stored", texts(c.peek(long, 0, 20)), stored...)

		b.topic("t", value(50))
		_, err := b.tryQueue("t/Subscriptions/"+value(51), func(d *fsm.Descriptor) { d.Kind = fsm.Subscription })
		var refused *fsm.RefusedError
		if !errors.As(err, &refused) || refused.Refusal != fsm.InvalidArgument {
			b.Fatalf("a subscription with a name of 51 characters: %v", err)
		}
	})
}

// T-212; S-252
func TestT212WhatAStatusAllows(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		b.client().send("q", "kept")
		for _, s := range []struct {
			status        fsm.Status
			send, receive bool
		}{
			{fsm.Active, true, true}, {fsm.Disabled, false, false},
			{fsm.SendDisabled, false, true}, {fsm.ReceiveDisabled, true, false},
		} {
			b.update("q", status(s.status))
			c := b.client()
			tx, err := c.trySender("q")
			if err == nil {
				err = tx.try(message("more"))
			}
			if want(b, fmt.Sprintf("send in status %d: %v", s.status, err), err == nil, s.send); !s.send {
				b.refused("send", err, entityDisabled)
			}
			rx, err := c.tryReceiver("q")
			if err == nil {
				var m *got
				if m, err = rx.try(time.Second); err == nil && m != nil {
					m.release()
				}
			}
			if want(b, fmt.Sprintf("receive in status %d: %v", s.status, err), err == nil, s.receive); !s.receive {
				b.refused("receive", err, entityDisabled)
			}
		}
		b.update("q", status(fsm.Active))
		want(b, "kept", b.client().peek("q", 0, 10)[0].text(), "kept")
	})
}

// T-214; S-254, S-255
func TestT214DisablingReceivesEndsTheWaits(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		c, waiting := b.clientAt(0), b.clientAt(1)
		c.send("q", "1", "2", "3")
		list := c.receiver("q").take(3)
		r := waiting.receiver("q")
		ended := make(chan error, 1)
		go func() { _, err := r.try(time.Minute); ended <- err }()
		b.pass(time.Second)
		b.update("q", status(fsm.ReceiveDisabled))
		b.refused("the wait", <-ended, entityDisabled)
		b.refused("complete", list[0].tryComplete(), entityDisabled)
		b.update("q", status(fsm.Active))
		back := b.client().receiver("q").take(3)
		wantAll(b, "back", texts(back), "1", "2", "3")
		for _, m := range back {
			want(b, "count", m.count(), 1)
		}
	})
}

// T-217; S-259
func TestT217ADeletedQueueIsGone(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, duplicates)
		c := b.client()
		sendTo(c, "q", "S", "x")
		r := c.accept("q", "S", 0)
		b.must("set", r.trySetState([]byte("x")))
		ctx, cancel := b.soon()
		defer cancel()
		b.must("delete", b.lab.Directory(0).Delete(ctx, "q"))
		_, err := r.try(time.Minute)
		for err == nil { // what it had been sent before
			_, err = r.try(time.Minute)
		}
		b.refused("receive", err, entityNotFound)
		b.queue("q", sessions, duplicates)
		c = b.client()
		sendTo(c, "q", "S", "x")
		r = c.accept("q", "S", 0)
		state, err := r.tryState()
		b.must("get", err)
		want(b, "state", state == nil, true)
		want(b, "number", r.one().seq(), 1)
	})
}

// T-218; S-260
func TestT218ANameIsTakenOnce(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("Orders")
		for _, name := range []string{"Orders", "orders"} {
			_, err := b.tryQueue(name)
			b.refusedAs("create "+name, err, fsm.EntityExists)
		}
		b.client().send("oRdErS", "a")
	})
}

// T-105; S-29, S-261
func TestT105WhatAQueueIsStaysSo(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		for i, change := range []func(*fsm.Descriptor){sessions, duplicates, partitioned} {
			b.refusedAs(fmt.Sprint("change ", i), b.tryUpdate("q", change), fsm.InvalidOperation)
		}
	})
}

// T-223; S-244, S-245
func TestT223CountersAreWhatIsThere(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", deadExpired, maxDelivery(3), lockFor(5*time.Minute))
		b.queue("empty")
		c := b.client()
		s, r, rng := c.sender("q"), c.receiver("q"), rand.New(rand.NewPCG(223, 1))
		var held []*got
		var planned []int64
		for i := range size("T-223", "random operations", 10_000, 400) {
			text := message(fmt.Sprint(i), sized(rng.IntN(500)))
			if rng.IntN(2) == 0 {
				s.send(text)
				continue
			}
			if rng.IntN(5) == 0 {
				planned = append(planned, c.schedule("q", time.Now().Add(100*time.Hour), text)...)
				continue
			}
			if last := len(planned) - 1; last >= 0 && rng.IntN(10) == 0 {
				b.must("cancel", c.cancel("q", planned[last]))
				planned = planned[:last]
				continue
			}
			m, err := r.try(10 * time.Millisecond)
			b.must("receive", err)
			if m == nil {
				r.drain()
				continue
			}
			switch rng.IntN(6) {
			case 0:
				m.abandon()
			case 1:
				m.deferIt()
			case 2:
				m.deadLetter("R", "")
			case 3:
				held = append(held, m)
			default:
				m.complete()
			}
		}
		r.drain()
		var want1 fsm.EntityCounts
		for _, m := range c.peekAll("q") {
			switch m.state() {
			case 2:
				want1.Scheduled++
				continue
			case 1:
				want1.Deferred++
			}
			want1.Active++
		}
		want1.Locked = uint64(len(held))
		want1.DeadLetter = uint64(len(c.peekAll(deadLetters("q"))))
		want(b, "scheduled and not cancelled", want1.Scheduled, uint64(len(planned)))
		n := b.counts("q")
		if n.SizeBytes == 0 {
			b.Fatal("no bytes are counted")
		}
		if want1.Locked == 0 || want1.Deferred == 0 || want1.DeadLetter == 0 || want1.Scheduled == 0 {
			b.Fatalf("the operations left nothing of a kind: %+v", want1)
		}
		n.SizeBytes, n.AccessedAt, n.Dropped = 0, 0, fsm.Drops{}
		want(b, "counters", n, want1)

		for _, m := range held { // and back to nothing
			b.must("complete", c.settleByToken("q", "completed", m.token))
		}
		if len(planned) > 0 {
			b.must("cancel", c.cancel("q", planned...))
		}
		for _, m := range c.peekAll("q") {
			if m.state() == 1 {
				b.must("complete", c.settleByToken("q", "completed", c.fetch("q", m.seq())[0].token))
			}
		}
		for _, name := range []string{"q", deadLetters("q")} {
			rest := c.receiver(name)
			for range c.peekAll(name) {
				rest.one().complete()
			}
		}
		n = b.counts("q")
		n.AccessedAt, n.Dropped = 0, fsm.Drops{}
		want(b, "counters of an emptied queue, its bytes too", n, fsm.EntityCounts{SizeBytes: b.counts("empty").SizeBytes})
	})
}

// T-224; S-247, S-249
func TestT224PagesOfPeekShowEverythingOnce(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", partitioned)
		c := b.client()
		s := c.sender("q")
		count := size("T-224", "messages", 1000, 300)
		var sent []string
		for i := range count {
			sent = append(sent, fmt.Sprint(i))
			s.send(message(sent[i], withKey(fmt.Sprint(i%17))))
		}
		all := c.peekPages("q", 7)
		exactly(b, "shown", texts(all), sent)
		if n := seqs(all); !slices.IsSorted(n) || len(slices.Compact(n)) != count {
			b.Fatal("not ascending, or twice")
		}
	})
}

// S-247, S-249: a page that is full by its bytes ends where it is, also if the partition has more and others come behind it.
func TestPagesOfPeekThatAreFullOfBytesLeaveNothingOut(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", partitioned)
		c := b.client()
		s := c.sender("q")
		var sent []string
		for i := range 60 {
			sent = append(sent, fmt.Sprint(i))
			s.send(message(strings.Repeat("x", 100_000+1000*i), withID(sent[i]), withKey(fmt.Sprint(i%17))))
		}
		all := c.peekPages("q", 100)
		ids := make([]string, len(all))
		for i, m := range all {
			ids[i] = m.Properties.MessageID.(string)
		}
		exactly(b, "shown", ids, sent)
	})
}

// T-225; S-248; RUL-20
func TestT225PeekChangesNothing(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(5*time.Minute))
		c := b.client()
		c.send("q", "a", "b")
		m := c.receiver("q").one()
		before := b.counts("q")
		held := func() (all []fsm.LockInfo) {
			all = b.query("q", fsm.Main, &fsm.ListLocks{Max: 10})[0].Locks
			for i := range all {
				b.about("locked until", time.UnixMilli(int64(all[i].LockedUntil)), m.lockedUntil(), 5*time.Millisecond)
				all[i].LockedUntil = 0 // a deadline of the lease clock, shown by the wall clock
			}
			return all
		}
		locks := held()
		want(b, "locks", len(locks), 1)
		for range size("T-225", "peeks", 1000, 200) {
			c.peek("q", 0, 10)
		}
		wantAll(b, "locks", held(), locks...)
		after := b.counts("q")
		before.AccessedAt, after.AccessedAt = 0, 0
		want(b, "counters", after, before)
		m.complete()
	})
}

// T-227; S-251
func TestT227PeekShowsOneQueue(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.send("q", "dead", "alive")
		c.receiver("q").one().deadLetter("R", "")
		wantAll(b, "main", texts(c.peek("q", 0, 10)), "alive")
		wantAll(b, "dead", texts(c.peek(deadLetters("q"), 0, 10)), "dead")
	})
}
