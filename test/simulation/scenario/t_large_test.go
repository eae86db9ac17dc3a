package scenario

import (
	"bytes"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
)

// These scenarios have bodies that lie in parts (docs/decisions/0043). 3 MiB are 12 parts.
const largeBytes = 3 << 20

func takesLarge(d *fsm.Descriptor) {
	d.MaxMessageBytes, d.LockDuration, d.MaxSizeBytes = 8<<20, 300_000, 1<<30
}

func largeText(name string) []byte { return bodyOf(name, largeBytes) }

func largeMessage(name string, options ...func(*goamqp.Message)) *goamqp.Message {
	return message(name, append(options, func(m *goamqp.Message) { m.Data = [][]byte{largeText(name)} })...)
}

// isLarge checks that a message came whole.
func (g *got) isLarge(name string) *got {
	b := g.rx.c.b
	b.Helper()
	want(b, "message id", g.Properties.MessageID, any(name))
	if !bytes.Equal(g.GetData(), largeText(name)) {
		b.Fatalf("%s came as another body, of %d bytes", name, len(g.GetData()))
	}
	return g
}

// amid waits until a node has stored that many bytes of bodies more.
func (b *bench) amid(node int, stored uint64) {
	b.Helper()
	from := b.lab.BodyBytes(node, 1)
	for range 60_000 {
		if b.lab.BodyBytes(node, 1) >= from+stored {
			return
		}
		b.pass(time.Millisecond)
	}
	b.Fatalf("node %d does not get %d bytes", node, stored)
}

// restarted crashes a node and starts it again.
func (b *bench) restarted(node int) {
	b.Helper()
	b.lab.Crash(node, true)
	b.must("lead", b.lab.Led())
	b.must("start", b.lab.Start(node))
	b.must("serve", b.lab.Settled())
}

// S-226, RUL-25: the leader is lost in the middle of an upload, and the message is stored once and whole all
// the same; it is dead-lettered, forwarded and received while one leader after the other is lost.
func TestALeaderIsLostInTheMiddleOfALargeMessage(t *testing.T) {
	on(t, labOf(64), func(b *bench) {
		b.queue("end", takesLarge)
		b.queue("q", takesLarge, forwardDead("end"))
		b.must("lead", b.lab.Lead(1, 2))
		tx := b.clientAt(0).sender("q")
		sent := b.later(func() error { return tx.try(largeMessage("large")) })
		b.amid(2, 1<<20)
		b.lab.Crash(2, true)
		b.must("send", <-sent)
		b.must("start", b.lab.Start(2))
		b.must("serve", b.lab.Settled())
		want(b, "messages", b.counts("q").Active, 1)

		leader := b.lab.Leader(1)
		c := b.clientAt((leader + 1) % 3)
		c.receiver("q").one().isLarge("large").deadLetter("R", "D")
		b.restarted(leader) // in the middle of the way to the other queue, or behind it
		m := b.clientAt((leader + 2) % 3).receiver("end").one().isLarge("large")
		want(b, "reason", m.reason(), "R")
		m.complete()
		b.pass(time.Minute)
		for _, name := range []string{"q", "end"} {
			want(b, "bytes left in "+name, b.counts(name).SizeBytes, 0)
		}
	})
}

// RUL-25: of an upload that nobody ends nothing is left, and nothing of it was ever to be seen.
func TestWhatIsAbandonedHalfwayLeavesNothing(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", takesLarge)
		b.must("lead", b.lab.Lead(1, 2))
		tx := b.clientAt(0).sender("q")
		sent := b.later(func() error { return tx.try(largeMessage("lost")) })
		b.amid(2, 1<<20)
		b.lab.Crash(0, true) // whoever uploads is gone, and its client with it
		b.cutOff("the send", <-sent)
		half := b.counts("q")
		if half.SizeBytes < 1<<20 || half.SizeBytes >= largeBytes {
			b.Fatalf("%d bytes are staged", half.SizeBytes)
		}
		want(b, "messages", half.Active, 0)
		c := b.clientAt(1)
		want(b, "peeked", len(c.peek("q", 0, 10)), 0)
		b.nothingIsLeft("q")
		tx = b.clientAt(1).sender("q")
		tx.send(largeMessage("next"))
		c.receiver("q").one().isLarge("next").complete()
	})
}

