package scenario

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
)

// crashLeader takes the power from the leader of partition 1 and lets the others go on; start brings
// it back.
func (b *bench) crashLeader() (start func()) {
	b.Helper()
	leader := b.lab.Leader(1)
	b.lab.Crash(leader, true)
	return func() {
		b.Helper()
		b.must("start", b.lab.Start(leader))
		b.must("serve", b.lab.Settled())
	}
}

// bystander connects to a node that does not lead partition 1.
func (b *bench) bystander() *client {
	b.Helper()
	return b.clientAt((b.lab.Leader(1) + 1) % 3)
}

// T-243; S-294, S-287
func TestT243ALockSurvivesItsLeader(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(10*time.Second))
		c := b.bystander()
		c.send("q", "a")
		m := c.receiver("q").one()
		at := time.Now()
		b.pass(3 * time.Second)
		b.crashLeader()
		other := b.later(func() error {
			n, err := c.receiver("q").try(9 * time.Second)
			if n != nil {
				return fmt.Errorf("another receiver got it after %s", time.Since(at))
			}
			return err
		})
		b.pass(6 * time.Second)
		b.must("complete with the old token", c.settleByToken("q", "completed", m.token))
		b.must("receive", <-other)
	})
}

// T-244; S-294
func TestT244ASessionSurvivesItsLeader(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(20*time.Second))
		c := b.bystander()
		sendTo(c, "q", "S", "1", "2")
		r := c.accept("q", "S", 0)
		m := r.one()
		b.must("set", r.trySetState([]byte("x")))
		b.crashLeader()
		_, err := r.tryRenewSession()
		b.must("renew", err)
		state, err := r.tryState()
		b.must("get", err)
		want(b, "state", string(state), "x")
		m.complete()
		want(b, "next", r.one().text(), "2")
		_, err = b.survivor().tryAccept("q", "S", 0)
		b.refused("accept by another", err, sessionHeld)
	})
}

// T-245; S-295
func TestT245OnlyALostClientRaisesTheCount(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		c := b.bystander()
		s := c.sender("q")
		count := size("T-245", "locked messages", 100, 20)
		for i := range count {
			s.send(message(fmt.Sprint(i)))
		}
		r := c.receiver("q")
		list := r.take(count)
		b.crashLeader()
		for _, m := range list {
			m.release()
		}
		list = r.take(count)
		for _, m := range list {
			want(b, "count after the leader's crash", m.count(), 1)
		}
		c.die()
		for _, m := range b.survivor().receiver("q").take(count) {
			want(b, "count after the client's", m.count(), 2)
		}
	})
}

// T-246; S-292
func TestT246AWrongDateOfALeaderEndsNoLock(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(30*time.Second))
		leader := b.lab.Leader(1)
		next := (leader + 1) % 3
		c := b.clientAt((leader + 2) % 3)
		c.send("q", "a")
		m := c.receiver("q").one()
		b.lab.Clock(next, time.Hour)
		b.must("lead", b.lab.Lead(1, next))
		c.send("q", "b")
		b.pass(20 * time.Second)
		b.must("complete", c.settleByToken("q", "completed", m.token))
		if clock := b.lab.Dates(next); !clock.Judged || !clock.Wrong {
			b.Fatalf("the node says of its clock: %+v", clock)
		}
		for began := time.Now(); b.lab.Leader(1) == next; b.pass(time.Second) {
			if time.Since(began) > 2*time.Minute { // it tries to give its leadership away now and then
				b.Fatal("the node with the wrong date still leads, though others can")
			}
		}
	})
}

// T-247; S-285, S-286
func TestT247TimeStandsRatherThanGoesBack(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		leader := b.lab.Leader(1)
		next := (leader + 1) % 3
		c := b.clientAt((leader + 2) % 3)
		c.send("q", "1")
		b.lab.Clock(next, -time.Hour)
		b.must("lead", b.lab.Lead(1, next))
		c.send("q", "2")
		list := c.peek("q", 0, 10)
		if list[1].enqueuedAt().Before(list[0].enqueuedAt()) {
			b.Fatal("the enqueued time went back")
		}
		at := time.Now()
		c.receiver("q").one()
		m := b.clientAt(next).receiver("q")
		want(b, "next", m.one().text(), "2")
		want(b, "back", m.one().text(), "1")
		b.about("after its true duration", time.Now(), at.Add(5*time.Second), time.Second)
	})
}

