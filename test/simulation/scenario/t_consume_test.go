package scenario

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
)

// T-94; S-127
func TestT94AnAbortedScheduleIsNone(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c, d := b.client(), b.dealer()
		at := time.Now().Add(10 * time.Second)
		kept := c.schedule("q", at, message("kept"))
		x := d.begin()
		m := message("never")
		dueAt(at)(m)
		x.ask("q", "schedule-message", scheduled(b, m))
		x.ask("q", "cancel-scheduled-message", map[string]any{"sequence-numbers": kept})
		want(b, "scheduled", b.counts("q").Scheduled, 1)
		x.rollback()
		r := c.receiver("q")
		due := r.one()
		want(b, "delivered", due.text(), "kept")
		b.about("at", time.Now(), at, 2*time.Second)
		due.complete()
		r.none(time.Minute)
		want(b, "scheduled", b.counts("q").Scheduled, 0)
	})
}

// allUp starts every node that is down, and waits until all follow.
func (b *bench) allUp() {
	b.Helper()
	b.lab.Disarm()
	for i := range b.lab.Nodes() {
		b.must("start", b.lab.Start(i))
	}
	b.must("serve", b.lab.Settled())
}

// errKeep ends a worker and leaves it its connection.
var errKeep = errors.New("keep the connection")

// worker does f with a dealer of a node that runs until it has succeeded or patience is over. What
// failed may have been done all the same; f finds that out.
func (b *bench) worker(what string, f func(d *dealer) error) {
	b.Helper()
	var last error
	for began := time.Now(); time.Since(began) < 5*patience; b.pass(200 * time.Millisecond) {
		for i := range b.lab.Nodes() {
			if !b.lab.Up(i) {
				continue
			}
			d, err := b.tryDealer(i)
			if err == nil {
				err = f(d)
			}
			if errors.Is(err, errKeep) {
				return
			}
			if d != nil {
				d.die()
			}
			if err == nil {
				return
			}
			last = errors.Join(fmt.Errorf("node %d", i), err)
		}
	}
	b.Fatalf("%s: %v", what, last)
}

// T-97; S-122, S-231
func TestT97AChainOfSchedulesIsNeverBrokenNorDoubled(t *testing.T) {
	chain := func(b *bench, between func(n int)) {
		b.queue("q", lockFor(30*time.Second), maxDelivery(1000))
		b.client().send("q", "1")
		for n := 1; n <= 5; n++ {
			between(n)
			b.worker("step", func(d *dealer) error {
				m, err := d.receive("q", nil)
				if err != nil {
					return err
				}
				if m.text() != strconv.Itoa(n) { // an earlier attempt was committed and not answered
					return want1(m.text(), strconv.Itoa(n+1))
				}
				next := message(strconv.Itoa(n + 1))
				dueAt(time.Now().Add(time.Second))(next)
				return d.tryAll(completing(m), asking("q", "schedule-message", scheduled(b, next)))
			})
		}
		b.allUp()
		wantAll(b, "left", texts(b.survivor().peekAll("q")), "6")
	}
	t.Run("in peace", func(t *testing.T) {
		onThree(t, func(b *bench) { chain(b, func(int) {}) })
	})
	t.Run("with crashes", func(t *testing.T) {
		onThree(t, func(b *bench) {
			chain(b, func(n int) {
				b.allUp()
				// Some entries from here, at one of the points.
				at := b.lab.Applied(b.lab.Leader(1), 1) + uint64(n)
				b.lab.CrashAt(1, simulation.Point(n%2), at)
			})
		})
	})
}