// RUL-25: parts outlive compaction, snapshots, a loss of power of all nodes, and come to a replica that gets
// an image in place of the log: messages, a session state and the half of an upload.
func TestPartsOutliveTheLog(t *testing.T) {
	on(t, labOf(64), func(b *bench) {
		b.queue("q", takesLarge)
		b.queue("s", takesLarge, sessions)
		b.queue("small")
		b.must("lead", b.lab.Lead(1, 2))
		c := b.clientAt(0)
		c.sender("q").send(largeMessage("first"), message("small"))
		r := c.accept("s", "S", 0)
		b.must("set", r.trySetState(largeText("state")))
		r.close()
		behind := 1
		b.lab.Crash(behind, true)
		tx := c.sender("q")
		tx.send(largeMessage("second"))
		sent := b.later(func() error { return tx.try(largeMessage("third")) })
		b.amid(2, 1<<20)
		for i := range 200 { // beside the upload: the log is cut behind these
			c.send("small", string(rune('a'+i%26)))
		}
		for _, node := range []int{0, 2} {
			b.lab.Snapshot(node)
		}
		b.must("start", b.lab.Start(behind))
		b.must("send", <-sent)
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
		b.must("lead", b.lab.Lead(1, behind))

		c = b.clientAt(behind)
		accepted := c.accept("s", "S", 0)
		state, err := accepted.tryState()
		b.must("get", err)
		if !bytes.Equal(state, largeText("state")) {
			b.Fatalf("a state of %d bytes came back as another one", len(state))
		}
		b.must("clear", accepted.trySetState(nil))
		rx := c.receiver("q")
		rx.one().isLarge("first").complete()
		small := rx.one()
		want(b, "text", small.text(), "small")
		small.complete()
		rx.one().isLarge("second").complete()
		rx.one().isLarge("third").complete()
		b.pass(time.Minute)
		want(b, "bytes left of messages", b.counts("q").SizeBytes, 0)
		want(b, "bytes left of states", b.counts("s").SizeBytes, 0)
	})
}

// RUL-25, S-209: the copies of a topic share the parts of a large message; each is whole, and the last one
// that is settled frees them.
func TestTheCopiesOfALargeMessageShareItsParts(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("t", takesLarge, func(d *fsm.Descriptor) { d.Kind = fsm.Topic })
		for _, name := range []string{"a", "b", "c"} {
			b.subscription("t", name, takesLarge)
		}
		c := b.client()
		before := b.lab.BodyBytes(b.lab.Leader(1), 1)
		c.sender("t").send(largeMessage("large"))
		if stored := b.lab.BodyBytes(b.lab.Leader(1), 1) - before; stored < largeBytes || stored > largeBytes+largeBytes/8 {
			b.Fatalf("%d bytes are stored for three copies of %d", stored, largeBytes)
		}
		for _, name := range []string{"a", "b", "c"} {
			c.receiver("t/Subscriptions/" + name).one().isLarge("large").complete()
		}
		want(b, "bytes left", b.counts("t").SizeBytes, 0)
	})
}

// RUL-25, S-232: large messages are in a transaction all or none, whoever leads.
func TestLargeMessagesInATransaction(t *testing.T) {
	onThree(t, func(b *bench) {
		d, err := b.tryQueue("q", takesLarge)
		b.must("create q", err)
		b.must("lead", b.lab.Lead(1, 2))
		op := func(name string) fsm.Op {
			return fsm.Op{Entity: d.ID, Command: &fsm.Enqueue{Messages: []fsm.Message{{Body: largeText(name)}}}}
		}
		id := fsm.RequestID{Node: 1 << 40, Pump: 1, Counter: 1}
		done := b.later(func() error {
			o := b.proposeAt(0, "q", id, &fsm.Commit{Ops: []fsm.Op{op("one"), op("two")}})
			want(b, "refusal", o.Refusal, fsm.None)
			return nil
		})
		b.amid(2, largeBytes+1<<20) // in the middle of the second
		b.lab.Crash(2, true)
		b.must("commit", <-done)
		id.Counter++
		gone := fsm.Op{Entity: d.ID, Command: &fsm.Settle{Items: []fsm.SettleItem{{
			Token: fsm.LockToken{0, 0, 1}, Verdict: fsm.Complete}}}}
		o := b.proposeAt(0, "q", id, &fsm.Commit{Ops: []fsm.Op{op("three"), gone}})
		want(b, "refusal", o.Refusal, fsm.TransactionAborted)
		b.must("start", b.lab.Start(2))
		b.must("serve", b.lab.Settled())

		ctx, cancel := b.soon()
		defer cancel()
		a, err := b.lab.Router(2).Query(ctx, fsm.Key{Entity: d.ID}, &fsm.Peek{Max: 10})
		b.must("peek", err)
		want(b, "messages", len(a.Messages), 2)
		for i, name := range []string{"one", "two"} {
			if !bytes.Equal(a.Messages[i].Body, largeText(name)) {
				b.Fatalf("message %d is another one, of %d bytes", i, len(a.Messages[i].Body))
			}
		}
		b.pass(2 * time.Minute)
		if left := b.counts("q").SizeBytes; left != 2*largeBytes {
			b.Fatalf("%d bytes are left, want those of two messages", left)
		}
	})
}