// T-248; S-288, S-291
func TestT248LocksExpireInSilenceAndSilenceWritesNothing(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		c.send("q", "a")
		c.receiver("q").one()
		c.close()
		b.pass(8 * time.Second)
		want(b, "locked", b.counts("q").Locked, 0)
		b.pass(time.Minute) // what follows from the end of the connection is done
		before := b.lab.Applied(0, 1)
		b.pass(time.Minute)
		if n := b.lab.Applied(0, 1) - before; n > 1 {
			b.Fatalf("%d entries in a minute of silence", n)
		}
	})
}

// T-251; S-282
func TestT251ASnapshotCarriesEverything(t *testing.T) {
	on(t, labOf(64), func(b *bench) {
		b.queue("q", duplicates, lockFor(5*time.Minute))
		b.queue("s", sessions, lockFor(5*time.Minute))
		leader := b.lab.Leader(1)
		behind := (leader + 1) % 3
		b.lab.Crash(behind, true)
		c := b.clientAt((leader + 2) % 3)
		s := c.sender("q")
		for i := range 200 {
			s.send(message(fmt.Sprint(i)))
		}
		m := c.receiver("q").one()
		r := c.accept("s", "S", 0)
		b.must("set", r.trySetState([]byte("x")))
		n := c.schedule("q", time.Now().Add(time.Hour), message("later"))
		given := c.receiver("q").take(3)
		given[1].release() // it is ready ahead of those that were never locked
		repeated := fsm.RequestID{Node: 99, Pump: 1, Counter: 1}
		send := &fsm.Enqueue{Messages: []fsm.Message{{Body: emptyStored(), MessageID: "repeated"}}}
		first := b.proposeAt((leader+2)%3, "q", repeated, send)
		for i := range 3 {
			if b.lab.Up(i) {
				b.lab.Snapshot(i)
			}
		}
		b.must("start", b.lab.Start(behind))
		b.must("serve", b.lab.Settled())
		b.must("lead", b.lab.Lead(1, behind))
		again := b.proposeAt((leader+2)%3, "q", repeated, send)
		want(b, "refusal of the repeated request", again.Refusal, fsm.None)
		want(b, "number that the repeated request is told", again.Numbers[0], first.Numbers[0])
		before := b.counts("q").Active
		s.send(message("7")) // a duplicate
		want(b, "active", b.counts("q").Active, before)
		b.must("complete", c.settleByToken("q", "completed", m.token))
		state, err := r.tryState()
		b.must("get", err)
		want(b, "state", string(state), "x")
		b.must("cancel", c.cancel("q", n...))
		ready := []string{given[1].text()}
		for i := 4; i < 200; i++ {
			ready = append(ready, fmt.Sprint(i))
		}
		wantAll(b, "ready, in order", texts(c.receiver("q").take(len(ready))), ready...)
		b.oneState()
	})
}

// oneState waits until the replicas of partition 1 stand at one index, and compares their states.
func (b *bench) oneState() {
	b.Helper()
	for range 100 {
		var sums, indexes [3]uint64
		for i := range 3 {
			sums[i], indexes[i] = b.lab.Digest(i, 1)
		}
		if indexes[0] == indexes[1] && indexes[1] == indexes[2] {
			want(b, fmt.Sprintf("states at index %d", indexes[0]), sums, [3]uint64{sums[0], sums[0], sums[0]})
			return
		}
		b.pass(100 * time.Millisecond)
	}
	b.Fatal("the replicas came to no common index")
}

// T-252; S-284, S-301
func TestT252AnIsolatedLeaderServesNobody(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		leader := b.lab.Leader(1)
		alone, many := b.clientAt(leader), b.clientAt((leader+1)%3)
		many.send("q", "a")
		heal := b.lab.Isolate(leader)
		b.pass(3 * time.Second)
		nothing := make(chan *got, 1)
		r := alone.receiver("q")
		go func() { m, _ := r.try(10 * time.Second); nothing <- m }()
		want(b, "the majority delivers", many.receiver("q").one().text(), "a")
		if m := <-nothing; m != nil {
			b.Fatalf("the minority delivered %q", m.text())
		}
		heal()
		b.must("serve", b.lab.Settled())
		if m, err := b.clientAt(leader).receiver("q").try(5 * time.Second); err != nil || m != nil {
			b.Fatalf("after healing it was delivered again: %v, %v", m, err)
		}
	})
}

