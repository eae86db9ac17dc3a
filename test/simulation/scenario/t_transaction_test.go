package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// Conditions of transactions.
const (
	rolledBack     = "amqp:transaction:rollback"
	transactionEnd = "amqp:transaction:timeout"
)

// T-228; S-232, S-273
func TestT228NothingIsSeenBeforeTheCommit(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		c, d := b.clientAt(1), b.dealer()
		c.send("q", "old")
		m := d.one("q")
		x := d.begin()
		x.send("q", message("new 1"), message("new 2"))
		x.complete(m)
		c.receiver("q").none(5 * time.Second)
		n := b.counts("q")
		want(b, "active", n.Active, 1)
		want(b, "locked", n.Locked, 1)
		open := b.lab.Front(0).Transactions("q", false)
		want(b, "open transactions", len(open), 1)
		want(b, "state", open[0].State, "open")
		want(b, "prepared sends", open[0].Sends, 2)
		want(b, "prepared settlements", open[0].Settlements, 1)
		b.about("since", open[0].Since, time.Now().Add(-5*time.Second), time.Second)
		want(b, "of another queue", len(b.lab.Front(0).Transactions("other", false)), 0)
		at := b.lab.Applied(b.lab.Leader(1), 1)
		x.commit()
		want(b, "entries", b.lab.Applied(b.lab.Leader(1), 1)-at, 1)
		list := c.receiver("q").take(2)
		wantAll(b, "after it", texts(list), "new 1", "new 2")
		wantAll(b, "numbers", seqs(list), 2, 3)
		want(b, "active", b.counts("q").Active, 2)
	})
}

// S-231: all that may be part of a transaction, in one.
func TestEverythingThatATransactionMayHold(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("s", sessions, lockFor(20*time.Second))
		c, d := b.client(), b.dealer()
		for _, text := range []string{"complete", "abandon", "dead-letter", "defer"} {
			sendTo(c, "s", "S", text)
		}
		later := time.Now().Add(time.Hour)
		doomed := c.schedule("s", later, message("doomed", inSession("T")))
		var taken []*deal
		for range 4 {
			taken = append(taken, d.oneOf("s", "S"))
		}
		next := message("scheduled", inSession("T"))
		dueAt(later)(next)
		do := func(x *transaction) {
			x.send("s", message("sent", inSession("S")))
			x.ask("s", "schedule-message", scheduled(b, next))
			x.ask("s", "cancel-scheduled-message", map[string]any{"sequence-numbers": doomed})
			x.complete(taken[0])
			b.must("abandon", taken[1].settle(x, amqp.Modified{DeliveryFailed: amqp.Some(true)}))
			b.must("dead-letter", taken[2].settle(x, amqp.Rejected{Error: &amqp.Error{Condition: "com.microsoft:dead-letter"}}))
			x.deferIt(taken[3])
			b.pass(15 * time.Second) // thrice is more than the lock
			x.ask("s", "renew-session-lock", map[string]any{"session-id": "S"})
			x.ask("s", "set-session-state", map[string]any{"session-id": "S", "session-state": []byte("state")})
		}
		x := d.begin()
		do(x)
		x.rollback()
		wantAll(b, "after a rollback", texts(c.peekAll("s")), "complete", "abandon", "dead-letter", "defer", "doomed")
		want(b, "locked", b.counts("s").Locked, 4)
		x = d.begin()
		do(x)
		b.refused("peek in it", d.tryAsk(x, "s", "peek-message", map[string]any{"from-sequence-number": int64(0),
			"message-count": int32(1)}), notAllowed)
		x.commit()
		state, err := d.state("s", "S")
		b.must("state", err)
		want(b, "state", state, "state")
		n := b.counts("s")
		want(b, "dead letters", n.DeadLetter, 1)
		want(b, "deferred", n.Deferred, 1)
		want(b, "scheduled", n.Scheduled, 1)
		wantAll(b, "left", texts(c.peekAll("s")), "abandon", "defer", "scheduled", "sent")
		again := d.oneOf("s", "S")
		want(b, "again", again.text(), "abandon")
		want(b, "count", again.count(), 2)
	})
}

