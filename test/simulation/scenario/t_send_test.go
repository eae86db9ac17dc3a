package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
)

// T-46; S-131, S-297
func TestT46WhatWasAcknowledgedSurvivesTheLeader(t *testing.T) {
	const senders = 20
	each := size("T-46", "acknowledged sends", 10_000, 2_000) / senders
	onThree(t, func(b *bench) {
		b.queue("q")
		var all []*sender
		for i := range senders {
			all = append(all, b.clientAt((b.lab.Leader(1)+1+i%2)%3).sender("q"))
		}
		var wg sync.WaitGroup
		for i, s := range all {
			wg.Go(func() {
				for n := range each {
					if err := s.try(message(fmt.Sprintf("%d-%d", i, n))); err != nil {
						b.Errorf("send: %v", err)
					}
				}
			})
		}
		wg.Wait()
		b.lab.Crash(b.lab.Leader(1), true)
		c := b.survivor()
		var acknowledged []string
		for i := range senders {
			for n := range each {
				acknowledged = append(acknowledged, fmt.Sprintf("%d-%d", i, n))
			}
		}
		exactly(b, "stored", texts(c.peekAll("q")), acknowledged)
	})
}

// T-47; S-132, S-1
func TestT47ARefusedSendSaysWhyAndStoresNothing(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		b.queue("s", sessions)
		s := c.sender("q")
		for _, bad := range []struct {
			to        *sender
			m         *goamqp.Message
			condition string
		}{
			{s, message("x", withID(strings.Repeat("x", 129))), invalidArgument},
			{c.sender("s"), message("no session"), notAllowed},
		} {
			err := bad.to.try(bad.m)
			b.refused("send", err, bad.condition)
			if !strings.Contains(err.Error(), "TrackingId:") {
				b.Fatalf("no tracking id in %v", err)
			}
		}
		want(b, "stored", len(c.peek("q", 0, 10))+len(c.peek("s", 0, 10)), 0)
	})
}

// T-49; S-3
func TestT49ARefusedOperationChangesNothing(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q", lockFor(5*time.Minute))
		b.queue("s", sessions)
		c.send("q", "1", "2")
		m := c.receiver("q").one()
		before, first := b.counts("q"), c.peek("q", 0, 10)
		var strange goamqp.UUID
		strange[15] = 1
		announced, none := c.sender("q"), c.sender("s") // the link said more than there may be now
		b.update("q", func(d *fsm.Descriptor) { d.MaxMessageBytes = 64 << 10 })
		refusals := []struct {
			condition string
			do        func() error
		}{
			{tooLarge, func() error { return announced.try(message("x", sized(100<<10))) }},
			{notAllowed, func() error { return none.try(message("x")) }},
			{lockLost, func() error { return c.settleByToken("q", "completed", strange) }},
			{invalidArgument, func() error { return c.settleByToken("q", "nonsense", m.token) }},
			{lockLost, func() error { _, err := c.tryRenew("q", m.token, strange); return err }},
			{notFound, func() error { return c.cancel("q", m.seq()) }},
			{notFound, func() error { return c.cancel("q", 99) }},
			{notFound, func() error { _, err := c.tryFetch("q", nil, m.seq()); return err }},
			{notFound, func() error { _, err := c.tryFetch("q", nil, 99); return err }},
			{notAllowed, func() error { _, err := c.tryAccept("q", "x", 0); return err }},
			{notAllowed, func() error { _, err := c.tryReceiver("s"); return err }},
			{notImplemented, func() error { _, err := c.tryAsk("q", "no-such-operation", map[string]any{}); return err }},
			{notAllowed, func() error { _, err := c.trySender(deadLetters("q")); return err }},
		}
		for i := range 104 {
			r := refusals[i%len(refusals)]
			b.refused(fmt.Sprint("operation ", i%len(refusals)), r.do(), r.condition)
		}
		after := b.counts("q")
		before.AccessedAt, after.AccessedAt = 0, 0
		want(b, "counters", after, before)
		wantAll(b, "numbers", seqs(c.peek("q", 0, 10)), seqs(first)...)
		b.must("complete", c.settleByToken("q", "completed", m.token))
		c.send("q", "3")
		want(b, "the next number", c.peek("q", 0, 10)[1].seq(), first[1].seq()+1)
	})
}

