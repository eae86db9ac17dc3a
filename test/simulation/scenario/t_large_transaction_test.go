package scenario

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// The messages of a transaction here have 3 MB and 20 MB: 12 parts and 77.
const (
	threeMB    = 3_000_000
	twentyMB   = 20_000_000
	frameBytes = 60 << 10 // of a transfer; the broker takes frames of 64 KiB
)

func takesTwentyMB(d *fsm.Descriptor) {
	takesLarge(d)
	d.MaxMessageBytes = 24 << 20
}

// bodyOf is a body that no mix-up of its parts leaves as it is.
func bodyOf(name string, size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(name))).Read(b)
	return b
}

// sendLarge sends a message of that size in a transaction.
func (t *transaction) sendLarge(entity, name string, size int) {
	t.d.b.Helper()
	t.d.b.must("send "+name, t.trySendLarge(entity, name, size))
}

func (t *transaction) trySendLarge(entity, name string, size int) error {
	h, err := t.d.sender(entity, "")
	if err != nil {
		return err
	}
	m := message(name)
	m.Data = [][]byte{bodyOf(name, size)}
	payload, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	id := t.d.writeFrames(h, &amqp.TransactionalState{TxnID: t.id}, payload, true)
	_, err = t.d.disposed(amqp.RoleReceiver, id, true)
	return err
}

// writeFrames sends a delivery in several transfers. Unless it is whole, the client says that more follows.
func (d *dealer) writeFrames(handle uint32, state amqp.DeliveryState, payload []byte, whole bool) uint32 {
	id := d.delivery
	d.delivery++
	for first := true; first || len(payload) > 0; first = false {
		n := min(len(payload), frameBytes)
		d.send(&amqp.Transfer{Handle: handle, DeliveryID: amqp.Some(id),
			DeliveryTag: binary.BigEndian.AppendUint32(nil, id), MessageFormat: amqp.Some(amqp.FormatAMQP),
			State: state, More: n < len(payload) || !whole}, payload[:n])
		payload = payload[n:]
	}
	return id
}

// isSized checks that a message of that name came whole, and completes it.
func (g *got) isSized(name string, size int) {
	b := g.rx.c.b
	b.Helper()
	want(b, "message id", g.Properties.MessageID, any(name))
	if !bytes.Equal(g.GetData(), bodyOf(name, size)) {
		b.Fatalf("%s came as another body, of %d bytes", name, len(g.GetData()))
	}
	g.complete()
}

// cutOff checks that a step ended with its connection.
func (b *bench) cutOff(what string, err error) {
	b.Helper()
	var lost *goamqp.ConnError
	if !errors.As(err, &lost) {
		b.Fatalf("%s ended with %v, want the end of its connection", what, err)
	}
}

// nothingIsLeft checks that a queue holds nothing, seen or staged, once uploads have expired.
func (b *bench) nothingIsLeft(name string) {
	b.Helper()
	b.pass(2 * time.Minute)
	n := b.counts(name)
	want(b, "messages left in "+name, n.Active, 0)
	want(b, "bytes left in "+name, n.SizeBytes, 0)
	for i := range b.lab.Nodes() {
		if b.lab.Up(i) && b.lab.LiveBodyBytes(i, 1) > fsm.PartBytes {
			b.Fatalf("node %d keeps %d bytes of bodies", i, b.lab.LiveBodyBytes(i, 1))
		}
	}
}

// RUL-25, S-232, S-233, S-238: a client's transaction with messages of 3 MB and 20 MB commits whole, and leaves
// nothing when it is rolled back or runs out of time. Nothing is stored before the commit.
func TestLargeMessagesInATransactionOfAClient(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", takesTwentyMB)
		b.must("lead", b.lab.Lead(1, 2))
		d := b.dealerAt(0)
		stored := b.lab.BodyBytes(2, 1)
		x := d.begin()
		x.sendLarge("q", "three", threeMB)
		x.sendLarge("q", "twenty", twentyMB)
		want(b, "bytes stored before the end", b.lab.BodyBytes(2, 1), stored)
		x.rollback()
		want(b, "bytes stored after the roll-back", b.lab.BodyBytes(2, 1), stored)

		x = d.begin()
		x.sendLarge("q", "three", threeMB)
		b.pass(2*time.Minute + time.Second)
		b.refused("commit", x.tryCommit(), transactionEnd)
		want(b, "bytes stored after its time", b.lab.BodyBytes(2, 1), stored)
		b.nothingIsLeft("q")

		x = d.begin()
		x.sendLarge("q", "three", threeMB)
		x.sendLarge("q", "twenty", twentyMB)
		x.commit()
		rx := b.clientAt(1).receiver("q")
		rx.one().isSized("three", threeMB)
		rx.one().isSized("twenty", twentyMB)
		b.nothingIsLeft("q")
	})
}