// T-229; S-233
func TestT229ARollbackLeavesAllAsItWas(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		c, d := b.clientAt(1), b.dealer()
		c.send("q", "a", "b")
		m, other := d.one("q"), d.one("q")
		x := d.begin()
		x.complete(m)
		x.deferIt(other)
		x.send("q", message("new"))
		x.rollback()
		want(b, "locked", b.counts("q").Locked, 2)
		b.must("complete by the same token", c.settleByToken("q", "completed", m.token))
		b.must("abandon over the same link", other.settle(nil, amqp.Modified{DeliveryFailed: amqp.Some(true)}))
		again := c.receiver("q").one()
		want(b, "back", again.text(), "b")
		want(b, "count", again.count(), 2)
		want(b, "left", b.counts("q").Active, 1)
	})
}

// T-230; S-234
func TestT230ATransactionHasOnePartition(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", partitioned)
		b.queue("s", sessions, lockFor(time.Minute))
		c, d := b.client(), b.dealer()
		x := d.begin()
		x.send("q", message("a", withKey("k1")))
		b.refused("a second key", x.trySend("q", message("b", withKey("k2"))), notAllowed)
		x.send("q", message("c", withKey("k1")))
		x.commit()
		wantAll(b, "committed", texts(c.peekAll("q")), "a", "c")

		sendTo(c, "s", "S", "1")
		sendTo(c, "s", "T", "2")
		one, two := d.oneOf("s", "S"), d.oneOf("s", "T")
		x = d.begin()
		x.complete(one)
		x.complete(two)
		x.send("s", message("3", inSession("U")))
		x.commit()
		wantAll(b, "left", texts(c.peekAll("s")), "3")
	})
}

// T-231; S-235
func TestT231APartitionedQueueWantsAKey(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", partitioned)
		b.queue("d", partitioned, duplicates)
		d := b.dealer()
		x := d.begin()
		b.refused("send without a key", x.trySend("q", message("a")), notAllowed)
		x.send("q", message("b", withKey("k")))
		x.commit()
		x = d.begin()
		x.send("d", message("its id is the key"))
		x.commit()
		want(b, "in q", b.counts("q").Active, 1)
		want(b, "in d", b.counts("d").Active, 1)
	})
}

// T-233; S-236
func TestT233OnlyTheViaEntityIsReceivedFrom(t *testing.T) {
	onThree(t, func(b *bench) {
		for _, name := range []string{"a", "b", "e"} {
			b.queue(name, lockFor(time.Minute))
		}
		c, d := b.client(), b.dealer()
		c.send("a", "of a")
		c.send("b", "of b")
		ofA, ofB := d.one("a"), d.one("b")
		x := d.begin()
		x.complete(ofB)
		x.send("e", message("sent"))
		b.refused("complete on a", x.tryComplete(ofA), notAllowed)
		x.commit()
		want(b, "sent", c.receiver("e").one().text(), "sent")
		want(b, "in b", b.counts("b").Active, 0)
		b.must("complete alone", ofA.settle(nil, amqp.Accepted{}))
	})
}

// T-234; S-237
func TestT234WhatCannotBeTransferredStaysWithItsSource(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("a", lockFor(time.Minute))
		b.queue("b")
		c, d := b.client(), b.dealer()
		c.send("a", "order")
		m := d.one("a")
		x := d.begin()
		x.complete(m)
		x.send("b", message("invoice"))
		b.refused("a destination that is not there", x.trySend("missing", message("lost")), entityNotFound)
		b.update("b", status(fsm.SendDisabled))
		x.commit()
		dead := c.receiver("a/$Transfer/$DeadLetterQueue").one()
		want(b, "dead letter", dead.text(), "invoice")
		want(b, "reason", dead.reason(), "MessagingEntityDisabled")
		b.update("b", status(fsm.Active))
		c.receiver("b").none(time.Minute)
		want(b, "left in a", b.counts("a").Active, 0)
	})
}

// T-235; S-238
func TestT235ATransactionLastsTwoMinutes(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(5*time.Minute))
		c, d := b.client(), b.dealer()
		c.send("q", "old")
		m := d.one("q")
		x := d.begin()
		x.complete(m)
		x.send("q", message("new"))
		b.pass(119 * time.Second)
		x.send("q", message("in time"))
		b.pass(2 * time.Second)
		b.refused("send", x.trySend("q", message("late")), transactionEnd)
		b.refused("commit", x.tryCommit(), transactionEnd)
		wantAll(b, "as it was", texts(c.peekAll("q")), "old")
		want(b, "locked", b.counts("q").Locked, 1)
		b.must("complete", m.settle(nil, amqp.Accepted{}))
	})
}

