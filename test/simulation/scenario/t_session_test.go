package scenario

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// sessionsOf lists the sessions that a client can see.
func (c *client) sessionsOf(entity string, after time.Time) (all []string) {
	c.b.Helper()
	for skip := int32(0); ; skip = int32(len(all)) {
		a, err := c.tryAsk(entity, "get-message-sessions", map[string]any{
			"last-updated-time": after, "skip": skip, "top": int32(100),
		})
		c.b.must("list sessions", err)
		page, _ := a["sessions-ids"].([]string)
		if list, ok := a["sessions-ids"].([]any); ok {
			for _, id := range list {
				page = append(page, fmt.Sprint(id))
			}
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}

// withMessages is the time that asks for every session that has messages (amqp-protocol.md, 7).
var withMessages = time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)

func sendTo(c *client, entity, session string, texts ...string) {
	c.b.Helper()
	s := c.sender(entity)
	for _, t := range texts {
		s.send(message(t, inSession(session)))
	}
}

// T-99; S-23, S-24, S-83
func TestT99ASessionIsThereWhileItHasMessagesOrState(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "S", "a")
		wantAll(b, "listed", c.sessionsOf("q", withMessages), "S")
		r := c.accept("q", "S", 0)
		r.one().complete()
		want(b, "listed when empty", len(c.sessionsOf("q", withMessages)), 0)
		b.must("set the state", r.trySetState([]byte("x")))
		wantAll(b, "listed with a state", c.sessionsOf("q", time.Unix(1, 0)), "S")
	})
}

// T-100; S-25
func TestT100StateWaitsAYear(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		r := c.accept("q", "S", 0)
		b.must("set the state", r.trySetState([]byte("kept")))
		r.close()
		b.lab.Clock(0, 365*24*time.Hour)
		b.pass(time.Minute)
		sendTo(c, "q", "S", "a")
		r = c.accept("q", nil, 10*time.Second)
		want(b, "session", r.held(), "S")
		state, err := r.tryState()
		b.must("get the state", err)
		want(b, "state", string(state), "kept")
	})
}

// T-101; S-26; RUL-17
func TestT101SessionIDsAreExact(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		long := strings.Repeat("x", 128)
		for _, id := range []string{"a", "A", long, ""} {
			c.sender("q").send(message("in "+id, withID("m"), inSession(id)))
			r := c.accept("q", id, 0)
			want(b, "received", r.one().text(), "in "+id)
			r.none(0)
			r.close()
		}
		b.refused("129 characters", c.sender("q").try(message("x", inSession(long+"x"))), invalidArgument)
	})
}

// T-102; S-26
func TestT102TheSameIDInTwoQueuesIsTwoSessions(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q1", sessions)
		b.queue("q2", sessions)
		c := b.client()
		one, other := c.accept("q1", "S", 0), c.accept("q2", "S", 0)
		b.must("set", one.trySetState([]byte("1")))
		state, err := other.tryState()
		b.must("get", err)
		want(b, "state of the other", len(state), 0)
	})
}

// T-104; S-28
func TestT104LabelsPassAndNumbersAreNeighbours(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		labels := []string{"start", "content", "content", "content", "end"}
		s := c.sender("q")
		for i, l := range labels {
			m := message(fmt.Sprint(i), inSession("S"))
			m.Properties.Subject = &l
			s.send(m)
		}
		list := c.accept("q", "S", 0).take(5)
		wantAll(b, "texts", texts(list), "0", "1", "2", "3", "4")
		for i, m := range list {
			want(b, "label", *m.Properties.Subject, labels[i])
			want(b, "distance to the start", m.seq()-list[0].seq(), int64(i))
		}
	})
}

// T-106; S-30
func TestT106ASessionQueueWantsASession(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		b.refused("send", c.sender("q").try(message("a")), notAllowed)
		_, err := c.trySchedule("q", time.Now().Add(time.Hour), message("a"))
		b.refused("schedule", err, notAllowed)
		want(b, "stored", len(c.peek("q", 0, 10)), 0)
	})
}

// T-108; S-32
func TestT108APlainQueueKeepsTheID(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		c := b.client()
		sendTo(c, "q", "S", "a")
		want(b, "session", c.receiver("q").one().session(), "S")
	})
}

// T-109; S-33, S-34
func TestT109PlainAndSessionReceiversDoNotMix(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q")
		b.queue("s", sessions)
		c := b.client()
		_, err := c.tryReceiver("s")
		b.refused("a plain receiver", err, notAllowed)
		_, err = c.tryAccept("q", "S", 0)
		b.refused("accept", err, notAllowed)
	})
}

// T-110; S-35, S-85
func TestT110PeekNeedsNoSession(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions)
		c, other := b.client(), b.client()
		sendTo(c, "q", "A", "a1", "a2")
		sendTo(c, "q", "B", "b1")
		other.accept("q", "A", 0)
		wantAll(b, "all", texts(c.peek("q", 0, 10)), "a1", "a2", "b1")
		list, err := c.tryPeek("q", map[string]any{
			"from-sequence-number": int64(0), "message-count": int32(10), "session-id": "A",
		})
		b.must("peek", err)
		wantAll(b, "one", texts(list), "a1", "a2")
	})
}

// T-111; S-36
func TestT111ASessionCanBeHeldBeforeItHasMessages(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		r := c.accept("q", "new", 0)
		state, err := r.tryState()
		b.must("get the state", err)
		want(b, "state", state == nil, true)
		sendTo(b.clientAt(1), "q", "new", "a")
		want(b, "received", r.one().text(), "a")
	})
}

