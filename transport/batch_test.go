package transport

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// tinyBatch is a batch of n messages of one byte each, in the format of a batch, without message ids.
func tinyBatch(n int) []byte {
	one := amqp.AppendData(nil, []byte("x"))
	var out []byte
	for range n {
		out = amqp.AppendData(out, one)
	}
	return out
}

// BenchmarkTranslateBatch is what a batch of tiny messages costs on its way in, up to the log entry.
func BenchmarkTranslateBatch(b *testing.B) {
	for _, n := range []int{5_000, 50_000} {
		payload := tinyBatch(n)
		b.Run(map[int]string{5_000: "5000", 50_000: "50000"}[n], func(b *testing.B) {
			ts := startServer(b, 1)
			d := ts.broker.queue("orders")
			b.ReportAllocs()
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				in := &inbound{format: amqp.FormatBatch, payload: payload}
				if bad := translateInbound(in, d, &messageIDs{s: ts.Server, of: 1}); bad != nil {
					b.Fatal(bad)
				}
				fsm.AppendEntry(nil, &fsm.Entry{Requests: []fsm.Request{{Command: &fsm.Enqueue{Messages: in.messages}}}})
			}
		})
	}
}

// S-342, RUL-32: a batch has no limit of number. It is one command, so it is stored whole or not at all.
func TestABatchHasNoLimitOfNumber(t *testing.T) {
	const n = 50_000
	ts := startServer(t, 3)
	ts.broker.queue("orders")
	ts.broker.queue("limited", func(d *fsm.Descriptor) { d.MaxSizeBytes = 1 << 20 })
	session := newSession(t, dial(t, ts))
	batch := func() *goamqp.Message {
		m := &goamqp.Message{Format: amqp.FormatBatch}
		for i := range n {
			m.Data = append(m.Data, amqp.AppendData(nil, fmt.Append(nil, i)))
		}
		return m
	}
	if err := newSender(t, session, "orders").Send(testContext(t), batch(), nil); err != nil {
		t.Fatal(err)
	}
	ts.broker.mu.Lock()
	commands := ts.broker.commands["Enqueue"]
	ts.broker.mu.Unlock()
	if c := ts.broker.counts(t, "orders"); c.Active != n || commands != 1 {
		t.Errorf("%d messages by %d commands, want %d by one", c.Active, commands, n)
	}
	rx := newReceiver(t, session, "orders")
	for i, m := range receive(t, rx, 3) {
		if got := string(m.GetData()); got != fmt.Sprint(i) {
			t.Errorf("message %d is %q", i, got)
		}
	}
	err := newSender(t, session, "limited").Send(testContext(t), batch(), nil)
	if !isCondition(err, goamqp.ErrCondResourceLimitExceeded) {
		t.Errorf("a batch for which there is no room: %v", err)
	}
	if c := ts.broker.counts(t, "limited"); c.Active != 0 {
		t.Errorf("%d messages of a refused batch are there", c.Active)
	}
}

// S-342: a batch costs memory in proportion to its bytes.
func TestABatchCostsWhatItsBytesCost(t *testing.T) {
	ts := startServer(t, 1)
	d := ts.broker.queue("orders")
	cost := func(payload []byte) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		in := &inbound{format: amqp.FormatBatch, payload: payload}
		if bad := translateInbound(in, d, &messageIDs{s: ts.Server, of: 1}); bad != nil {
			t.Fatal(bad)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / float64(len(payload))
	}
	few, many := cost(tinyBatch(1_000)), cost(tinyBatch(50_000))
	if many > 1.2*few {
		t.Errorf("a byte of a batch of 50,000 messages costs %.1f bytes, of one of 1,000 %.1f", many, few)
	}
	// A message of one byte has 11 in the batch, and gets an id. Its stored form has about 100 bytes, the fields
	// of fsm.Message have 128.
	if many > 45 {
		t.Errorf("a byte of a batch of the smallest messages costs %.1f bytes", many)
	}
}