// want1 is want for work that may be done again.
func want1(got, want string) error {
	if got != want {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	return nil
}

// T-144; S-73, S-232
func TestT144TheStateAgreesWithWhatWasConsumed(t *testing.T) {
	count, rng := size("T-144", "messages with crashes", 60, 15), rand.New(rand.NewPCG(144, 1))
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(20*time.Second), maxDelivery(1000))
		c := b.client()
		for i := range count {
			sendTo(c, "q", "S", strconv.Itoa(i+1))
		}
		c.close()
		crashes := 0
		for done := 0; done < count; {
			if rng.IntN(5) == 0 {
				b.allUp()
				at := b.lab.Applied(b.lab.Leader(1), 1) + 1 + rng.Uint64N(4)
				b.lab.CrashAt(1, simulation.Point(rng.IntN(2)), at)
				crashes++
			}
			b.worker("consume", func(d *dealer) error {
				id := "S"
				m, err := d.receive("q", &id)
				if err != nil {
					return err
				}
				state, err := d.state("q", "S")
				if err != nil {
					return err
				}
				consumed, _ := strconv.Atoi(state)
				if m.text() != strconv.Itoa(consumed+1) {
					b.Fatalf("the state says %d were consumed, the next message is %s", consumed, m.text())
				}
				done = consumed
				body := map[string]any{"session-id": "S", "session-state": []byte(m.text())}
				if err := d.tryAll(completing(m), asking("q", "set-session-state", body)); err != nil {
					return err
				}
				done = consumed + 1
				d.close()
				return nil
			})
		}
		b.allUp()
		want(b, "left", b.counts("q").Active, 0)
		b.Logf("%d crashes", crashes)
	})
}

// state is the state of a session that the dealer holds.
func (d *dealer) state(entity, session string) (string, error) {
	r, err := d.request(nil, entity, "get-session-state", map[string]any{"session-id": session})
	if err != nil {
		return "", err
	}
	body, _ := r.Value.(map[string]any)
	state, _ := body["session-state"].([]byte)
	return string(state), nil
}

// T-158; S-168, S-170
func TestT158ADeadLetterQueueIsAQueue(t *testing.T) {
	for _, entity := range []string{"q", "topic/Subscriptions/s"} {
		t.Run(entity, func(t *testing.T) {
			onThree(t, func(b *bench) {
				b.queue("q", lockFor(10*time.Second))
				b.topic("topic")
				b.subscription("topic", "s", lockFor(10*time.Second))
				c, d := b.client(), b.dealer()
				to := map[bool]string{true: "q", false: "topic"}[entity == "q"]
				c.send(to, "1", "2", "3", "4")
				for _, m := range c.receiver(entity).take(4) {
					m.deadLetter("R", "D")
				}
				dead := deadLetters(entity)
				wantAll(b, "peeked", texts(c.peek(dead, 0, 10)), "1", "2", "3", "4")
				r := c.receiver(dead)
				m := r.one()
				want(b, "reason", m.reason(), "R")
				m.complete()
				m = r.one()
				m.abandon()
				want(b, "again", r.one().text(), "2")
				r.close()
				taken := c.receiver(dead, deleting).one()
				want(b, "received and deleted", taken.text(), "3")
				last := d.one(dead)
				want(b, "the last", last.text(), "4")
				b.pass(8 * time.Second)
				if _, err := c.tryRenew(dead, last.token); err != nil {
					b.Fatalf("renew: %v", err)
				}
				b.pass(8 * time.Second)
				x := d.begin()
				x.complete(last)
				x.send(to, message("again"))
				x.commit()
				want(b, "sent again", c.receiver(entity).one().text(), "again")
				r = c.receiver(dead)
				want(b, "left", r.one().text(), "2")
				r.none(time.Second)
			})
		})
	}
}

// T-165; S-178, S-231
func TestT165AResubmissionIsNeverHalf(t *testing.T) {
	for _, point := range []simulation.Point{simulation.BeforeStored, simulation.AfterApplied} {
		for behind := range uint64(3) { // the lock, the commit, and neither
			t.Run(fmt.Sprintf("point %d, entry %d", point, behind+1), func(t *testing.T) {
				onThree(t, func(b *bench) {
					b.queue("q", lockFor(30*time.Second))
					c := b.client()
					c.send("q", "a")
					c.receiver("q").one().deadLetter("R", "")
					c.close()
					leader := b.lab.Leader(1)
					b.lab.CrashAt(1, point, b.lab.Applied(leader, 1)+1+behind)
					d := b.dealerAt(leader) // its connection fails with it
					committed := func() error {
						m, err := d.receive(deadLetters("q"), nil)
						if err != nil {
							return err
						}
						return d.tryAll(sending("q", message(m.text())), completing(m))
					}()
					b.lab.Disarm()
					b.must("lead", b.lab.Led())
					n := b.counts("q")
					want(b, "copies", n.Active+n.DeadLetter, 1)
					if committed == nil {
						want(b, "committed", n.Active, 1)
					}
				})
			})
		}
	}
}