// T-113; S-37; RUL-18
func TestT113AHeldSessionIsRefusedAtOnce(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		one, other := b.clientAt(0), b.clientAt(1)
		r := one.accept("q", "S", 0)
		at := time.Now()
		_, err := other.tryAccept("q", "S", 10*time.Second)
		b.refused("accept", err, sessionHeld)
		b.about("at once", time.Now(), at, 200*time.Millisecond)
		r.close()
		other.accept("q", "S", 0)
	})
}

// T-114; S-38, S-40
func TestT114OnlySessionsWithSomethingToDoAreNext(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(time.Minute))
		c := b.client()
		sendTo(c, "q", "deferred", "d")
		r := c.accept("q", "deferred", 0)
		r.one().deferIt()
		r.close()
		c.schedule("q", time.Now().Add(time.Hour), message("s", inSession("scheduled")))
		r = c.accept("q", "state", 0)
		b.must("set", r.trySetState([]byte("x")))
		r.close()
		sendTo(c, "q", "active", "a")
		r = c.accept("q", nil, 5*time.Second)
		want(b, "next", r.held(), "active")
		at := time.Now()
		_, err := b.client().tryAccept("q", nil, 5*time.Second)
		b.refused("accept next", err, timedOut)
		b.about("in its time", time.Now(), at.Add(5*time.Second), 300*time.Millisecond)
	})
}

// T-115; S-39
func TestT115SessionsTakeTurns(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		for _, id := range []string{"A", "B", "C"} {
			sendTo(c, "q", id, "x")
		}
		var order []string
		for range 6 {
			r := c.accept("q", nil, 5*time.Second)
			order = append(order, r.held())
			r.close()
		}
		wantAll(b, "order", order, "A", "B", "C", "A", "B", "C")
	})
}

// T-116; S-39
func TestT116APoisonSessionDoesNotStarveTheOthers(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions)
		c := b.client()
		sendTo(c, "q", "poison", "x")
		for i := range 10 {
			sendTo(c, "q", fmt.Sprint("good", i), "x")
		}
		seen := map[string]bool{}
		for range 11 {
			r := c.accept("q", nil, 5*time.Second)
			seen[r.held()] = true
			if r.held() != "poison" {
				r.one().complete()
			}
			r.close()
		}
		want(b, "sessions served", len(seen), 11)
	})
}

// T-117; S-40, S-41
func TestT117OneOfTheWaitingGetsTheSession(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(time.Minute))
		at := time.Now()
		var mu sync.Mutex
		var accepted, refused int
		var wg sync.WaitGroup
		for i := range 3 {
			c := b.clientAt(i)
			wg.Go(func() {
				r, err := c.tryAccept("q", nil, 10*time.Second)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					accepted++
					want(b, "session", r.held(), "S")
					return
				}
				refused++
				if conditionOf(err) != timedOut || time.Since(at) < 9900*time.Millisecond {
					b.Errorf("after %s: %v", time.Since(at), err)
				}
			})
		}
		s := b.client()
		b.pass(time.Second)
		sendTo(s, "q", "S", "a")
		b.pass(100 * time.Millisecond)
		mu.Lock()
		want(b, "accepted within 100 ms", accepted, 1)
		mu.Unlock()
		wg.Wait()
		want(b, "refused", refused, 2)
	})
}

// T-118; S-42, S-147
func TestT118NobodyIsLeftWithASession(t *testing.T) {
	on(t, labOfPartitions(8), func(b *bench) {
		b.queue("q", sessions, partitioned, lockFor(5*time.Minute))
		s := b.client()
		for i := range 24 { // they wait, and go away before, while and after sessions turn up
			c := b.clientAt(i % 3)
			go func() { _, _ = c.tryAccept("q", nil, time.Minute) }()
			b.pass(time.Duration(i%5) * 700 * time.Microsecond)
			if i%2 == 0 {
				sendTo(s, "q", fmt.Sprint("s", i), "x")
			}
			b.pass(time.Duration(i%7) * 300 * time.Microsecond)
			c.die()
		}
		b.pass(10 * time.Second)
		c := b.client()
		for i := range 12 {
			r := c.accept("q", fmt.Sprint("s", 2*i), 0)
			want(b, "count", r.one().count(), 1)
		}
	})
}

// S-42: every accept-next begins at the partition after that of the one before, so that sessions of one
// partition which nobody finishes do not hide those of the others.
func TestAcceptNextTakesThePartitionsInTurn(t *testing.T) {
	onFour(t, func(b *bench) {
		b.queue("q", sessions, partitioned)
		c := b.client()
		var of [4]int // sessions of each partition
		for i := 0; slices.Min(of[:]) < 2; i++ {
			id := fmt.Sprint("s", i)
			if share := fsm.KeyShare(id, 4); of[share] < 2 {
				of[share]++
				sendTo(c, "q", id, "x")
			}
		}
		seen := map[string]bool{}
		var turns []int
		for range 8 {
			r := b.clientAt(0).accept("q", nil, 5*time.Second)
			seen[r.held()] = true
			turns = append(turns, fsm.KeyShare(r.held(), 4))
			r.close()
		}
		want(b, "different sessions in eight calls", len(seen), 8)
		for i := 1; i < 8; i++ {
			want(b, "next partition", turns[i], (turns[i-1]+1)%4)
		}
	})
}