// T-50; S-133, S-98
func TestT50UnawaitedSendsKeepTheirOrder(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		s := b.client().sender("q")
		var receipts []goamqp.SendReceipt
		ctx, cancel := b.soon()
		defer cancel()
		for i := range 1000 {
			r, err := s.SendWithReceipt(ctx, message(fmt.Sprintf("%04d", i)), nil)
			b.must("send", err)
			receipts = append(receipts, r)
		}
		for _, r := range receipts {
			state, err := r.Wait(ctx)
			b.must("wait", err)
			if _, ok := state.(*goamqp.StateAccepted); !ok {
				b.Fatalf("a send ended as %T", state)
			}
		}
		list := b.clientAt(1).peekAll("q")
		var sent []string
		for i := range 1000 {
			sent = append(sent, fmt.Sprintf("%04d", i))
		}
		wantAll(b, "stored", texts(list), sent...)
		if !slices.IsSorted(texts(list)) || !slices.IsSorted(seqs(list)) {
			b.Fatal("order of the link is lost")
		}
	})
}

// rejections are the counters of what a node's front end threw away, by name.
func (b *bench) rejections(node int) map[string]uint64 {
	all := map[string]uint64{}
	b.lab.Front(node).Stats().Rejections(func(name string, count uint64) { all[name] = count })
	return all
}

// T-55; S-137
func TestT55ASettledTransferIsStoredOrVanishes(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		ctx, cancel := b.soon()
		defer cancel()
		s, err := c.session.NewSender(ctx, "q", &goamqp.SenderOptions{
			SettlementMode: goamqp.SenderSettleModeSettled.Ptr(),
		})
		b.must("open", err)
		// The library sends what the link said is not too large.
		b.update("q", func(d *fsm.Descriptor) { d.MaxMessageBytes = 64 << 10 })
		before := b.rejections(0)
		for _, m := range []*goamqp.Message{message("a"), message("large", sized(100<<10)), message("b")} {
			b.must("send", s.Send(ctx, m, nil))
		}
		b.pass(time.Second)
		wantAll(b, "stored", texts(c.peek("q", 0, 10)), "a", "b")
		after := b.rejections(0)
		want(b, "lost settled transfers in the metric", after["settled-lost"]-before["settled-lost"], 1)
	})
}

// T-56; S-138, S-99
func TestT56ABatchIsStoredWholeOrNotAtAll(t *testing.T) {
	onFour(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		b.queue("wide", partitioned)
		good, err := batch(message("1"), message("2"), message("3"), message("4"), message("5"))
		b.must("pack", err)
		s := c.sender("q")
		s.send(good)
		wantAll(b, "numbers", seqs(c.peek("q", 0, 10)), 1, 2, 3, 4, 5)
		bad, err := batch(message("6"), message("7", withID(strings.Repeat("x", 129))))
		b.must("pack", err)
		b.refused("a batch with a bad message", s.try(bad), invalidArgument)
		s = c.sender("q")
		b.update("q", func(d *fsm.Descriptor) { d.MaxMessageBytes = 64 << 10 })
		large, err := batch(message("6"), message("7", sized(100<<10)))
		b.must("pack", err)
		b.refused("a batch with an oversize message", s.try(large), tooLarge)
		wantAll(b, "stored", texts(c.peek("q", 0, 10)), "1", "2", "3", "4", "5")
		torn, err := batch(message("a", withKey("k1")), message("b", withKey("k2")), message("c", withKey("k3")),
			message("d", withKey("k4")), message("e", withKey("k5")))
		b.must("pack", err)
		b.refused("a batch over two partitions", c.sender("wide").try(torn), notAllowed)
		want(b, "stored", len(c.peek("wide", 0, 10)), 0)
	})
}

