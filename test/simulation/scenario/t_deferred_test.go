package scenario

import (
	"fmt"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
)

// T-147; S-74
func TestT147DeferralInASession(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(time.Minute))
		c := b.client()
		sendTo(c, "q", "S", "1", "2", "3")
		r := c.accept("q", "S", 0)
		r.one().complete()
		m := r.one()
		m.deferIt()
		want(b, "next", r.one().text(), "3")
		inS := map[string]any{"session-id": "S"}
		list, err := c.tryFetch("q", inS, m.seq())
		b.must("fetch", err)
		wantAll(b, "fetched", texts(list), "2")
		other := b.clientAt(1)
		other.accept("q", "T", 0)
		_, err = other.tryFetch("q", map[string]any{"session-id": "T"}, m.seq())
		b.refused("fetch in another session", err, notFound)
		_, err = b.client().tryFetch("q", nil, m.seq())
		b.refused("fetch without a session", err, sessionLost)
	})
}

// T-148; S-75
func TestT148TheNextHolderFetchesWhatWasDeferred(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c, other := b.clientAt(0), b.clientAt(1)
		sendTo(c, "q", "S", "a")
		r := c.accept("q", "S", 0)
		r.one().deferIt()
		r.close()
		other.accept("q", "S", 0)
		m := other.peek("q", 0, 10)[0]
		want(b, "state", m.state(), 1)
		list, err := other.tryFetch("q", map[string]any{"session-id": "S"}, m.seq())
		b.must("fetch", err)
		wantAll(b, "fetched", texts(list), "a")
	})
}

// T-149; S-76
func TestT149AScheduledMessageWakesItsSession(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(time.Minute))
		c := b.client()
		c.schedule("q", time.Now().Add(3*time.Second), message("a", inSession("S")))
		_, err := c.tryAccept("q", nil, time.Second)
		b.refused("accept next", err, timedOut)
		r := c.accept("q", nil, 10*time.Second)
		r.one().complete()
		c.schedule("q", time.Now().Add(3*time.Second), message("b", inSession("S")))
		want(b, "the holder gets", r.one().text(), "b")
	})
}

// T-150 on one partition; S-77
func TestT150AnIDCountsOnceInAPartition(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions, duplicates)
		c := b.client()
		s := c.sender("q")
		s.send(message("x", inSession("S1")), message("x", inSession("S2")), message("x", inSession("S1")))
		want(b, "stored", len(c.peek("q", 0, 10)), 1)
	})
}

// T-151; S-78
func TestT151DeadLettersOfASessionNeedNoSession(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "1", "2", "3")
		r := c.accept("q", "S", 0)
		for _, m := range r.take(3) {
			m.deadLetter("R", "")
		}
		list := c.receiver(deadLetters("q")).take(3)
		wantAll(b, "order", texts(list), "1", "2", "3")
		for _, m := range list {
			want(b, "session", m.session(), "S")
		}
		list[1].deferIt()
		again := c.fetch(deadLetters("q"), list[1].seq())
		wantAll(b, "fetched", texts(again), "2")
	})
}

// expired sends three messages to a session, of which only the first has a time to live.
func expired(b *bench, c *client) {
	b.Helper()
	s := c.sender("q")
	s.send(message("1", inSession("S"), living(2*time.Second)), message("2", inSession("S")),
		message("3", inSession("S")), message("other", inSession("T")))
}

// T-152; S-79, S-203
func TestT152OneExpiredMessageExpiresItsSession(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("kept=%t", keep), func(t *testing.T) {
			onThree(t, func(b *bench) {
				b.queue("q", sessions, lockFor(time.Minute), func(d *fsm.Descriptor) { d.DeadLetterOnExpiration = keep })
				c := b.client()
				expired(b, c)
				b.pass(3 * time.Second)
				want(b, "next session", c.accept("q", nil, 5*time.Second).held(), "T")
				wantAll(b, "left", texts(c.peek("q", 0, 10)), "other")
				dead := c.peek(deadLetters("q"), 0, 10)
				if !keep {
					want(b, "dead letters", len(dead), 0)
					return
				}
				wantAll(b, "dead letters", texts(dead), "1", "2", "3")
				for _, m := range dead {
					want(b, "reason", m.reason(), "TTLExpiredException")
				}
			})
		})
	}
}

// T-153; S-80
func TestT153WithoutAListenerNothingExpires(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, deadExpired, lockFor(time.Minute))
		c := b.client()
		expired(b, c)
		b.pass(time.Minute)
		want(b, "in peek", len(c.peek("q", 0, 10)), 4)
		want(b, "active", b.counts("q").Active, 4)
		want(b, "next session", c.accept("q", nil, 5*time.Second).held(), "T")
		want(b, "dead letters", b.counts("q").DeadLetter, 3)
	})
}

