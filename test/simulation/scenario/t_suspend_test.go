package scenario

import (
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// suspend is what an operator does through the operations port of a node.
func (b *bench) suspend(name string, to fsm.Status) *fsm.Descriptor {
	b.Helper()
	ctx, cancel := b.soon()
	defer cancel()
	dir := b.lab.Directory(b.node())
	d, err := dir.Get(ctx, name)
	b.must("find "+name, err)
	d, err = dir.Suspend(ctx, d.ID, to)
	b.must("suspend "+name, err)
	return d
}

// unauthorized checks that a user's change was refused because an operator's decision stands against it.
func (b *bench) unauthorized(what string, err error) {
	b.Helper()
	b.refusedAs(what, err, fsm.Unauthorized)
}

// allows checks what the status of an entity lets a client do.
func (b *bench) allows(name string, send, receive bool) {
	b.Helper()
	c := b.survivor()
	tx, err := c.trySender(name)
	if err == nil {
		err = tx.try(message("more"))
	}
	if want(b, "send", err == nil, send); !send {
		b.refused("send", err, entityDisabled)
	}
	rx, err := c.tryReceiver(name)
	if err == nil {
		var m *got
		if m, err = rx.try(time.Second); err == nil && m != nil {
			m.release()
		}
	}
	if want(b, "receive", err == nil, receive); !receive {
		b.refused("receive", err, entityDisabled)
	}
}

// T-215; S-256, S-254, S-255: a suspension ends what it forbids, only the operator lifts it, and then
// everything is as the user had it, whoever led and restarted meanwhile.
func TestT215OnlyTheOperatorLiftsASuspension(t *testing.T) {
	on(t, labOf(20), func(b *bench) {
		b.queue("q", lockFor(time.Minute))
		c := b.clientAt(0)
		c.send("q", "1", "2")
		list := c.receiver("q").take(2)
		r := b.clientAt(1).receiver("q")
		ended := make(chan error, 1)
		go func() { _, err := r.try(time.Minute); ended <- err }()
		b.pass(time.Second)

		b.suspend("q", fsm.Disabled)
		b.refused("the wait", <-ended, entityDisabled)
		b.refused("complete", list[0].tryComplete(), entityDisabled)
		b.allows("q", false, false)
		b.unauthorized("the user makes it active", b.tryUpdate("q", status(fsm.Active)))
		b.unauthorized("the user changes something else", b.tryUpdate("q", maxDelivery(3)))
		b.unauthorized("the user deletes it", b.lab.Directory(0).Delete(b.ctx, "q"))

		for node := range b.lab.Nodes() { // from images and logs
			b.lab.Snapshot(node)
			b.lab.Crash(node, true)
			b.must("start", b.lab.Start(node))
			b.must("settle", b.lab.Settled())
		}
		b.unauthorized("the user makes it active", b.tryUpdate("q", status(fsm.Active)))
		b.suspend("q", fsm.SendDisabled) // the operator allows something
		b.allows("q", false, true)
		b.unauthorized("the user makes it active", b.tryUpdate("q", status(fsm.Active)))

		b.suspend("q", fsm.Active)
		b.allows("q", true, true)
		back := b.client().receiver("q").take(2)
		wantAll(b, "back", texts(back), "1", "2")
		b.update("q", status(fsm.ReceiveDisabled))
		b.suspend("q", fsm.SendDisabled)
		b.allows("q", false, false)
		want(b, "the user's again", b.suspend("q", fsm.Active).Status, fsm.ReceiveDisabled)
		b.allows("q", true, false)
		b.update("q", status(fsm.Active))
		b.allows("q", true, true)
	})
}

// T-215; S-256, S-253: topics and subscriptions, by themselves.
func TestT215TopicsAndSubscriptionsAreSuspended(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t", "a", "b")
		b.suspend(subA, fsm.ReceiveDisabled)
		b.client().send("t", "1") // copies go on arriving
		_, err := b.client().tryReceiver(subA)
		b.refused("receive", err, entityDisabled)
		want(b, "beside it", b.client().receiver(subB).one().text(), "1")
		b.unauthorized("the user makes it active", b.tryUpdate(subA, status(fsm.Active)))
		b.unauthorized("the user deletes the topic", b.lab.Directory(0).Delete(b.ctx, "t"))
		b.suspend(subA, fsm.Active)
		want(b, "kept", b.client().receiver(subA).one().text(), "1")

		b.suspend("t", fsm.Disabled)
		s, err := b.client().trySender("t")
		if err == nil {
			err = s.try(message("2"))
		}
		b.refused("send", err, entityDisabled)
		b.unauthorized("the user makes it active", b.tryUpdate("t", status(fsm.Active)))
		b.update(subA, maxDelivery(3))
		b.suspend("t", fsm.Active)
		b.client().send("t", "3")
	})
}

// T-215; S-256, S-257: what nobody could use because an operator forbade it is not deleted for being idle.
func TestT215WhatIsSuspendedIsNotIdle(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", idleAfter(5*time.Minute))
		b.suspend("q", fsm.Disabled)
		b.pass(20 * time.Minute)
		want(b, "it is there", b.there("q"), true)
		b.suspend("q", fsm.Active)
		b.pass(4 * time.Minute)
		want(b, "it is there", b.there("q"), true)
		b.pass(3 * time.Minute)
		want(b, "it is there", b.there("q"), false)
	})
}