// T-57; S-98
func TestT57OneBadSendOfManyLeavesNoGap(t *testing.T) {
	onThree(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		s := c.sender("q")
		ctx, cancel := b.soon()
		defer cancel()
		var receipts []goamqp.SendReceipt
		for i := range 5 {
			m := message(fmt.Sprint(i + 1))
			if i == 2 {
				withID(strings.Repeat("x", 129))(m)
			}
			r, err := s.SendWithReceipt(ctx, m, nil)
			b.must("send", err)
			receipts = append(receipts, r)
		}
		for i, r := range receipts {
			state, err := r.Wait(ctx)
			b.must("wait", err)
			if i == 2 {
				rejected, ok := state.(*goamqp.StateRejected)
				if !ok {
					b.Fatalf("send 3 ended as %T", state)
				}
				b.refused("send 3", rejected.Error, invalidArgument)
			} else if _, accepted := state.(*goamqp.StateAccepted); !accepted {
				b.Fatalf("send %d ended as %T", i+1, state)
			}
		}
		list := c.peek("q", 0, 10)
		wantAll(b, "stored", texts(list), "1", "2", "4", "5")
		wantAll(b, "numbers", seqs(list), 1, 2, 3, 4)
	})
}

// T-58; S-140
func TestT58EveryMessageHasAnID(t *testing.T) {
	onOne(t, func(b *bench) {
		c := b.client()
		b.queue("q")
		s := c.sender("q")
		s.send(goamqp.NewMessage([]byte("a")))
		id, _ := c.receiver("q").one().Properties.MessageID.(string)
		s.send(goamqp.NewMessage([]byte("another")))
		other, _ := c.receiver("q").one().Properties.MessageID.(string)
		if id == "" || other == "" || id == other {
			b.Fatalf("the ids %q and %q were assigned", id, other)
		}
		s.send(message("b", withID(strings.Repeat("x", 128))))
		b.refused("129 characters", s.try(message("c", withID(strings.Repeat("x", 129)))), invalidArgument)
	})
}

// T-59; S-139, S-307
func TestT59ASendWhoseAnswerWasLostIsStoredOnce(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		for i := range 10 { // the front end asks again, whatever became of the leader it asked
			leader := b.lab.Leader(1)
			c := b.clientAt((leader + 1) % 3)
			s := c.sender("q")
			done := b.later(func() error { return s.try(message(fmt.Sprint(i))) })
			b.pass(time.Duration(i) * 500 * time.Microsecond)
			b.lab.Crash(leader, true)
			b.must("send", <-done)
			b.must("start", b.lab.Start(leader))
			b.must("serve", b.lab.Settled())
			list := c.peek("q", 0, 100)
			want(b, "stored", len(list), i+1)
			want(b, "the last", list[i].text(), fmt.Sprint(i))
			want(b, "its number", list[i].seq(), int64(i+1))
		}
	})
}

// T-59; S-139, S-280: whatever became of the leader that got the send first, a repetition with the same
// request id has the number of the message that is stored, and so has each later one.
func TestT59EveryAnswerOfASendHasTheSameNumber(t *testing.T) {
	for name, point := range map[string]simulation.Point{
		"before it was written": simulation.BeforeStored, "when it was applied and not answered": simulation.AfterApplied,
	} {
		t.Run(name, func(t *testing.T) {
			onThree(t, func(b *bench) {
				b.queue("q")
				leader := b.lab.Leader(1)
				via, other := (leader+1)%3, (leader+2)%3
				c := b.clientAt(via)
				c.send("q", "before")
				id := fsm.RequestID{Node: 99, Pump: 1, Counter: 1}
				send := &fsm.Enqueue{Messages: []fsm.Message{{Body: emptyStored(), MessageID: "m"}}}
				down := b.lab.CrashAt(1, point, b.lab.Applied(leader, 1)+1)
				first := b.proposeAt(via, "q", id, send) // the router asks the next leader
				<-down
				b.lab.Disarm()
				c.send("q", "between")
				again := b.proposeAt(other, "q", id, send)
				for _, o := range []fsm.Outcome{first, again} {
					want(b, "refusal", o.Refusal, fsm.None)
					want(b, "numbers", len(o.Numbers), 1)
					want(b, "number", o.Numbers[0], 2)
				}
				want(b, "the second answer is a remembered one", again.Repeated, true)
				want(b, "when", again.EnqueuedAt, first.EnqueuedAt)
				wantAll(b, "stored", seqs(c.peekAll("q")), 1, 2, 3)
			})
		})
	}
}

// T-60; S-309
func TestT60WithoutDetectionTwoSendsAreTwoMessages(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		b.client().send("q", "same")
		c := b.client()
		c.send("q", "same")
		want(b, "stored", len(c.peek("q", 0, 10)), 2)
	})
}

