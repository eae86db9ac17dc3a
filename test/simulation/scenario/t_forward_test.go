package scenario

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

func forwardTo(name string) func(*fsm.Descriptor) {
	return func(d *fsm.Descriptor) { d.ForwardTo = name }
}

func forwardDead(name string) func(*fsm.Descriptor) {
	return func(d *fsm.Descriptor) { d.ForwardDeadLettersTo = name }
}

// T-71; S-102
func TestT71AForwardedMessageKeepsItsFirstNumber(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q3")
		b.queue("q2", forwardTo("q3"))
		b.queue("q1", forwardTo("q2"))
		c := b.client()
		c.send("q1", "1", "2", "3", "4", "5", "6")
		c.send("q3", "direct")
		c.receiver("q3").take(7)
		c.send("q1", "seven")
		for _, m := range c.receiver("q3").take(1) {
			want(b, "text", m.text(), "seven")
			want(b, "enqueued number", m.enqueuedSeq(), 7)
			want(b, "number", m.seq(), 8)
		}
	})
}

// T-164; S-177
func TestT164DeadLettersAreForwarded(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("errors")
		b.queue("q", forwardDead("errors"))
		c := b.client()
		c.send("q", "a")
		c.receiver("q").one().deadLetter("R", "D")
		m := c.receiver("errors").one()
		want(b, "text", m.text(), "a")
		want(b, "reason", m.reason(), "R")
		want[any](b, "source", m.Annotations["x-opt-deadletter-source"], "q")
		_, err := c.tryReceiver(deadLetters("q"))
		b.refused("receive from the dead letters", err, notAllowed)
	})
}

// T-181; S-196
func TestT181DetectionAtTheDestinationDropsSilently(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q2", duplicates)
		b.queue("q1", forwardTo("q2"))
		c := b.client()
		c.send("q2", "x")
		c.send("q1", "x")
		b.pass(10 * time.Second)
		want(b, "in q2", b.counts("q2").Active, 1)
		n := b.counts("q1")
		want(b, "in q1", n.Active+n.DeadLetter+n.Transfer, 0)
	})
}

// T-189; S-206
func TestT189AForwardingQueueIsEmptied(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q2")
		b.queue("q1", forwardTo("q2"))
		c := b.client()
		s, direct := c.sender("q1"), c.sender("q2")
		for i := range 100 {
			s.send(message(fmt.Sprintf("%03d", i)))
			if i%10 == 0 {
				direct.send(message("direct"))
			}
		}
		var order []string
		for _, m := range b.clientAt(1).receiver("q2").take(110) {
			if m.text() != "direct" {
				order = append(order, m.text())
			}
		}
		want(b, "forwarded", len(order), 100)
		want(b, "in order", slices.IsSorted(order), true)
		_, err := c.tryReceiver("q1")
		b.refused("receive from the source", err, notAllowed)
	})
}

// T-190; S-207
func TestT190AQueueForwardsToWhatExists(t *testing.T) {
	onOne(t, func(b *bench) {
		_, err := b.tryQueue("self", forwardTo("missing"))
		b.refusedAs("forward to nothing", err, fsm.EntityNotFound)
		if _, err := b.tryQueue("self", forwardTo("self")); err != nil {
			b.Fatalf("forwarding to itself: %v", err)
		}
	})
}

// T-191; S-208
func TestT191TheFifthHopIsOneTooMany(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q6")
		for i := 5; i >= 1; i-- {
			b.queue(fmt.Sprint("q", i), forwardTo(fmt.Sprint("q", i+1)))
		}
		c := b.client()
		c.send("q1", "a")
		m := c.receiver(deadLetters("q5")).one()
		want(b, "reason", m.reason(), "MaxTransferHopCountExceeded")
		want(b, "in the last", b.counts("q6").Active, 0)
	})
}

// T-192; S-209
func TestT192WhatCannotArriveIsADeadLetterOfItsSource(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q2")
		b.queue("q1", forwardTo("q2"))
		b.update("q2", status(fsm.SendDisabled))
		c := b.client()
		c.send("q1", "refused")
		want(b, "dead letter", c.receiver(deadLetters("q1")).one().text(), "refused")
		b.update("q2", status(fsm.Active))
		c.send("q1", "accepted")
		want(b, "received", b.client().receiver("q2").one().text(), "accepted")
		want(b, "dead letters", b.counts("q1").DeadLetter, 1)
	})
}

// T-194; S-210
func TestT194ForwardingAndSessions(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q2", sessions, lockFor(time.Minute))
		_, err := b.tryQueue("bad", sessions, forwardTo("q2"))
		b.refusedAs("forward from sessions", err, fsm.InvalidOperation)
		b.queue("q1", forwardTo("q2"))
		c := b.client()
		sendTo(c, "q1", "S", "with")
		c.send("q1", "without")
		want(b, "received", c.accept("q2", nil, time.Minute).one().text(), "with")
		want(b, "dead letter", c.receiver(deadLetters("q1")).one().text(), "without")
	})
}

// T-195; S-211, S-313
func TestT195AForwardedSessionFindsItsPartition(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q2", sessions, partitioned, lockFor(time.Minute))
		b.queue("q1", forwardTo("q2"))
		c := b.client()
		for i := range 12 {
			sendTo(c, "q1", fmt.Sprint("S", i), "forwarded")
			sendTo(c, "q2", fmt.Sprint("S", i), "direct")
		}
		b.pass(5 * time.Second)
		for i := range 12 {
			r := c.accept("q2", fmt.Sprint("S", i), 0)
			list := r.take(2)
			want(b, "partition", list[0].seq()>>48, list[1].seq()>>48)
			r.close()
		}
	})
}

// T-196; S-212, S-311
func TestT196ForwardingIsExactlyOnceThroughCrashes(t *testing.T) {
	count, crashes := size("T-196", "messages", 10_000, 120), size("T-196", "leader crashes", 40, 3)
	on(t, labOfPartitions(2), func(b *bench) {
		b.queue("pad")
		b.queue("q2", lockFor(5*time.Minute))
		b.queue("q1", forwardTo("q2"), duplicates) // a send that is done again is stored once
		var all []string
		for i := range count {
			all = append(all, fmt.Sprint(i))
		}
		sent := b.later(func() error {
			for _, text := range all {
				b.sendSomewhereTo(b.ctx, "q1", text, func() {})
				b.pass(20 * time.Millisecond)
			}
			return nil
		})
		for i := range crashes {
			b.pass(500 * time.Millisecond)
			leader := b.lab.Leader(fsm.PartitionID(1 + i%2))
			if leader < 0 {
				continue
			}
			b.lab.Crash(leader, true)
			b.pass(time.Second)
			b.must("start", b.lab.Start(leader))
			b.must("serve", b.lab.Settled())
		}
		b.must("send", <-sent)
		b.pass(2 * time.Minute)
		exactly(b, "arrived", texts(b.client().peekAll("q2")), all)
		n := b.counts("q1")
		want(b, "left at the source", n.Active+n.DeadLetter+n.Transfer, 0)
	})
}