// RUL-25, S-232: the leader is lost in the middle of the commit; both messages are there once and whole.
func TestALeaderIsLostInTheMiddleOfALargeTransaction(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", takesTwentyMB)
		b.must("lead", b.lab.Lead(1, 2))
		x := b.dealerAt(0).begin()
		x.sendLarge("q", "three", threeMB)
		x.sendLarge("q", "twenty", twentyMB)
		done := b.later(x.tryCommit)
		b.amid(2, 10<<20)
		b.lab.Crash(2, true)
		b.must("commit", <-done)
		b.must("start", b.lab.Start(2))
		b.must("serve", b.lab.Settled())
		want(b, "messages", b.counts("q").Active, 2)
		rx := b.clientAt(2).receiver("q")
		rx.one().isSized("three", threeMB)
		rx.one().isSized("twenty", twentyMB)
		b.nothingIsLeft("q")
	})
}

// RUL-25, S-240: the node of the client is lost in the middle of the commit; nothing of it is ever seen.
func TestTheNodeOfALargeTransactionIsLost(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", takesTwentyMB)
		b.must("lead", b.lab.Lead(1, 2))
		x := b.dealerAt(0).begin()
		x.sendLarge("q", "twenty", twentyMB)
		done := b.later(x.tryCommit)
		b.amid(2, 10<<20)
		b.lab.Crash(0, true)
		b.unanswered("commit", <-done, errEnded)
		want(b, "messages", b.counts("q").Active, 0)
		b.nothingIsLeft("q")
	})
}

// RUL-9, S-226: the messages of a transaction have as many bytes together as one message may have. The next is
// refused with the limit, and what was in the transaction before commits.
func TestATransactionIsAsLargeAsAMessage(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", takesTwentyMB)
		d := b.dealer()
		x := d.begin()
		x.sendLarge("q", "twenty", twentyMB)
		x.sendLarge("q", "three", threeMB)
		err := x.trySendLarge("q", "another", threeMB)
		b.refused("a message more", err, quotaExceeded)
		if text := err.Error(); !strings.Contains(text, "TransactionSizeExceeded") || !strings.Contains(text, "25165824 bytes") {
			b.Fatalf("the refusal says %q", text)
		}
		x.commit()
		rx := b.clientAt(1).receiver("q")
		rx.one().isSized("twenty", twentyMB)
		rx.one().isSized("three", threeMB)
		b.nothingIsLeft("q")
	})
}

// RUL-25: a client that ends in the middle of its message has stored nothing, and one that ends while the node
// stores its message leaves it whole.
func TestAClientThatEndsInTheMiddleOfItsMessageLeavesNothing(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", takesTwentyMB)
		b.must("lead", b.lab.Lead(1, 2))
		stored := b.lab.BodyBytes(2, 1)
		d := b.dealerAt(0)
		h, err := d.sender("q", "")
		b.must("attach", err)
		d.writeFrames(h, nil, bodyOf("half", twentyMB/2), false)
		b.pass(time.Second)
		d.die()
		b.pass(time.Second)
		want(b, "bytes stored of half a message", b.lab.BodyBytes(2, 1), stored)
		want(b, "bytes counted of half a message", b.counts("q").SizeBytes, 0)

		c := b.clientAt(0)
		m := message("unheard")
		m.Data = [][]byte{bodyOf("unheard", twentyMB)}
		tx := c.sender("q")
		sent := b.later(func() error { return tx.try(m) })
		b.amid(2, 10<<20)
		c.die()
		b.cutOff("the send of a client that is gone", <-sent)
		b.clientAt(1).receiver("q").one().isSized("unheard", twentyMB)
		b.nothingIsLeft("q")
	})
}

// RUL-25: a node that leads and uploads ends in the middle; the next leader frees what was staged, on its disk too.
func TestALeaderThatEndsInTheMiddleOfItsOwnUploadLeavesNothing(t *testing.T) {
	on(t, labOf(64), func(b *bench) {
		b.queue("q", takesTwentyMB)
		b.must("lead", b.lab.Lead(1, 2))
		tx := b.clientAt(2).sender("q")
		m := message("lost")
		m.Data = [][]byte{bodyOf("lost", twentyMB)}
		sent := b.later(func() error { return tx.try(m) })
		b.amid(1, 10<<20)
		b.lab.Crash(2, true)
		b.cutOff("the send over the lost node", <-sent)
		b.must("lead", b.lab.Led())
		if n := b.counts("q"); n.SizeBytes < 8<<20 {
			b.Fatalf("%d bytes are staged, want those of half a message", n.SizeBytes)
		}
		b.nothingIsLeft("q")
		b.must("start", b.lab.Start(2))
		b.must("serve", b.lab.Settled())
		b.nothingIsLeft("q")
	})
}