// T-61; S-90, S-89, S-94
func TestT61NumbersBeginWithOne(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		s := c.sender("q")
		for range 100 {
			s.send(message("x"))
		}
		list := c.peekAll("q")
		want(b, "stored", len(list), 100)
		for i, m := range list {
			want(b, "number", m.seq(), int64(i+1))
			want(b, "enqueued number", m.enqueuedSeq(), int64(i+1))
		}
	})
}

// T-62; S-91
func TestT62RefusedSendsUseNoNumber(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions, duplicates)
		c := b.client()
		d := b.dealer()
		s := c.sender("q")
		b.update("q", func(d *fsm.Descriptor) { d.MaxMessageBytes = 64 << 10 })
		for i := range 100 {
			text, in := fmt.Sprint(i), inSession(fmt.Sprint("S", i%3))
			s.send(message(text, in))
			s.send(message(text, in)) // dropped
			b.refused("an oversize message", s.try(message("large", in, sized(100<<10))), tooLarge)
			b.refused("a message without a session", s.try(message("none")), notAllowed)
			x := d.begin()
			x.send("q", message("aborted "+text, in))
			x.rollback()
		}
		list := c.peekAll("q")
		want(b, "stored", len(list), 100)
		for i, m := range list {
			want(b, "message", m.text(), fmt.Sprint(i))
			want(b, "its number", m.seq(), int64(i+1))
		}
	})
}

// T-68; S-97
func TestT68NumbersFollowTheOrderOfAcknowledgements(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		one, other := b.clientAt(0).sender("q"), b.clientAt(1).sender("q")
		for i := range size("T-68", "rounds", 1000, 300) {
			one.send(message(fmt.Sprintf("%03d a", i)))
			other.send(message(fmt.Sprintf("%03d b", i)))
		}
		if !slices.IsSorted(texts(b.client().peekAll("q"))) {
			b.Fatal("a later send has a smaller number")
		}
	})
}

// T-72; S-88, S-103
func TestT72ForgedStampsAreReplaced(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.sender("q").send(message("a", annotated("x-opt-sequence-number", int64(999)),
			annotated("x-opt-enqueued-time", time.Now().Add(-time.Hour))))
		m := c.receiver("q").one()
		want(b, "number", m.seq(), 1)
		b.about("enqueued", m.enqueuedAt(), time.Now(), time.Second)
	})
}

// T-76; S-302, S-303
func TestT76NumbersHaveNoGapThroughLeaderCrashes(t *testing.T) {
	crashes := size("T-76", "leader crashes", 20, 5)
	onThree(t, func(b *bench) {
		b.queue("q")
		ctx, stop := context.WithCancel(b.ctx)
		var wg sync.WaitGroup
		var mu sync.Mutex
		sent := map[string]bool{}
		for i := range 6 {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					text := fmt.Sprintf("%d-%d", i, n)
					b.sendSomewhere(ctx, text, func() { mu.Lock(); sent[text] = true; mu.Unlock() })
				}
			})
		}
		for range crashes {
			b.pass(2 * time.Second)
			if leader := b.lab.Leader(1); leader >= 0 {
				b.lab.Crash(leader, true)
				b.pass(time.Second)
				b.must("start", b.lab.Start(leader))
			}
		}
		stop()
		wg.Wait()
		b.must("serve", b.lab.Settled())
		list := b.client().peekAll("q")
		if len(sent) == 0 {
			b.Fatal("nothing was acknowledged")
		}
		for i, m := range list {
			want(b, "number", m.seq(), int64(i+1))
			delete(sent, m.text())
		}
	})
}

func (b *bench) sendSomewhere(ctx context.Context, text string, acknowledged func()) {
	b.sendSomewhereTo(ctx, "q", text, acknowledged)
}

// sendSomewhereTo sends through any node that serves; it gives up when ctx ends. A send whose end is
// unknown is done again.
func (b *bench) sendSomewhereTo(ctx context.Context, entity, text string, acknowledged func()) {
	for i := 0; ctx.Err() == nil; i++ {
		c := b.hidden(i % 3)
		err := c.tryConnect()
		if err == nil {
			var s *sender
			if s, err = c.trySender(entity); err == nil {
				err = s.try(message(text))
			}
			err = errors.Join(err, c.raw.Close())
		}
		if err == nil {
			acknowledged()
			return
		}
		b.pass(200 * time.Millisecond)
	}
}