// T-236; S-239
func TestT236ATransactionHasAHundredMessages(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		d := b.dealer()
		x := d.begin()
		for i := range 100 {
			x.send("q", message(fmt.Sprint(i)))
		}
		b.refused("the 101st", x.trySend("q", message("one too many")), quotaExceeded)
		x.commit()
		want(b, "stored", b.counts("q").Active, 100)
	})
}

// T-237; S-240
func TestT237AClosedConnectionAborts(t *testing.T) {
	for name, end := range map[string]func(d *dealer){
		"closed in good order": (*dealer).close, "broken off": (*dealer).die,
	} {
		t.Run(name, func(t *testing.T) {
			onThree(t, func(b *bench) {
				b.queue("q", lockFor(30*time.Second))
				c, d := b.client(), b.dealer()
				c.send("q", "old")
				m := d.one("q")
				at := time.Now()
				x := d.begin()
				x.complete(m)
				x.send("q", message("new"))
				end(d)
				again := c.receiver("q").one()
				want(b, "back", again.text(), "old")
				want(b, "count", again.count(), 2)
				if name == "closed in good order" { // RUL-2: the lock stays
					b.about("back", time.Now(), at.Add(30*time.Second), 2*time.Second)
				} else {
					b.about("back", time.Now(), at.Add(6*time.Second), 2*time.Second)
				}
				want(b, "active", b.counts("q").Active, 1)
				want(b, "open", len(b.lab.Front(0).Transactions("q", false)), 0)
			})
		})
	}
}

// T-238; S-241
func TestT238ALostLockAborts(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(5*time.Second))
		c, d := b.client(), b.dealer()
		c.send("q", "old")
		m := d.one("q")
		x := d.begin()
		x.complete(m)
		x.send("q", message("new"))
		b.pass(6 * time.Second)
		b.refused("commit", x.tryCommit(), rolledBack)
		again := c.receiver("q").one()
		want(b, "again", again.text(), "old")
		want(b, "count", again.count(), 2)
		want(b, "active", b.counts("q").Active, 1)
	})
}

// T-239; S-242: what fails for a while is told once, and nothing of the transaction is done alone.
func TestT239AFailureInATransactionIsTold(t *testing.T) {
	on(t, simulation.LabConfig{ProposeTimeout: 10 * time.Second}, func(b *bench) {
		b.queue("q", lockFor(5*time.Minute))
		b.client().send("q", "old")
		d := b.bystandingDealer()
		m := d.one("q")
		x := d.begin()
		x.complete(m)
		x.send("q", message("new"))
		x.ask("q", "schedule-message", scheduled(b, message("at once")))
		var heal []func()
		for i := range b.lab.Nodes() {
			heal = append(heal, b.lab.Isolate(i))
		}
		at := time.Now()
		b.refused("commit", x.tryCommit(), timedOut)
		b.about("told", time.Now(), at.Add(10*time.Second), 5*time.Second)
		b.refused("commit again", x.tryCommit(), "amqp:transaction:unknown-id")
		for _, f := range heal {
			f()
		}
		b.must("serve", b.lab.Settled())
		b.pass(3 * time.Minute) // the node has asked for as long as it does
		left := []string{"old"}
		if b.lab.Front(d.node).Outcome(x.id) == "committed" {
			left = []string{"new", "at once"}
		}
		wantAll(b, "left", texts(b.client().peekAll("q")), left...)
	})
}

// T-240; S-243
func TestT240AnOutcomeInDoubtCanBeAskedFor(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		front := b.lab.Front(0)
		d := b.dealer()
		x := d.begin()
		x.send("q", message("never"))
		heal := b.lab.CutClient(d.number, 0)
		b.unanswered("a commit over a cut connection", x.tryCommit(), errSilent)
		b.pass(5 * time.Minute)
		want(b, "outcome of what never arrived", front.Outcome(x.id), "aborted")
		heal()

		d = b.dealer()
		x = d.begin()
		x.send("q", message("new"))
		x.commitUnheard()
		b.pass(time.Second)
		d.die()
		want(b, "outcome", front.Outcome(x.id), "committed")
		wantAll(b, "stored", texts(b.client().peekAll("q")), "new")
		list := front.Transactions("q", true)
		want(b, "remembered", list[len(list)-1].State, "committed")
		b.pass(9 * time.Minute)
		want(b, "outcome after nine minutes", front.Outcome(x.id), "committed")
		want(b, "outcome of one that never was", front.Outcome([]byte("never was")), "unknown")
	})
}

