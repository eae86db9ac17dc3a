package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/simulation"
)

// story does everything that a queue and a session can do, one after the other, and says exactly what
// each step has to give. Its clients sit on a node that does not lead, so they must not notice when
// the leader fails anywhere in it.
func story(b *bench, c *client) {
	settling(b, c)
	planning(b, c)
	holding(b, c)
	ending(b, c)
}

func prepare(b *bench) *client {
	b.Helper()
	b.queue("q", duplicates, deadExpired, lockFor(time.Minute))
	b.queue("s", sessions, lockFor(time.Minute))
	return b.bystander()
}

func settling(b *bench, c *client) {
	s, r := c.sender("q"), c.receiver("q")
	for _, text := range []string{"a1", "a2", "a3"} {
		s.send(message(text))
	}
	both, err := batch(message("b1"), message("b2"))
	b.must("pack", err)
	s.send(both)
	expect := func(text string, count int) *got {
		b.Helper()
		m := r.one()
		want(b, "delivered", m.text(), text)
		want(b, "count of "+text, m.count(), count)
		return m
	}
	expect("a1", 1).complete()
	expect("a2", 1).abandon()
	m := expect("a2", 2)
	m.deferIt()
	m = c.fetch("q", m.seq())[0]
	want(b, "count when fetched", m.count(), 3)
	_, err = c.tryRenew("q", m.token)
	b.must("renew", err)
	b.must("complete", c.settleByToken("q", "completed", m.token))
	b.must("abandon", expect("a3", 1).tryAbandon(map[string]any{"x-busbar-delay": int64(20_000)}))
	expect("b1", 1).release()
	expect("b1", 1).complete()
	expect("b2", 1).complete()
	s.send(message("a1")) // a duplicate
	r.none(time.Second)
	b.pass(20 * time.Second)
	expect("a3", 2).deadLetter("R", "D")
}

func planning(b *bench, c *client) {
	at := time.Now().Add(time.Hour)
	b.must("cancel", c.cancel("q", c.schedule("q", at, message("s1"))...))
	c.schedule("q", at, message("s2"))
	c.schedule("q", time.Now().Add(2*time.Second), message("due"))
	r := c.receiver("q")
	m := r.one()
	want(b, "activated", m.text(), "due")
	want(b, "count", m.count(), 1)
	b.pass(50 * time.Second)
	again := r.one() // when its lock ends
	want(b, "expired", again.text(), "due")
	want(b, "count", again.count(), 2)
	again.complete()
}

func holding(b *bench, c *client) {
	sendTo(c, "s", "S", "x1", "x2")
	r := c.accept("s", "S", 0)
	b.must("set", r.trySetState([]byte("one")))
	r.one().complete()
	_, err := r.tryRenewSession()
	b.must("renew", err)
	b.pass(100 * time.Millisecond)
	r.close()
	r = c.accept("s", nil, time.Minute)
	want(b, "next session", r.held(), "S")
	state, err := r.tryState()
	b.must("get", err)
	want(b, "state", string(state), "one")
	m := r.one()
	want(b, "the rest", m.text(), "x2")
	want(b, "count", m.count(), 1)
	m.complete()
	b.must("clear", r.trySetState(nil))
	r.close()
}

func ending(b *bench, c *client) {
	c.sender("q").send(message("mortal", living(time.Second)))
	b.pass(2 * time.Second)
	r := c.receiver("q")
	r.none(6 * time.Second) // a listener lets it expire
	r.close()
	c.send("q", "p1", "p2")
	b.pass(time.Second)
	deleted := int32(0)
	for deleted < 2 {
		n, err := c.deleteBatch("q", 10, time.Now(), "")
		b.must("delete", err)
		if n == 0 {
			break
		}
		deleted += n
	}
	want(b, "deleted", deleted, 2)
}

// outcome is what the story leaves behind.
func outcome(b *bench, c *client) {
	b.Helper()
	dead := c.peekAll(deadLetters("q"))
	wantAll(b, "dead letters", texts(dead), "a3", "mortal")
	want(b, "reason", dead[0].reason(), "R")
	want(b, "reason", dead[1].reason(), "TTLExpiredException")
	left := c.peekAll("q")
	wantAll(b, "left", texts(left), "s2")
	want(b, "its number", left[0].seq(), 7)
	n := b.counts("q")
	n.SizeBytes, n.AccessedAt = 0, 0
	want(b, "counters", n, fsm.EntityCounts{Scheduled: 1, DeadLetter: 2,
		Dropped: fsm.Drops{fsm.DropPurged: 2, fsm.DropDuplicate: 1, fsm.DropCancelled: 1}})
	n = b.counts("s")
	n.AccessedAt = 0
	want(b, "counters of the sessions", n, fsm.EntityCounts{})
}

// S-293 to S-303; S-296, S-310: a leader that loses its power at any entry of the story, while it
// writes it or when it has just applied it, changes nothing that anybody sees.
func TestALeaderMayFailAtEveryEntry(t *testing.T) {
	first, last := uint64(0), uint64(0)
	onThree(t, func(b *bench) {
		c := prepare(b)
		first = b.lab.Applied(b.lab.Leader(1), 1) + 1
		story(b, c)
		last = b.lab.Applied(b.lab.Leader(1), 1)
		outcome(b, c)
	})
	if t.Failed() || last-first < 30 {
		t.Fatalf("the story has entries %d to %d", first, last)
	}
	step := uint64(1)
	if testing.Short() {
		step = 5
	}
	for _, point := range []simulation.Point{simulation.BeforeStored, simulation.AfterApplied} {
		crashed := 0
		for index := first; index <= last; index += step {
			t.Run(fmt.Sprintf("point %d, entry %d", point, index-first), func(t *testing.T) {
				onThree(t, func(b *bench) {
					c := prepare(b)
					down := b.lab.CrashAt(1, point, index)
					story(b, c)
					select {
					case <-down:
						crashed++
					default: // the story took fewer entries this time
					}
					outcome(b, c)
				})
			})
		}
		if crashed == 0 {
			t.Errorf("point %d: no leader was crashed", point)
		}
		t.Logf("point %d: %d leaders crashed", point, crashed)
	}
}
