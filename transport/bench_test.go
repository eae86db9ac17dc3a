package transport

import (
	"fmt"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
)

// BenchmarkSend is one client with many sends under way, over a real socket to states without a log.
func BenchmarkSend(b *testing.B) {
	b.Run("one share", func(b *testing.B) { benchmarkSend(b, 1, 0) })
	b.Run("four shares, no keys", func(b *testing.B) { benchmarkSend(b, 4, 0) })
	b.Run("four shares, 100 keys", func(b *testing.B) { benchmarkSend(b, 4, 100) })
}

func benchmarkSend(b *testing.B, shares, keys int) {
	ts := startServer(b, shares)
	ts.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxSizeBytes, d.Partitioned = 1<<40, shares > 1 })
	session := newSession(b, dial(b, ts))
	tx := newSender(b, session, "orders")
	messages := []*goamqp.Message{goamqp.NewMessage(make([]byte, 256))}
	for i := range keys {
		m := goamqp.NewMessage(make([]byte, 256))
		m.Annotations = goamqp.Annotations{annPartitionKey: fmt.Sprint("key ", i)}
		messages = append(messages[:i], m)
	}
	b.ReportAllocs()
	b.ResetTimer()
	receipts := make(chan goamqp.SendReceipt, 1000)
	done := make(chan error, 1)
	go func() {
		for range b.N {
			r := <-receipts
			if _, err := r.Wait(b.Context()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := range b.N {
		r, err := tx.SendWithReceipt(b.Context(), messages[i%len(messages)], nil)
		if err != nil {
			b.Fatal(err)
		}
		receipts <- r
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkTranslate is the work that a message costs off the wire and back on it.
func BenchmarkTranslate(b *testing.B) {
	payload := amqp.AppendHeader(nil, amqp.Header{Durable: true})
	payload = amqp.AppendProperties(payload, &amqp.Properties{MessageID: amqp.AppendString(nil, "0123456789abcdef")})
	payload = amqp.AppendData(payload, make([]byte, 256))
	desc := &fsm.Descriptor{Kind: fsm.Queue}
	b.Run("in", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, _, err := translateMessage(payload, desc, noID); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("in, without an id", func(b *testing.B) {
		bare := amqp.AppendData(amqp.AppendHeader(nil, amqp.Header{Durable: true}), make([]byte, 1024))
		b.ReportAllocs()
		for b.Loop() {
			if _, _, _, err := translateMessage(bare, desc, func() string { return "0123456789abcdef0123456789abcdef" }); err != nil {
				b.Fatal(err)
			}
		}
	})
	m, _, _, _ := translateMessage(payload, desc, noID)
	d := &fsm.Delivery{Seq: 3, EnqueuedAt: 1000, Token: fsm.LockToken{1}, LockedUntil: 61_000, Body: m.Body}
	b.Run("out", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		var err error
		for b.Loop() {
			if buf, err = appendDelivery(buf[:0], d, false); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkKeyRate is what the rate of a key costs for each delivery of a link: finding the key that pays, and charging it.
func BenchmarkKeyRate(b *testing.B) {
	const most = 1 << 40 // never refused
	for _, c := range []struct {
		name  string
		limit KeyRate
		scope string // of the key
	}{
		{"no rate", KeyRate{}, ""},
		{"messages", KeyRate{Messages: most, MessageBurst: most}, ""},
		{"messages and bytes", KeyRate{Messages: most, MessageBurst: most, Bytes: most, ByteBurst: most}, ""},
		{"messages and bytes, key of an entity", KeyRate{Messages: most, MessageBurst: most, Bytes: most, ByteBurst: most}, "orders"},
	} {
		client := &conn{s: &Server{rates: newRates(c.limit, time.Now)}, tables: tables{claims: map[string]heldClaim{
			"sb://localhost/orders": {Claim: auth.Claim{Policy: testPolicy, Scope: c.scope, Rights: auth.All}},
		}}}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if e := client.s.rates.take(client.sender("orders"), 1, 1024); e != nil {
					b.Fatal(e)
				}
			}
		})
		b.Run(c.name+", all processors", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if e := client.s.rates.take(client.sender("orders"), 1, 1024); e != nil {
						b.Error(e)
						return
					}
				}
			})
		})
	}
}
