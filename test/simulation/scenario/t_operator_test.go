package scenario

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
)

// query asks every share of an entity.
func (b *bench) query(name string, sub fsm.SubQueue, q fsm.Query) (all []fsm.Answer) {
	b.Helper()
	ctx, cancel := b.soon()
	defer cancel()
	d, err := b.lab.Directory(b.node()).Get(ctx, name)
	b.must("find "+name, err)
	for i := range d.Partitions {
		a, err := b.router().Query(ctx, fsm.Key{Entity: d.ID, Sub: sub, By: fsm.ByShare, Share: uint16(i)}, q)
		b.must("query", err)
		want(b, "refusal", a.Refusal, fsm.None)
		all = append(all, a)
	}
	return all
}

// deleteBatch is batch-delete-messages; it returns how many are gone.
func (c *client) deleteBatch(entity string, count int32, before time.Time, session string) (int32, error) {
	body := map[string]any{"message-count": count, "enqueued-time-utc": before}
	if session != "" {
		body["session-id"] = session
	}
	a, err := c.tryAsk(entity, "batch-delete-messages", body)
	n, _ := a["message-count"].(int32)
	return n, err
}

// T-103; S-27
func TestT103AForeignGroupIDIsTheSession(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		m := message("a", inSession("g"))
		sequence := uint32(7)
		m.Properties.GroupSequence = &sequence
		c.sender("q").send(m)
		r := c.accept("q", "g", 0)
		want(b, "session", r.one().session(), "g")
	})
}

// T-112; S-36, S-70
func TestT112TheStateIsThereOnAccept(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		r := b.clientAt(0).accept("q", "S", 0)
		b.must("set", r.trySetState([]byte("x")))
		r.close()
		state, err := b.clientAt(1).accept("q", "S", 0).tryState()
		b.must("get", err)
		want(b, "state", string(state), "x")
	})
}

// T-123; S-46
func TestT123ARenewalNamesItsSession(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		r := c.accept("q", "S", 0)
		_, err := c.tryAsk("q", "renew-session-lock", map[string]any{"session-id": "other"})
		b.refused("renew another", err, sessionLost)
		b.pass(6 * time.Second)
		_, err = r.tryRenewSession()
		b.refused("renew after the end", err, sessionLost)
	})
}

// T-188; S-205
func TestT188ATimeToLiveOfZeroIsRefused(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		encoded, err := message("a", dueAt(time.Now().Add(time.Hour))).MarshalBinary()
		b.must("encode", err)
		// A header of its own: durable null, priority null, ttl 0. The library leaves such a ttl out.
		encoded = append([]byte{0x00, 0x53, 0x70, 0xc0, 0x04, 0x03, 0x40, 0x40, 0x43}, encoded...)
		_, err = c.tryAsk("q", "schedule-message", map[string]any{
			"messages": []any{map[string]any{"message-id": "a", "message": encoded}},
		})
		b.refused("schedule", err, invalidArgument)
		want(b, "stored", len(c.peek("q", 0, 10)), 0)
	})
}

// T-220; S-263
func TestT220ABatchOfOldMessagesIsDeleted(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		s := c.sender("q")
		for i := range 15 {
			if i == 10 {
				b.pass(10 * time.Second)
			}
			s.send(message(fmt.Sprint(i)))
		}
		n, err := c.deleteBatch("q", 4000, time.Now().Add(-5*time.Second), "")
		b.must("delete", err)
		want(b, "deleted", n, 10)
		want(b, "left", len(c.peek("q", 0, 100)), 5)
		for _, count := range []int32{0, 4001} {
			_, err := c.deleteBatch("q", count, time.Now(), "")
			b.refused(fmt.Sprint("delete ", count), err, invalidArgument)
		}
	})
}