// S-342, RUL-32: where a message may have more than a batch, the link says how many bytes a batch may have.
func TestALinkTellsHowLargeABatchMayBe(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		b.broker.queue("large", func(d *fsm.Descriptor) { d.MaxMessageBytes = 4 << 20 })
		c := b.client()
		c.authenticate()
		if a := c.attach(0, senderTo(2, "orders")); len(a.Properties) > 0 || a.MaxMessageSize.Value != 1<<20 {
			t.Errorf("a link to an entity of ordinary messages: %+v", a)
		}
		expect[*amqp.Flow](c)
		a := c.attach(0, senderTo(3, "large"))
		v, _ := a.Properties.Get("com.microsoft:max-message-batch-size")
		if want := amqp.AppendLong(nil, 1<<20); string(v) != string(want) || a.MaxMessageSize.Value != 4<<20 {
			t.Errorf("max-message-batch-size is %x, max-message-size %d", []byte(v), a.MaxMessageSize.Value)
		}
		expect[*amqp.Flow](c)
		send := func(id, format uint32, body int) amqp.DeliveryState {
			t.Helper()
			payload := amqp.AppendData(nil, []byte(strings.Repeat("x", body)))
			if format == amqp.FormatBatch {
				payload = append(amqp.AppendData(nil, payload), amqp.AppendData(nil, amqp.AppendData(nil, nil))...)
			}
			for first := true; len(payload) > 0; first = false {
				n := min(len(payload), 60_000)
				tr := transferOf(3, id)
				if tr.MessageFormat = amqp.Some(format); !first {
					tr.DeliveryID = amqp.Opt[uint32]{}
				}
				tr.More = n < len(payload)
				c.send(0, tr, payload[:n])
				payload = payload[n:]
			}
			for {
				if d, ok := c.must().(*amqp.Disposition); ok {
					return d.State
				}
			}
		}
		if got := send(10, amqp.FormatBatch, 1<<20-100); got != (amqp.Accepted{}) {
			t.Errorf("a batch within the limit: %+v", got)
		}
		if got, ok := send(11, amqp.FormatBatch, 1<<20+100).(amqp.Rejected); !ok ||
			got.Error.Condition != amqp.ConditionMessageSizeExceeded {
			t.Errorf("a batch beyond the limit: %+v", got)
		}
		if got := send(12, amqp.FormatAMQP, 2<<20); got != (amqp.Accepted{}) {
			t.Errorf("a message of that size: %+v", got)
		}
		if n := b.broker.counts(t, "large").Active; n != 3 {
			t.Errorf("%d messages, want 3", n)
		}
		c.close()
	})
}

// must is the next frame, which must come.
func (c *rawClient) must() amqp.Performative {
	c.t.Helper()
	p, _ := c.next()
	if p == nil {
		c.t.Fatal("the connection ended")
	}
	return p
}

// S-342: in schedule-message the number has no limit either, and the bytes have the same.
func TestScheduledMessagesHaveNoLimitOfNumber(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("large", func(d *fsm.Descriptor) { d.MaxMessageBytes = 4 << 20 })
		c := b.client()
		c.authenticate()
		a := c.asker("large", 2, 10)
		schedule := func(n, bytes int) {
			t.Helper()
			var list amqp.List
			for range n {
				list = append(list, amqp.Map{{Key: "message", Value: amqp.AppendData(nil, make([]byte, bytes))}})
			}
			payload := requestOf(t, "large", "schedule-message", amqp.Map{{Key: "messages", Value: list}})
			for first := true; len(payload) > 0; first = false {
				n := min(len(payload), 60_000)
				tr := transferOf(2, 100+a.sent)
				if tr.Settled, tr.More = amqp.Some(true), n < len(payload); !first {
					tr.DeliveryID = amqp.Opt[uint32]{}
				}
				c.send(0, tr, payload[:n])
				payload = payload[n:]
			}
			a.sent++
			for a.settled < a.sent {
				a.take()
			}
		}
		schedule(6_000, 1)
		if n := b.broker.counts(t, "large").Active; n != 6_000 || a.codes[codeOK] != 1 {
			t.Errorf("%d messages, answers %v", n, a.codes)
		}
		schedule(2, 600_000)
		if n := b.broker.counts(t, "large").Active; n != 6_000 || a.codes[403] != 1 {
			t.Errorf("%d messages, answers %v", n, a.codes)
		}
		schedule(1, 1_200_000)
		if n := b.broker.counts(t, "large").Active; n != 6_001 || a.codes[codeOK] != 2 {
			t.Errorf("%d messages, answers %v", n, a.codes)
		}
		c.close()
	})
}
