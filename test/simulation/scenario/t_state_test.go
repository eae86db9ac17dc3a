package scenario

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/simulation"
)

// T-138; S-64, S-65, S-66, S-67
func TestT138StateIsBytesOrNone(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		r := b.client().accept("q", "S", 0)
		check := func(value []byte) {
			b.Helper()
			state, err := r.tryState()
			b.must("get", err)
			want(b, "none", state == nil, value == nil)
			want(b, "state", string(state), string(value))
		}
		check(nil)
		for _, value := range [][]byte{[]byte(strings.Repeat("\x00\xffx", 341)), {}, nil} {
			b.must("set", r.trySetState(value))
			check(value)
		}
	})
}

// T-139; S-68
func TestT139StateWantsTheLock(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		r := b.client().accept("q", "S", 0)
		b.pass(6 * time.Second)
		_, err := r.tryState()
		b.refused("get", err, sessionLost)
		b.refused("set", r.trySetState([]byte("x")), sessionLost)
		_, err = b.client().tryAsk("q", "get-session-state", map[string]any{"session-id": "S"})
		b.refused("get without a session", err, sessionLost)
	})
}

// T-140; S-69
func TestT140StateIsAsLargeAsAMessage(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions)
		r := b.client().accept("q", "S", 0)
		most := bytes.Repeat([]byte("state of 16 byte"), 16<<10)
		b.must("set", r.trySetState(most))
		b.refused("one byte more", r.trySetState(make([]byte, len(most)+1)), tooLarge)
		state, err := r.tryState()
		b.must("get", err)
		want(b, "the old state stays", bytes.Equal(state, most), true)
	})
}

// T-141; S-70
func TestT141StateOutlivesEverything(t *testing.T) {
	on(t, labOf(64), func(b *bench) {
		b.queue("q", sessions)
		check := func(when string) {
			b.Helper()
			c := b.survivor()
			r := c.accept("q", "S", 0)
			state, err := r.tryState()
			b.must("get "+when, err)
			want(b, "state "+when, string(state), "kept")
			r.close()
			c.close()
		}
		c := b.client()
		sendTo(c, "q", "S", "a")
		r := c.accept("q", "S", 0)
		b.must("set", r.trySetState([]byte("kept")))
		r.one().complete()
		r.close()
		check("after draining and closing")
		c.accept("q", "S", 0)
		b.pass(6 * time.Second)
		check("after the lock expired")
		leader := b.lab.Leader(1)
		b.lab.Crash(leader, true)
		check("after a crash of the leader")
		b.must("start", b.lab.Start(leader))
		b.must("serve", b.lab.Settled())
		for i := range 3 {
			b.lab.Snapshot(i)
		}
		for i := range 3 {
			b.lab.Crash(i, true)
		}
		for i := range 3 {
			b.must("start", b.lab.Start(i))
		}
		b.must("serve", b.lab.Settled())
		check("after a power loss of all")
		b.queue("p", sessions, lockFor(time.Minute)) // the state outlives the messages of its session
		c = b.survivor()
		r = c.accept("p", "S", 0)
		b.must("set", r.trySetState([]byte("kept")))
		r.close()
		c.sender("p").send(message("mortal", inSession("S"), living(time.Second)))
		b.pass(2 * time.Second)
		_, err := c.tryAccept("p", nil, time.Second)
		b.refused("accept next", err, timedOut)
		want(b, "messages", len(c.peek("p", 0, 10)), 0)
		r = c.accept("p", "S", 0)
		state, err := r.tryState()
		b.must("get", err)
		want(b, "state after its messages expired", string(state), "kept")
		r.close()

		behind := (b.lab.Leader(1) + 1) % 3 // a replica that gets an image in place of the log
		b.lab.Crash(behind, true)
		for i := range 200 {
			c = b.survivor()
			sendTo(c, "q", "T", fmt.Sprint(i))
			c.close()
		}
		for i := range 3 {
			if b.lab.Up(i) {
				b.lab.Snapshot(i)
			}
		}
		b.must("start", b.lab.Start(behind))
		b.must("serve", b.lab.Settled())
		b.must("lead", b.lab.Lead(1, behind))
		check("after an image was installed")
	})
}