// T-221; S-264
func TestT221ABatchDeletesOnlyWhatWaits(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		b.queue("s", sessions, lockFor(time.Minute))
		c := b.client()
		c.send("q", "locked", "deferred", "waiting")
		c.schedule("q", time.Now().Add(time.Hour), message("scheduled"))
		list := c.receiver("q").take(2)
		list[1].deferIt()
		b.pass(time.Second)
		n, err := c.deleteBatch("q", 4000, time.Now(), "")
		b.must("delete", err)
		want(b, "deleted", n, 1)
		wantAll(b, "left", texts(c.peek("q", 0, 10)), "locked", "deferred", "scheduled")
		sendTo(c, "s", "S", "mine")
		sendTo(c, "s", "T", "other")
		_, err = c.deleteBatch("s", 10, time.Now(), "")
		b.refused("delete without a session", err, sessionLost)
		c.accept("s", "S", 0)
		b.pass(time.Second)
		n, err = c.deleteBatch("s", 10, time.Now(), "S")
		b.must("delete in the session", err)
		want(b, "deleted", n, 1)
		wantAll(b, "left", texts(c.peek("s", 0, 10)), "other")
	})
}

// T-222; S-265, S-266
func TestT222APurgeLeavesWhatCameLater(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", partitioned)
		c := b.client()
		s := c.sender("q")
		old := size("T-222", "messages purged", 10_000, 400)
		var fresh []string
		for i := range 100 {
			fresh = append(fresh, fmt.Sprint("new ", i))
		}
		for i := range old {
			s.send(message(fmt.Sprint("old ", i), withKey(fmt.Sprint(i))))
		}
		b.pass(time.Second)
		began := time.Now()
		later := b.later(func() error {
			o := b.client().sender("q")
			for _, text := range fresh {
				b.pass(5 * time.Millisecond)
				if err := o.try(message(text)); err != nil {
					return err
				}
			}
			return nil
		})
		total := int32(0)
		for {
			n, err := c.deleteBatch("q", 50, began, "")
			b.must("delete", err)
			if total += n; n == 0 {
				break
			}
		}
		b.must("send", <-later)
		want(b, "deleted", int(total), old)
		exactly(b, "left", texts(c.peekAll("q")), fresh)
		list := b.client().receiver("q").take(10)
		var kept []string
		for i, m := range list {
			if kept = append(kept, m.text()); i < 5 {
				m.deadLetter("R", "")
			}
		}
		b.pass(time.Second)
		n, err := c.deleteBatch(deadLetters("q"), 100, time.Now(), "")
		b.must("purge the dead letters", err)
		want(b, "dead letters purged", n, 5)
		want(b, "dead letters left", len(c.peekAll(deadLetters("q"))), 0)
		left := texts(c.peekAll("q"))
		want(b, "left beside them", len(left), len(fresh)-5)
		for _, text := range kept[:5] {
			want(b, text+" is gone", slices.Contains(left, text), false)
		}
	})
}

// T-226; S-250
func TestT226AReceiverPeeksOn(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.send("q", "1", "2", "3")
		from, shown := int64(0), []int{}
		for range 3 { // what the client libraries do
			page := c.peek("q", from, 2)
			shown = append(shown, len(page))
			if len(page) > 0 {
				from = page[len(page)-1].seq() + 1
			}
		}
		wantAll(b, "pages", shown, 2, 1, 0)
		wantAll(b, "from an explicit number", texts(c.peek("q", 2, 2)), "2", "3")
	})
}

// T-249; S-291
func TestT249RenewalAndExpiryRace(t *testing.T) {
	rounds := size("T-249", "races", 10_000, 40)
	onThree(t, func(b *bench) {
		b.queue("q", maxDelivery(1_000_000))
		c, other := b.clientAt(0), b.clientAt(1)
		c.send("q", "a")
		r, o := c.receiver("q"), other.receiver("q")
		m := r.one()
		for i := range rounds {
			at := m.lockedUntil()
			b.pass(time.Until(at) + time.Duration(i%21-10)*time.Millisecond)
			_, err := c.tryRenew("q", m.token)
			next, rerr := o.try(3 * time.Second)
			b.must("receive", rerr)
			switch {
			case err == nil && next != nil:
				b.Fatalf("round %d: renewed, and given to another", i)
			case err != nil && next == nil:
				b.Fatalf("round %d: %v, and given to nobody", i, err)
			case next != nil:
				next.abandon()
				o.drain()
				m = r.one()
				continue
			}
			o.drain()
			b.must("abandon", c.settleByToken("q", "abandoned", m.token))
			m = r.one()
		}
	})
}