// T-253; S-296, S-4
func TestT253WaitingReceiversSurviveTheLeader(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(5*time.Minute))
		leader := b.lab.Leader(1)
		var all []chan *got
		count := size("T-253", "waiting receives", 50, 30)
		var sent, seen []string
		for i := range count {
			all = append(all, b.waiting(b.clientAt((leader+1+i%2)%3).receiver("q"), 2*time.Minute))
		}
		b.pass(time.Second)
		b.lab.Crash(leader, true)
		c := b.survivor()
		s := c.sender("q")
		for i := range count {
			sent = append(sent, fmt.Sprint(i))
			s.send(message(sent[i]))
		}
		for _, ch := range all {
			m := <-ch
			if m == nil {
				b.Fatal("a receiver was forgotten")
			}
			seen = append(seen, m.text())
		}
		exactly(b, "received", seen, sent)
	})
}

// T-254; S-299
func TestT254ServiceComesBackWithinFiveSeconds(t *testing.T) {
	crashes := size("T-254", "leader crashes", 20, 6)
	onThree(t, func(b *bench) {
		b.queue("q")
		for range crashes {
			start := b.crashLeader()
			c := b.survivor()
			at := time.Now()
			c.send("q", "x")
			if d := time.Since(at); d > 5*time.Second {
				b.Fatalf("a send took %s", d)
			}
			c.close()
			start()
		}
	})
}

// T-255; S-300
func TestT255AMinorityKeepsWhatItHas(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(5*time.Minute))
		c := b.client()
		s := c.sender("q")
		s.send(message("1"), message("2"))
		m := c.receiver("q").one()
		b.lab.Crash(1, true)
		b.lab.Crash(2, true)
		began := time.Now()
		err := s.try(message("3"))
		b.refused("a write without a majority", err, timedOut)
		var told *goamqp.Error
		if !errors.As(err, &told) || told.Info["retriable"] != true {
			b.Fatalf("it is not told that the write may be tried again: %v", err)
		}
		if took := time.Since(began); took > 25*time.Second { // the node tries for 20 s
			b.Fatalf("told after %s", took)
		}
		b.must("start", b.lab.Start(1))
		b.must("elect", b.lab.Led())
		c = b.client()
		b.must("complete with the old token", c.settleByToken("q", "completed", m.token))
		want(b, "next", c.receiver("q").one().text(), "2")
	})
}

// T-257; S-270
func TestT257NothingIsLostWhenAllLosePower(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		s := c.sender("q")
		for i := range 50 {
			s.send(message(fmt.Sprint(i)))
		}
		c.receiver("q").one().complete()
		for i := range 3 {
			b.lab.Crash(i, true)
		}
		for i := range 3 {
			b.must("start", b.lab.Start(i))
		}
		b.must("serve", b.lab.Settled())
		c = b.client()
		want(b, "left", len(c.peekAll("q")), 49)
		c.send("q", "new")
		list := c.peekAll("q")
		want(b, "next number", list[len(list)-1].seq(), 51)
	})
}

// T-257; S-270, S-240, S-269: the power of all nodes ends an open transaction, and of what was not
// acknowledged each operation is whole or not at all. Locks, sessions, states and schedules are kept.
func TestT257AllLosePowerInTheMidstOfWork(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(5*time.Minute))
		b.queue("s", sessions, lockFor(5*time.Minute))
		c, d := b.client(), b.dealer()
		c.send("q", "held", "prepared")
		m := c.receiver("q").one()
		due := c.schedule("q", time.Now().Add(time.Hour), message("later"))
		r := c.accept("s", "S", 0)
		b.must("set", r.trySetState([]byte("kept")))
		prepared := d.one("q")
		x := d.begin()
		x.complete(prepared)
		x.send("q", message("never"))
		pack, err := batch(message("b1"), message("b2"), message("b3"))
		b.must("pack", err)
		s := c.sender("q")
		unheard := b.later(func() error { return s.try(pack) })
		b.pass(2 * time.Millisecond)
		for i := range 3 {
			b.lab.Crash(i, true)
		}
		acknowledged := <-unheard == nil
		for i := range 3 {
			b.must("start", b.lab.Start(i))
		}
		b.must("serve", b.lab.Settled())
		c = b.client()
		left := texts(c.peekAll("q"))
		want := []string{"held", "prepared", "later"}
		if len(left) > 3 || acknowledged {
			want = append(want, "b1", "b2", "b3")
		}
		exactly(b, "left", left, want)
		b.must("complete with the old token", c.settleByToken("q", "completed", m.token))
		b.must("complete what was prepared", c.settleByToken("q", "completed", prepared.token))
		b.must("cancel", c.cancel("q", due...))
		_, err = c.tryAccept("s", "S", 0)
		b.refused("accept what is held", err, sessionHeld)
	})
}

