package scenario

import (
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

func idleAfter(t time.Duration) func(*fsm.Descriptor) {
	return func(d *fsm.Descriptor) { d.AutoDeleteOnIdle = fsm.Millis(t.Milliseconds()) }
}

// there reports whether an entity exists.
func (b *bench) there(name string) bool {
	b.Helper()
	ctx, cancel := b.soon()
	defer cancel()
	_, err := b.lab.Directory(b.node()).Get(ctx, name)
	if err != nil && !errors.Is(err, fsm.ErrNoEntity) {
		b.Fatalf("find %s: %v", name, err)
	}
	return err == nil
}

// T-197; S-213
func TestT197AForwardingQueueIsNeverIdle(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("destination", idleAfter(10*time.Minute))
		b.queue("source", idleAfter(5*time.Minute), forwardTo("destination"))
		b.pass(8 * time.Minute)
		want(b, "the source is there", b.there("source"), true)
		b.client().send("source", "a") // and keeps its destination, which takes it
		b.pass(8 * time.Minute)
		want(b, "the destination is there", b.there("destination"), true)
		b.pass(5 * time.Minute)
		want(b, "the destination is there", b.there("destination"), false)
		want(b, "the source is there", b.there("source"), true)
	})
}

// T-216; S-257, S-258
func TestT216AnIdleQueueIsDeleted(t *testing.T) {
	onThree(t, func(b *bench) {
		for _, name := range []string{"idle", "peeked", "used", "planned", "listened"} {
			b.queue(name, idleAfter(5*time.Minute))
		}
		c := b.client()
		c.schedule("planned", time.Now().Add(9*time.Minute), message("later"))
		go func() { _, _ = c.receiver("listened").try(9 * time.Minute) }()
		b.pass(4 * time.Minute)
		want(b, "idle is there", b.there("idle"), true)
		want(b, "peeked", len(c.peek("peeked", 0, 1)), 0)
		c.send("used", "a")
		b.pass(3 * time.Minute)
		want(b, "idle is there", b.there("idle"), false)
		for _, name := range []string{"peeked", "used", "planned", "listened"} {
			want(b, name+" is there", b.there(name), true)
		}
		_, err := c.tryReceiver("idle")
		b.refused("receive from what was deleted", err, entityNotFound)
		b.pass(4 * time.Minute)
		for _, name := range []string{"peeked", "used"} {
			want(b, name+" is there", b.there(name), false)
		}
		b.pass(6 * time.Minute)
		want(b, "planned is there", b.there("planned"), false)
	})
}

// T-216; S-258: time without a leader is not idle time.
func TestT216TimeWithoutALeaderDoesNotCount(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", idleAfter(5*time.Minute))
		b.pass(2 * time.Minute)
		b.lab.Crash(1, true)
		b.lab.Crash(2, true)
		b.pass(10 * time.Minute)
		b.must("start", b.lab.Start(1))
		b.must("start", b.lab.Start(2))
		b.must("serve", b.lab.Settled())
		b.pass(2 * time.Minute)
		want(b, "it is there", b.there("q"), true)
		b.pass(4 * time.Minute)
		want(b, "it is there", b.there("q"), false)
	})
}