// T-256; S-269
func TestT256EveryMessageComesToAnEnd(t *testing.T) {
	count := size("T-256", "messages", 2_000, 80)
	onThree(t, func(b *bench) {
		b.queue("q", maxDelivery(3))
		s := b.client().sender("q")
		for i := range count {
			s.send(message(fmt.Sprint(i)))
		}
		var wg sync.WaitGroup
		for i := range 12 {
			c := b.clientAt(i % 3)
			wg.Go(func() {
				r := c.receiver("q")
				for n := range 10 {
					m, err := r.try(time.Second)
					if err != nil || m == nil {
						break
					}
					if (n+i)%4 > 0 {
						_ = m.tryComplete() // the others are left behind
					}
				}
				c.die()
			})
		}
		wg.Wait()
		r := b.client().receiver("q")
		for {
			m, err := r.try(15 * time.Second)
			b.must("receive", err)
			if m == nil {
				break
			}
			m.complete()
		}
		want(b, "left", b.counts("q").Active, 0)
		want(b, "locked", b.counts("q").Locked, 0)
	})
}

// T-259; S-308, S-307
func TestT259ARepeatedReceiveGivesTheSame(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		c := b.client()
		c.send("q", "a", "b")
		id, lock := fsm.RequestID{Node: 99, Pump: 1, Counter: 1}, &fsm.Lock{Max: 1}
		first, again := b.propose("q", id, lock), b.propose("q", id, lock)
		want(b, "messages", len(again.Locked), 1)
		want(b, "number", again.Locked[0].Seq, first.Locked[0].Seq)
		want(b, "token", again.Locked[0].Token, first.Locked[0].Token)
		want(b, "count", again.Locked[0].Attempts, 0)
	})
}

// T-263; S-306
func TestT263APeekIsOfOneMoment(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		s := c.sender("q")
		count, churn := size("T-263", "messages", 1000, 200), size("T-263", "messages that go and come", 500, 100)
		for i := range count {
			s.send(message(fmt.Sprint(i)))
		}
		done := b.later(func() error { // the head goes as the tail comes: there are always as many
			o := b.clientAt(1)
			r, s := o.receiver("q"), o.sender("q")
			for range churn {
				m, err := r.try(time.Second)
				if err != nil || m == nil {
					return fmt.Errorf("receive: %w", err)
				}
				if err := s.try(message(m.text() + "'")); err != nil {
					return err
				}
				if err := m.tryComplete(); err != nil {
					return err
				}
			}
			return nil
		})
		moments := map[int64]bool{}
		for range 20 {
			list := c.peek("q", 0, 2*count)
			if n := len(list); n < count || n > count+1 {
				b.Fatalf("a peek shows %d messages", n)
			}
			for i, m := range list { // of any log index, what is there is one run of numbers
				want(b, fmt.Sprint("number of message ", i), m.seq(), list[0].seq()+int64(i))
			}
			moments[list[0].seq()] = true
			b.pass(10 * time.Millisecond)
		}
		b.must("churn", <-done)
		if len(moments) < 3 {
			b.Fatalf("the queue stood still: %d moments were seen", len(moments))
		}
	})
}

// T-264; S-272
func TestT264LocksAreListed(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		c := b.client()
		c.send("q", "1", "2", "3", "4")
		list := c.receiver("q").take(3)
		list[1].deferIt()
		m := c.fetch("q", list[1].seq())[0]
		list[2].complete()
		locks := b.query("q", fsm.Main, &fsm.ListLocks{Max: 10})[0].Locks
		want(b, "locks", len(locks), 2)
		for i, number := range []int64{list[0].seq(), m.seq()} {
			want(b, "number", int64(locks[i].Number), number)
			b.about("until", time.UnixMilli(int64(locks[i].LockedUntil)), time.Now().Add(time.Minute), time.Second)
		}
		want(b, "state of the deferred", locks[1].State, fsm.StateDeferred)
		for _, l := range locks { // the node of the client knows its names, and no other
			known := 0
			for node := range 3 {
				if h := b.lab.Front(node).Holder(l.By); h.Client != "" && h.Link != "" && h.Remote != "" {
					known++
				}
			}
			want(b, "nodes that know the holder", known, 1)
		}
	})
}

