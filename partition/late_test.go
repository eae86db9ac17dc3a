package partition

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// lateBodies are messages that come while a command waits for its entry.
type lateBodies struct {
	mu     sync.Mutex
	bodies []string
	rooms  []int // that were offered
	more   func()
}

func (l *lateBodies) add(body string) {
	l.mu.Lock()
	l.bodies = append(l.bodies, body)
	more := l.more
	l.mu.Unlock()
	if more != nil {
		more()
	}
}

// Len implements fsm.Late.
func (l *lateBodies) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.bodies)
}

// OnMore implements fsm.Late.
func (l *lateBodies) OnMore(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.more = f
}

// Take implements fsm.Late.
func (l *lateBodies) Take(room int) (out []fsm.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rooms = append(l.rooms, room)
	for _, b := range l.bodies {
		if room -= len(b); room < 0 {
			break
		}
		out = append(out, fsm.Message{Body: []byte(b)})
	}
	return out
}

// open returns a request that takes messages in while it waits.
func open(id fsm.RequestID, late *lateBodies, bodies ...string) fsm.Request {
	req := enqueue(id, bodies...)
	req.Command.(*fsm.Enqueue).Late = late
	return req
}

// What comes while a request waits for its entry is part of the request, and of none afterwards.
func TestMessagesJoinARequestThatWaits(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		release := c.nodes["n1"].disks[1].log.hang()
		before := state(r).Index
		early, late := &lateBodies{}, &lateBodies{}
		first := start(t.Context(), r, open(reqID(1, 1), early, "a"))
		synctest.Wait() // its entry is packed
		early.add("too late")
		second := start(t.Context(), r, open(reqID(2, 1), late, "b"))
		synctest.Wait()
		late.add("c")
		late.add("d")
		release()
		<-first.done
		<-second.done
		if err := errors.Join(first.err, second.err); err != nil {
			t.Fatal(err)
		}
		if len(first.outcome.Numbers) != 1 || len(second.outcome.Numbers) != 3 {
			t.Errorf("numbers %v and %v, want 1 and 3", first.outcome.Numbers, second.outcome.Numbers)
		}
		if n := state(r).Index - before; n != 2 {
			t.Errorf("%d entries, want 2", n)
		}
		o, err := r.Propose(t.Context(), lock(reqID(3, 1), 10, 0))
		if got := bodies(o); err != nil || !slices.Equal(got, []string{"a", "b", "c", "d"}) {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// What joins a request does not make its entry larger than entries may be.
func TestAnEntryIsClosedBeforeMoreJoins(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		release := c.nodes["n1"].disks[1].log.hang()
		all := []*proposed{start(t.Context(), r, enqueue(reqID(1, 1), "opener"))}
		synctest.Wait()
		half := strings.Repeat("x", replica.Defaults().MaxEntryBytes/2)
		late, large := &lateBodies{}, &lateBodies{}
		for _, req := range []fsm.Request{
			enqueue(reqID(2, 1), half), open(reqID(3, 1), late, "b"), open(reqID(4, 1), large, half+half+half),
		} {
			all = append(all, start(t.Context(), r, req))
			synctest.Wait() // they wait in this order
		}
		late.add(strings.Repeat("y", 100<<10))
		late.add(half)
		large.add("z")
		release()
		for _, p := range all {
			if <-p.done; p.err != nil {
				t.Fatal(p.err)
			}
		}
		if n := len(all[2].outcome.Numbers); n != 2 {
			t.Errorf("%d messages fitted, want 2", n)
		}
		if n := len(all[3].outcome.Numbers); n != 1 {
			t.Errorf("%d messages of a request that fills an entry, want 1", n)
		}
	})
}

// A request that was asked again after its leader was lost has the same messages, whatever came meanwhile.
func TestARequestIsAskedAgainAsItWas(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		c.net.Isolate(r.Node(), true)
		late := &lateBodies{}
		late.add("b")
		done := make(chan struct{})
		var o fsm.Outcome
		var err error
		go func() {
			defer close(done)
			o, err = c.sendVia(t.Context(), r.Node(), open(reqID(1, 1), late, "a"))
		}()
		synctest.Wait() // it is in an entry that nobody gets
		late.add("too late")
		c.leader(1, r.Node())
		c.net.Isolate(r.Node(), false)
		<-done
		if err != nil || len(o.Numbers) != 2 || len(late.rooms) != 1 {
			t.Errorf("numbers %v, %v, asked %d times what is late", o.Numbers, err, len(late.rooms))
		}
		if s := c.settled(); s.Enqueues != 1 {
			t.Errorf("%d enqueues, want 1", s.Enqueues)
		}
	})
}

// What joins a request that waits counts against the room of the disk, as what the request brought. A21.
func TestJoinedMessagesNeedRoomOnTheDisk(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		const size, each = 15 << 10, 4
		release := c.nodes["n1"].disks[1].log.hang()
		opener := start(t.Context(), r, enqueue(reqID(1, 1), "opener"))
		synctest.Wait()
		c.nodes["n1"].host.space.Allow(10_000) // until the next look
		var asked []*proposed
		for link := range 15 {
			late := &lateBodies{}
			asked = append(asked, start(t.Context(), r, open(reqID(uint64(link+2), 1), late, "b")))
			synctest.Wait()
			for range each {
				late.add(strings.Repeat("x", size))
			}
		}
		release()
		<-opener.done
		joined := 0
		for _, p := range asked {
			if <-p.done; p.err != nil {
				t.Fatal(p.err)
			}
			joined += len(p.outcome.Numbers) - 1
		}
		if joined != each {
			t.Errorf("%d messages of %d bytes joined, want the %d of the first request", joined, size, each)
		}
	})
}