// T-142; S-71, S-225
func TestT142StateCountsForTheQuota(t *testing.T) {
	onOne(t, func(b *bench) {
		b.queue("q", sessions, maxBytes(40<<10))
		c := b.client()
		r := c.accept("q", "S", 0)
		b.must("set", r.trySetState(make([]byte, 30<<10)))
		before := b.counts("q").SizeBytes
		other := c.accept("q", "T", 0)
		b.refused("set", other.trySetState(make([]byte, 20<<10)), quotaExceeded)
		big := message(strings.Repeat("x", 20<<10), withID("m"), inSession("S"))
		b.refused("send", c.sender("q").try(big), quotaExceeded)
		b.must("clear", r.trySetState(nil))
		if after := b.counts("q").SizeBytes; after+(30<<10) > before {
			b.Fatalf("%d bytes before, %d after", before, after)
		}
		c.sender("q").send(big)
	})
}

// T-143; S-72
func TestT143AnAcknowledgedStateIsNeverLost(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(5*time.Minute))
		leader := b.lab.Leader(1)
		r := b.clientAt((leader+1)%3).accept("q", "S", 0)
		last, count := 0, size("T-143", "states set", 1000, 200)
		crash := b.later(func() error {
			b.pass(300 * time.Millisecond)
			b.lab.Crash(leader, true)
			return nil
		})
		for i := 1; i <= count; i++ {
			if r.trySetState(blob(i)) == nil {
				last = i
			}
		}
		b.must("crash", <-crash)
		if last < count/2 {
			b.Fatalf("the last that was acknowledged of %d is %d", count, last)
		}
		state, err := r.tryState()
		b.must("get", err)
		if got := blobbed(b, state); got < last {
			b.Fatalf("the state is %d, %d was acknowledged", got, last)
		}
	})
}

// blob is the n-th value of a state: of a length of its own, and no part of it fits to another value.
func blob(n int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%07d.", n)), 500+n%700)
}

// blobbed tells which value a state is, and fails if it is a mix of two or a part of one.
func blobbed(b *bench, state []byte) (n int) {
	b.Helper()
	_, err := fmt.Sscanf(string(state[:min(len(state), 7)]), "%d", &n)
	b.must("read the state", err)
	if !bytes.Equal(state, blob(n)) {
		b.Fatalf("a state of %d bytes is not the whole value %d", len(state), n)
	}
	return n
}

// S-72: a leader that loses its power over a new state, before it is written or when it is applied and
// not answered, leaves the old value or the new one, whole, and what is read first is read on.
func TestAStateIsTheOldOneOrTheNewOne(t *testing.T) {
	for name, point := range map[string]simulation.Point{
		"before it is written": simulation.BeforeStored, "when it is applied": simulation.AfterApplied,
	} {
		t.Run(name, func(t *testing.T) {
			onThree(t, func(b *bench) {
				b.queue("q", sessions, lockFor(5*time.Minute))
				leader := b.lab.Leader(1)
				c := b.clientAt((leader + 1) % 3)
				r := c.accept("q", "S", 0)
				b.must("set", r.trySetState(blob(1)))
				down := b.lab.CrashAt(1, point, b.lab.Applied(leader, 1)+1)
				acknowledged := r.trySetState(blob(2)) == nil
				<-down
				b.lab.Disarm()
				state, err := r.tryState()
				b.must("get", err)
				got := blobbed(b, state)
				if got > 2 || acknowledged && got != 2 {
					b.Fatalf("the state is %d; acknowledged: %t", got, acknowledged)
				}
				for i := range 3 { // from every replica's image and log
					b.lab.Snapshot((leader + 1 + i%2) % 3)
				}
				b.must("start", b.lab.Start(leader))
				b.must("serve", b.lab.Settled())
				for node := range 3 {
					b.must("lead", b.lab.Lead(1, node))
					again, err := r.tryState()
					b.must("get again", err)
					want(b, fmt.Sprint("the state at node ", node), blobbed(b, again), got)
				}
			})
		})
	}
}