// T-274; S-274
func TestT274ProcessedMessagesLeaveARecord(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", func(d *fsm.Descriptor) { d.ProcessedHistory = true })
		c := b.client()
		b.queue("s", sessions, func(d *fsm.Descriptor) { d.ProcessedHistory = true })
		history := func(name string) []fsm.HistoryRecord {
			return b.query(name, fsm.Main, &fsm.History{Kind: fsm.Processed, Max: 10})[0].History
		}
		c.send("q", "a")
		r := c.receiver("q")
		r.one().abandon()
		m := r.one()
		b.pass(2 * time.Second)
		locks := b.query("q", fsm.Main, &fsm.ListLocks{Max: 10})[0].Locks
		want(b, "locks", len(locks), 1)
		leader := b.lab.Leader(1)
		entries := b.lab.Applied(leader, 1)
		m.complete()
		done := time.Now()
		want(b, "entries of the completion and its record", b.lab.Applied(leader, 1)-entries, 1)
		records := history("q")
		want(b, "records", len(records), 1)
		want(b, "id", records[0].MessageID, "a")
		want(b, "number", int64(records[0].Number), m.seq())
		want(b, "session", records[0].SessionID, "")
		want(b, "deliveries", records[0].Deliveries, 2)
		want(b, "enqueued", int64(records[0].EnqueuedAt), m.enqueuedAt().UnixMilli())
		b.about("completed", time.UnixMilli(int64(records[0].At)), done, 100*time.Millisecond)
		want(b, "the node that asked", records[0].By.Node, locks[0].By.Node)
		want(b, "active", b.counts("q").Active, 0)
		want(b, "in peek", len(c.peek("q", 0, 10)), 0)
		r.none(time.Second)

		sendTo(c, "s", "S", "b")
		c.accept("s", "S", 0).one().complete()
		records = history("s")
		want(b, "records of the session queue", len(records), 1)
		want(b, "session", records[0].SessionID, "S")
	})
}

// T-275; S-275
func TestT275AcceptedMessagesHaveARecordWithTheirEnd(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", func(d *fsm.Descriptor) { d.AcceptedHistory = true })
		c := b.client()
		c.send("q", "a")
		c.receiver("q").one().deadLetter("R", "")
		dead := c.receiver(deadLetters("q")).one()
		c.send("q", dead.text())
		dead.complete()
		c.receiver("q").one().complete()
		records := b.query("q", fsm.Main, &fsm.History{Kind: fsm.Accepted, Max: 10})[0].History
		want(b, "records", len(records), 2)
		for _, r := range records {
			if r.EndedAt == 0 {
				b.Fatalf("record %d has no end", r.Number)
			}
		}
	})
}

// T-276; S-276
func TestT276HistoryKeepsTheNewestAndTheYoung(t *testing.T) {
	count, keep := size("T-276", "records", 500, 100), size("T-276", "records kept", 100, 20)
	onThree(t, func(b *bench) {
		b.queue("q", func(d *fsm.Descriptor) {
			d.ProcessedHistory, d.HistoryCount, d.HistoryAge = true, uint32(keep), 60_000
		})
		c := b.client()
		s, r := c.sender("q"), c.receiver("q", func(o *goamqp.ReceiverOptions) { o.Credit = 10 })
		r.open = 10
		for i := range count {
			s.send(message(fmt.Sprint(i)))
			ctx, cancel := b.soon()
			m, err := r.Receive(ctx, nil)
			b.must("receive", err)
			b.must("complete", r.AcceptMessage(ctx, m))
			cancel()
		}
		all := b.query("q", fsm.Main, &fsm.History{Kind: fsm.Processed, Max: 1000})[0].History
		want(b, "records while they are young", len(all), count)
		b.pass(5 * time.Minute)
		all = b.query("q", fsm.Main, &fsm.History{Kind: fsm.Processed, Max: 1000})[0].History
		want(b, "records later", len(all), keep)
		for i, r := range all {
			want(b, "one of the newest", r.MessageID, fmt.Sprint(count-keep+i))
		}
	})
}