// T-154; S-81
func TestT154WhatIsInFlightDoesNotExpire(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, deadExpired, lockFor(time.Minute))
		c := b.client()
		s := c.sender("q")
		s.send(message("1", inSession("S"), living(2*time.Second)), message("2", inSession("S")))
		r := c.accept("q", "S", 0)
		m := r.one()
		b.pass(3 * time.Second)
		want(b, "dead letters", b.counts("q").DeadLetter, 0)
		m.complete()
		want(b, "next", r.one().text(), "2")
		s.send(message("3", inSession("T"), living(2*time.Second)), message("4", inSession("T")))
		r = c.accept("q", "T", 0)
		m = r.one()
		b.pass(3 * time.Second)
		m.abandon()
		r.none(time.Second)
		wantAll(b, "dead letters", texts(c.peek(deadLetters("q"), 0, 10)), "3", "4")
	})
}

// T-155; S-82
func TestT155OnlyWaitingMessagesExpireWithTheirSession(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(time.Minute))
		c := b.client()
		sendTo(c, "q", "S", "deferred")
		r := c.accept("q", "S", 0)
		r.one().deferIt()
		b.must("set", r.trySetState([]byte("x")))
		r.close()
		c.schedule("q", time.Now().Add(time.Hour), message("scheduled", inSession("S")))
		c.sender("q").send(message("gone", inSession("S"), living(2*time.Second)))
		b.pass(3 * time.Second)
		_, err := c.tryAccept("q", nil, time.Second)
		b.refused("accept next", err, timedOut)
		wantAll(b, "left", texts(c.peek("q", 0, 10)), "deferred", "scheduled")
		sendTo(c, "q", "S", "new")
		r = c.accept("q", nil, 5*time.Second)
		want(b, "delivered", r.one().text(), "new")
		state, err := r.tryState()
		b.must("get", err)
		want(b, "state", string(state), "x")
	})
}

// T-160; S-171, S-172
func TestT160DeadLettersEndThere(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		_, err := c.trySender(deadLetters("q"))
		b.refused("send", err, notAllowed)
		c.send("q", "a")
		c.receiver("q").one().deadLetter("R", "")
		m := c.receiver(deadLetters("q")).one()
		b.refused("dead-letter a dead letter", m.tryDeadLetter("again", "", nil), notAllowed)
		b.must("complete", c.settleByToken(deadLetters("q"), "completed", m.token))
	})
}

// T-159; S-169
func TestT159WithoutADeadLetterQueue(t *testing.T) {
	log := &nodeLog{}
	on(t, simulation.LabConfig{Log: log}, func(b *bench) {
		b.queue("q", maxDelivery(1), deadExpired, func(d *fsm.Descriptor) { d.NoDeadLetter = true })
		c := b.bystander()
		_, err := c.tryReceiver(deadLetters("q"))
		b.refused("receive from it", err, entityNotFound)
		c.sender("q").send(message("a", withID("first")))
		r := c.receiver("q")
		m := r.one()
		b.refused("dead-letter", m.tryDeadLetter("R", "", nil), notAllowed)
		b.must("abandon", c.settleByToken("q", "abandoned", m.token))
		want(b, "drops", b.counts("q").Dropped, fsm.Drops{fsm.DropMaxDelivery: 1})
		lines := log.drops("max-delivery-count")
		want(b, "lines about the first", len(lines), 1)
		wantWords(b, lines[0], "[WARN]", "entity=q", "messages=1", "total=1", "sequenceNumber=1", "messageId=first")

		for _, id := range []string{"second", "third"} { // in the minute of the first line
			c.sender("q").send(message("a", withID(id)))
			r.one().abandon()
		}
		r.close()
		c.sender("q").send(message("a", withID("mortal"), living(time.Second)))
		b.pass(5 * time.Second)
		c.receiver("q").none(time.Second)
		want(b, "left", len(c.peek("q", 0, 10)), 0)
		sum := fsm.Drops{fsm.DropMaxDelivery: 3, fsm.DropExpired: 1}
		want(b, "drops", b.counts("q").Dropped, sum)
		want(b, "lines within the minute", len(log.drops("max-delivery-count")), 1)
		lines = log.drops("expired")
		want(b, "lines about the expired", len(lines), 1)
		wantWords(b, lines[0], "messages=1", "sequenceNumber=4", "messageId=mortal")
		b.pass(time.Minute)
		lines = log.drops("max-delivery-count")
		want(b, "lines after the minute", len(lines), 2)
		wantWords(b, lines[1], "messages=2", "total=3", "sequenceNumber=2", "messageId=second")

		start := b.crashLeader() // the counters are not the leader's alone
		want(b, "drops at the next leader", b.counts("q").Dropped, sum)
		start()
		b.lab.Crash(0, true)
		b.must("start", b.lab.Start(0))
		b.must("serve", b.lab.Settled())
		want(b, "drops after a restart", b.counts("q").Dropped, sum)
		want(b, "lines after it", len(log.drops("max-delivery-count")), 2)
	})
}

