package scenario

import (
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

func restAfterFailure(o fsm.RetryBackoff) func(*fsm.Descriptor) {
	return func(d *fsm.Descriptor) { d.RetryBackoff = o }
}

// rested checks how long ago a rest began: no less than it is long, and no more than a failover later.
func rested(b *bench, began time.Time, least, most time.Duration) {
	b.Helper()
	const failover = 15 * time.Second
	if took := time.Since(began); took < least || took > most+failover {
		b.Errorf("rested for %s, want %s to %s and a failover", took, least, most)
	}
}

// S-153, S-287: a rest that an abandon asks for belongs to the partition and not to its leader.
// The message keeps its place, and nobody waits for it meanwhile.
func TestARestSurvivesItsLeader(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(5*time.Minute))
		c := b.bystander()
		c.send("q", "1", "2")
		r := c.receiver("q")
		began := time.Now()
		b.must("abandon", r.one().tryAbandon(map[string]any{"x-busbar-delay": int64(40_000), "why": "later"}))
		b.crashLeader()
		second := r.one()
		want(b, "passes by", second.text(), "2")
		r.none(20 * time.Second)
		second.release()
		c.send("q", "3")
		list := r.take(2)
		wantAll(b, "at once", texts(list), "2", "3")
		list[0].complete()
		first := r.one()
		rested(b, began, 40*time.Second, 40*time.Second)
		want(b, "after its rest", first.text(), "1")
		want(b, "count", first.count(), 2)
		list[1].release()
		first.release()
		wantAll(b, "in their places", texts(r.take(2)), "1", "3")
	})
}

// S-153, S-281: the option of a queue lets its messages rest after every failure, an abandon or a lock
// that ran out, longer each time, whoever leads; the share of chance is that of the entry.
func TestFailuresRestLongerEachTime(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(5*time.Second), restAfterFailure(
			fsm.RetryBackoff{Min: 20_000, Max: 60_000, Multiplier: 200, Jitter: 25}))
		c := b.bystander()
		c.send("q", "x")
		r := c.receiver("q")
		m := r.one()
		began := time.Now()
		m.abandon()
		restart := b.crashLeader()
		m = r.one()
		rested(b, began, 15*time.Second, 20*time.Second)
		want(b, "count", m.count(), 2)
		over := m.lockedUntil() // its lock runs out; the restart takes a part of its time
		restart()
		m = r.one()
		rested(b, over, 30*time.Second, 40*time.Second)
		want(b, "count", m.count(), 3)
		m.complete()
	})
}

// S-153, S-287: in a session the message keeps its place, so the whole session pauses; other sessions
// go on, and so does the pause when the leader fails.
func TestASessionPausesForItsMessage(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(5*time.Minute))
		c := b.bystander()
		sendTo(c, "q", "S", "1", "2")
		sendTo(c, "q", "T", "3")
		r := c.accept("q", "S", 0)
		began := time.Now()
		b.must("abandon", r.one().tryAbandon(map[string]any{"x-busbar-delay": int64(40_000)}))
		b.crashLeader()
		r.none(10 * time.Second)
		other := c.accept("q", nil, time.Minute)
		want(b, "the next session", other.held(), "T")
		other.one().complete()
		list := r.take(2)
		rested(b, began, 40*time.Second, 40*time.Second)
		wantAll(b, "in order", texts(list), "1", "2")
		want(b, "count of the first", list[0].count(), 2)
		want(b, "count of the second", list[1].count(), 1)
	})
}