// T-173; S-187
func TestT173ANoteReachesItsDeferredMessage(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(30*time.Second))
		c, d := b.client(), b.dealer()
		c.send("q", "work")
		m := d.one("q")
		x := d.begin()
		x.deferIt(m)
		note := message("note", with("number", m.seq()))
		dueAt(time.Now().Add(time.Minute))(note)
		x.ask("q", "schedule-message", scheduled(b, note))
		x.commit()
		got := c.receiver("q").one()
		want(b, "the note", got.text(), "note")
		number, _ := got.property("number").(int64)
		fetched := c.fetch("q", number)
		wantAll(b, "fetched", texts(fetched), "work")
		b.must("complete", c.settleByToken("q", "completed", fetched[0].token))
		got.complete()
		want(b, "left", b.counts("q").Active, 0)
	})
}

// T-179; S-194
func TestT179AnAbortedIdIsNotRemembered(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", duplicates)
		c, d := b.client(), b.dealer()
		x := d.begin()
		x.send("q", message("X"))
		x.rollback()
		c.send("q", "X")
		want(b, "stored", b.counts("q").Active, 1)
		one, two := d.begin(), b.dealer().begin()
		one.send("q", message("Y"))
		two.send("q", message("Y"))
		one.commit()
		two.commit()
		wantAll(b, "stored", texts(c.peekAll("q")), "X", "Y")
	})
}

// T-232; S-236, S-324
func TestT232ACommitOverEntitiesIsAllOrNothing(t *testing.T) {
	rounds, rng := size("T-232", "transactions", 1000, 60), rand.New(rand.NewPCG(232, 1))
	on(t, simulation.LabConfig{Partitions: 3}, func(b *bench) {
		for _, name := range []string{"a", "b", "e"} {
			b.queue(name, lockFor(10*time.Second), maxDelivery(100_000))
		}
		s := b.client().sender("a")
		for i := range rounds {
			s.send(message(strconv.Itoa(i)))
		}
		d, crashes, failed := b.dealer(), 0, 0
		for range rounds {
			if rng.IntN(10) == 0 {
				b.allUp()
				b.lab.CrashAt(fsm.PartitionID(1+rng.IntN(3)), simulation.Point(rng.IntN(2)), 1)
				crashes++
			}
			if err := d.handOver(); err != nil {
				failed++
				d.die()
				b.worker("connect", func(again *dealer) error { d = again; return errKeep })
			}
		}
		b.allUp()
		b.pass(5 * time.Minute) // what is on its way arrives
		c := b.survivor()
		there := map[string][3]int{}
		for at, name := range []string{"a", "b", "e"} {
			for _, m := range c.peekAll(name) {
				n := there[m.text()]
				n[at]++
				there[m.text()] = n
			}
		}
		want(b, "different messages", len(there), rounds)
		for text, n := range there {
			if n != [3]int{1, 0, 0} && n != [3]int{0, 1, 1} {
				b.Errorf("%s is %d times in a, %d times in b, %d times in e", text, n[0], n[1], n[2])
			}
		}
		b.Logf("%d crashes, %d of %d hand-overs failed", crashes, failed, rounds)
		if failed > 3*crashes {
			b.Fatal("more hand-overs failed than the crashes explain")
		}
	})
}

// handOver completes a message of a and sends it to b and e.
func (d *dealer) handOver() error {
	m, err := d.receive("a", nil)
	if err != nil {
		return err
	}
	return d.tryAll(completing(m), sending("b", message(m.text())), sending("e", message(m.text())))
}