// T-258; S-279
func TestT258ARollingRestartIsNotNoticed(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		const count = 120
		for node := range 3 {
			keep := []int{(node + 1) % 3, (node + 2) % 3}
			var wg sync.WaitGroup
			for _, at := range keep {
				c := b.clientAt(at)
				wg.Go(func() {
					s, r := c.sender("q"), c.receiver("q")
					for i := range count {
						if err := s.try(message(fmt.Sprint(node, at, i))); err != nil {
							b.Errorf("send: %v", err)
							return
						}
						m, err := r.try(time.Minute)
						if err != nil || m == nil || m.count() != 1 {
							b.Errorf("receive: %v, %v", m, err)
							return
						}
						if err := m.tryComplete(); err != nil {
							b.Errorf("complete: %v", err)
							return
						}
						b.pass(10 * time.Millisecond)
					}
				})
			}
			b.pass(500 * time.Millisecond)
			b.lab.Stop(node)
			b.must("start", b.lab.Start(node))
			wg.Wait()
			b.must("serve", b.lab.Settled())
		}
		want(b, "left", b.counts("q").Active, 0)
	})
}

// T-261; S-304
func TestT261WhatWasAcknowledgedIsVisibleEverywhere(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q")
		one, other := b.clientAt(0), b.clientAt(1)
		s := one.sender("q")
		b.queue("s", sessions)
		t := one.sender("s")
		for i := range size("T-261", "acknowledged sends", 10_000, 120) {
			if i%20 == 19 {
				b.must("lead", b.lab.Lead(1, (b.lab.Leader(1)+1)%3))
			}
			text := fmt.Sprint(i)
			s.send(message(text))
			wantAll(b, "in peek", texts(other.peek("q", int64(i+1), 1)), text)
			want(b, "counted", b.counts("q").Active, uint64(i+1))
			id := fmt.Sprint("S", i%250)
			t.send(message(text, inSession(id)))
			if i < 250 { // the first message of a session puts it into the list
				want(b, id+" is listed", slices.Contains(other.sessionsOf("s", withMessages), id), true)
			}
		}
	})
}

// T-265; S-313
func TestT265TheKeyChoosesThePartition(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", partitioned)
		c := b.client()
		s := c.sender("q")
		err := s.try(message("bad", inSession("a"), withKey("b")))
		b.refused("a session id and another key", err, notAllowed)
		s = c.sender("q")
		keys := size("T-265", "keys", 10_000, 200)
		for i := range keys {
			key := fmt.Sprint("k", i)
			s.send(message(key+" 1", withKey(key)), message(key+" 2", inSession(key)), message(key+" 3", inSession(key), withKey(key)))
		}
		ctx, cancel := b.soon()
		defer cancel()
		d, err := b.lab.Directory(0).Get(ctx, "q")
		b.must("find", err)
		want(b, "partitions", len(d.Partitions), 4)
		seen, used := map[string]int{}, map[int64]bool{}
		for _, m := range c.peekAll("q") {
			key := m.text()[:len(m.text())-2]
			p := m.seq() >> 48
			want(b, "partition of "+key, fsm.PartitionID(p), d.Partitions[documented(key)%4])
			seen[key]++
			used[p] = true
		}
		want(b, "keys", len(seen), keys)
		for key, n := range seen {
			want(b, "messages of "+key, n, 3)
		}
		want(b, "partitions in use", len(used), 4)
	})
}

// documented is the hash of a key as fsm.KeyHash documents it, by other code.
func documented(key string) uint64 {
	f := fnv.New64a()
	_, _ = f.Write([]byte(key)) // a hash takes everything
	h := f.Sum64()
	for _, mix := range []uint64{0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53} {
		h = (h ^ h>>33) * mix
	}
	return h ^ h>>33
}