// S-243, S-298: a commit whose leader dies over it, while the client's node has nobody else to ask, is in
// doubt for its client, and the node finds out what became of it: once it was applied it is committed,
// and before it was written it is aborted and stays so.
func TestT240ADoubtIsResolved(t *testing.T) {
	for _, at := range []struct {
		name   string
		point  simulation.Point
		ends   string
		stored uint64
	}{{"applied and told nobody", simulation.AfterApplied, "committed", 1},
		{"never written", simulation.BeforeStored, "aborted", 0}} {
		t.Run(at.name, func(t *testing.T) {
			on(t, simulation.LabConfig{ProposeTimeout: 10 * time.Second}, func(b *bench) {
				b.queue("q")
				leader := b.lab.Leader(1)
				node := (leader + 1) % 3
				d := b.dealerAt(node)
				x := d.begin()
				x.send("q", message("new"))
				down := b.lab.CrashAt(1, at.point, b.lab.Applied(leader, 1)+1)
				third := (leader + 2) % 3
				alone := make(chan struct{})
				go func() {
					<-down
					b.lab.Crash(third, true)
					close(alone)
				}()
				b.refused("commit", x.tryCommit(), timedOut)
				want(b, "outcome", b.lab.Front(node).Outcome(x.id), "unknown")
				<-alone
				b.lab.Disarm()
				b.must("start", b.lab.Start(third))
				b.must("lead", b.lab.Led()) // without what the old leader may have written of it
				b.must("start", b.lab.Start(leader))
				b.must("serve", b.lab.Settled())
				b.pass(10 * time.Second)
				want(b, "outcome", b.lab.Front(node).Outcome(x.id), at.ends)
				want(b, "stored", b.counts("q").Active, at.stored)
				b.pass(2 * time.Minute) // whatever was still on its way
				want(b, "outcome later", b.lab.Front(node).Outcome(x.id), at.ends)
				want(b, "stored later", b.counts("q").Active, at.stored)
			})
		})
	}
}

// T-241; S-323, S-325
func TestT241ACommittedEntryIsACommit(t *testing.T) {
	for _, at := range []struct {
		name   string
		point  simulation.Point
		behind uint64 // entries of the leader until it fails
	}{{"before the commit is written", simulation.BeforeStored, 1},
		{"when it was applied and before it is answered", simulation.AfterApplied, 1}} {
		t.Run(at.name, func(t *testing.T) {
			onThree(t, func(b *bench) {
				b.queue("q", lockFor(time.Minute))
				b.client().send("q", "old")
				// The connection lives: the leader's failure is nothing that the client sees.
				d := b.bystandingDealer()
				m := d.one("q")
				x := d.begin()
				x.complete(m)
				x.send("q", message("new"))
				down := b.lab.CrashAt(1, at.point, b.lab.Applied(b.lab.Leader(1), 1)+at.behind)
				x.commit()
				<-down
				wantAll(b, "after it", texts(b.survivor().peekAll("q")), "new")
			})
		})
	}
	t.Run("with the node that has the connection", func(t *testing.T) {
		onThree(t, func(b *bench) {
			b.queue("q", lockFor(time.Minute))
			b.client().send("q", "old")
			leader := b.lab.Leader(1)
			d := b.dealerAt(leader)
			m := d.one("q")
			x := d.begin()
			x.complete(m)
			x.send("q", message("new"))
			b.lab.Crash(leader, true)
			b.unanswered("a commit by a node that is gone", x.tryCommit(), errEnded)
			b.must("lead", b.lab.Led())
			wantAll(b, "aborted", texts(b.survivor().peekAll("q")), "old")

			leader = b.lab.Leader(1)
			d = b.dealerAt(leader)
			x = d.begin()
			x.send("q", message("committed"))
			down := b.lab.CrashAt(1, simulation.AfterApplied, b.lab.Applied(leader, 1)+1)
			b.unanswered("a commit whose node dies", x.tryCommit(), errEnded)
			<-down
			b.must("start", b.lab.Start((leader+1)%3))
			b.must("start", b.lab.Start((leader+2)%3))
			b.must("lead", b.lab.Led())
			wantAll(b, "committed", texts(b.survivor().peekAll("q")), "old", "committed")
		})
	})
}
