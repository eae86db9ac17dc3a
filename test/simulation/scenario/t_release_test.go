package scenario

import (
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// S-54: a lock that an operator took back is lost to its holder, and the delivery counts.
func TestAnOperatorTakesALockBack(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		c := b.bystander()
		c.send("q", "a", "b")
		list := c.receiver("q").take(2)
		o := b.propose("q", fsm.RequestID{}, &fsm.Revoke{Number: 1})
		want(b, "refusal", o.Refusal, fsm.None)
		want(b, "released", o.Count, uint64(1))
		_, err := c.tryRenew("q", list[0].token)
		b.refused("renew", err, lockLost)
		b.refused("complete", list[0].tryComplete(), lockLost)
		list[1].complete()
		again := b.client().receiver("q").one()
		want(b, "back", again.text(), "a")
		want(b, "count", again.count(), 2)
	})
}

// S-54, S-47: a session that an operator took back is lost to its holder, whose waiting receive ends so; the
// state stays and the deliveries count.
func TestAnOperatorTakesASessionBack(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(time.Minute))
		c := b.bystander()
		sendTo(c, "q", "S", "a")
		r := c.accept("q", "S", 0)
		m := r.one()
		b.must("set the state", r.trySetState([]byte("kept")))
		ended := make(chan error, 1)
		go func() { _, err := r.try(30 * time.Second); ended <- err }()
		b.pass(time.Second)
		o := b.propose("q", fsm.RequestID{}, &fsm.Revoke{HasSession: true, Session: "S"})
		want(b, "refusal", o.Refusal, fsm.None)
		b.refused("the wait", <-ended, sessionLost)
		_, err := r.tryState()
		b.refused("get the state", err, sessionLost)
		_, err = r.tryRenewSession()
		b.refused("renew", err, sessionLost)
		b.refused("complete", m.tryComplete(), sessionLost)
		next := b.client().accept("q", "S", 0)
		again := next.one()
		want(b, "count", again.count(), 2)
		state, err := next.tryState()
		b.must("get the state", err)
		want(b, "state", string(state), "kept")
	})
}

// S-54: the link of a session that an operator took back through any node ends at once, though the link asks
// for no messages and its lock had minutes to go. The link that accepts the session next is left alone.
func TestTheLinkOfAReleasedSessionEndsAtOnce(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(5*time.Minute))
		a, other := b.clientAt(0), b.clientAt(1)
		sendTo(a, "q", "S", "a")
		r, same := other.accept("q", "S", 0), other.accept("q", "T", 0)
		r.one()
		b.pass(20 * time.Second) // it asks for nothing
		at := time.Now()
		o := b.proposeAt(2, "q", fsm.RequestID{}, &fsm.Revoke{HasSession: true, Session: "S"})
		want(b, "refusal", o.Refusal, fsm.None)
		_, err := r.Receive(b.ctx, nil)
		b.refused("the link", err, sessionLost)
		b.about("the detach", time.Now(), at, time.Second)
		next := a.accept("q", "S", 0)
		b.pass(20 * time.Second)
		for _, r := range []*receiver{next, same} {
			_, err = r.tryRenewSession()
			b.must("renew", err)
		}
	})
}