// T-161; S-173
func TestT161DeadLettersDoNotExpire(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.sender("q").send(message("a", living(2*time.Second)))
		c.receiver("q").one().deadLetter("R", "")
		b.pass(time.Minute)
		want(b, "received", c.receiver(deadLetters("q")).one().text(), "a")
	})
}

// T-162; S-175
func TestT162DeadLettersCountForTheQuota(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", maxBytes(20<<10))
		c := b.client()
		body := func(id string) *goamqp.Message { return message(string(make([]byte, 9<<10)), withID(id)) }
		c.sender("q").send(body("1"), body("2"))
		r := c.receiver("q")
		for _, m := range r.take(2) {
			m.deadLetter("R", "")
		}
		b.refused("send", c.sender("q").try(body("3")), quotaExceeded)
		c.receiver(deadLetters("q")).one().complete()
		c.sender("q").send(body("3"))
	})
}

// T-163; S-176
func TestT163ADisabledQueueHidesItsDeadLetters(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.send("q", "a")
		c.receiver("q").one().deadLetter("R", "")
		b.update("q", status(fsm.ReceiveDisabled))
		_, err := b.client().tryReceiver(deadLetters("q"))
		b.refused("receive", err, entityDisabled)
		want(b, "in peek", len(b.client().peek(deadLetters("q"), 0, 10)), 1)
	})
}

// T-166; S-179, S-180
func TestT166ADeferredMessageIsFetchedByNumber(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c, other := b.clientAt(0), b.clientAt(1)
		c.send("q", "1", "2")
		r := c.receiver("q")
		list := r.take(2)
		list[0].deferIt()
		list[1].deferIt()
		r.none(0)
		want(b, "state in peek", c.peek("q", 0, 10)[0].state(), 1)
		m := other.fetch("q", list[0].seq())[0]
		b.must("complete", other.settleByToken("q", "completed", m.token))
		_, err := other.tryFetch("q", map[string]any{"receiver-settle-mode": uint32(0)}, list[1].seq())
		b.must("receive and delete", err)
		want(b, "left", len(c.peek("q", 0, 10)), 0)
	})
}

// T-167; S-181
func TestT167FetchIsAllOrNone(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.send("q", "1", "2", "3")
		for _, m := range c.receiver("q").take(3) {
			m.deferIt()
		}
		list := c.fetch("q", 3, 1, 2)
		wantAll(b, "order", texts(list), "3", "1", "2")
		_, err := b.clientAt(1).tryFetch("q", nil, 1)
		b.refused("fetch what another has locked", err, notFound)
		for _, m := range list {
			b.must("abandon", c.settleByToken("q", "abandoned", m.token))
		}
		_, err = c.tryFetch("q", nil, 1, 99)
		b.refused("fetch", err, notFound)
		wantAll(b, "the first was not locked", texts(b.clientAt(1).fetch("q", 1)), "1")
	})
}

// T-168; S-182
func TestT168OnlyDeferredMessagesAreFetched(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.send("q", "a")
		_, err := c.tryFetch("q", nil, 1)
		b.refused("fetch", err, notFound)
		want(b, "received", c.receiver("q").one().text(), "a")
	})
}

// T-171; S-185
func TestT171DeferredMessagesDoNotExpire(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.sender("q").send(message("a", living(2*time.Second)))
		r := c.receiver("q")
		m := r.one()
		m.deferIt()
		r.none(time.Minute)
		wantAll(b, "fetched", texts(c.fetch("q", m.seq())), "a")
	})
}

// T-172; S-186
func TestT172AFetchedMessageHasALockOfItsOwn(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.send("q", "a")
		m := c.receiver("q").one()
		b.pass(4 * time.Second)
		m.deferIt()
		again := c.fetch("q", m.seq())[0]
		if again.token == m.token {
			b.Fatal("the token is the old one")
		}
		b.pass(4500 * time.Millisecond)
		b.must("complete", c.settleByToken("q", "completed", again.token))
	})
}
