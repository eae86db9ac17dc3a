package transport

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// openAs does the handshake with an open of the test's own and an anonymous client.
func (c *rawClient) openAs(edit func(*amqp.Open)) *amqp.Open {
	c.t.Helper()
	c.header(amqp.ProtocolSASL)
	expect[*amqp.SASLMechanisms](c)
	c.send(0, &amqp.SASLInit{Mechanism: "ANONYMOUS"})
	expect[*amqp.SASLOutcome](c)
	c.header(amqp.ProtocolAMQP)
	o := &amqp.Open{ContainerID: "client", Hostname: amqp.Some("localhost")}
	edit(o)
	c.send(0, o)
	got, _ := expect[*amqp.Open](c)
	return got
}

// B6, RUL-26: one link to $cbs in each direction of a connection, while it is open.
func TestASecondTokenLinkIsRefused(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.client()
		defer c.close()
		c.authenticate() // handles 0 and 1
		c.begin(1)
		for _, a := range []*amqp.Attach{senderTo(7, "$cbs"), receiverOf(8, "$CBS")} {
			if got := c.attach(1, a); got.Source != nil && got.Target != nil {
				t.Errorf("a second link was attached: %+v", got)
			}
			if d, _ := expect[*amqp.Detach](c); d.Error == nil || d.Error.Condition != amqp.ConditionNotAllowed {
				t.Errorf("%+v", d.Error)
			}
			c.send(1, &amqp.Detach{Handle: a.Handle, Closed: true})
		}
		for handle := range uint32(2) {
			c.send(0, &amqp.Detach{Handle: handle, Closed: true})
			expect[*amqp.Detach](c)
		}
		if got := c.attach(1, senderTo(9, "$cbs")); got.Target == nil {
			t.Error("no link although the first one is gone")
		}
		expect[*amqp.Flow](c)
		if got := c.attach(1, receiverOf(10, "$cbs")); got.Source == nil {
			t.Error("no link although the first one is gone")
		}
	})
}

// L1: no number goes out that is above what the client takes.
func TestTheClientsHandleMaxAndChannelMaxBindUs(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.client()
		defer c.close()
		c.openAs(func(o *amqp.Open) { o.ChannelMax = amqp.Some(uint16(3)) })
		c.send(3, &amqp.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: amqp.Some(uint32(1))})
		expect[*amqp.Begin](c)
		if got := c.attach(3, senderTo(1, "$cbs")); got.Handle != 1 {
			t.Errorf("handle %d", got.Handle)
		}
		expect[*amqp.Flow](c)
		c.send(3, receiverOf(2, "$cbs"))
		if e, _ := expect[*amqp.End](c); e.Error == nil || e.Error.Condition != amqp.ConditionNotAllowed ||
			!strings.Contains(e.Error.Description, "handle-max 1") {
			t.Errorf("%+v", e.Error)
		}
		c.send(4, &amqp.Begin{IncomingWindow: 10, OutgoingWindow: 10})
		if e, _ := expect[*amqp.Close](c); e.Error == nil || e.Error.Condition != amqp.ConditionNotAllowed ||
			!strings.Contains(e.Error.Description, "channel-max 3") {
			t.Errorf("%+v", e.Error)
		}
	})
}

// L4: a begin right behind an end, with frames of the new session behind it, is served behind our end.
func TestABeginMayFollowAnEndAtOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		defer c.close()
		c.reach(atLinks)
		c.send(0, credit(3, 0, 5, false)) // a link that has something to call off, so that our end takes its time
		c.hold = true
		c.send(0, &amqp.End{})
		c.send(0, &amqp.Begin{IncomingWindow: 100, OutgoingWindow: 100})
		c.send(0, senderTo(7, "orders"))
		c.hold = false
		c.send(0, transferOf(7, 0), amqp.AppendData(nil, []byte("x")))
		expect[*amqp.End](c)
		expect[*amqp.Begin](c)
		if a, _ := expect[*amqp.Attach](c); a.Handle != 7 {
			t.Errorf("handle %d", a.Handle)
		}
		expect[*amqp.Flow](c)
		if d, _ := expect[*amqp.Disposition](c); d.State != (amqp.Accepted{}) {
			t.Errorf("%+v", d.State)
		}
	})
}

// L5: with the least frame size, no answer is larger, however long the names are.
func TestNoFrameIsLargerThanTheClientTakes(t *testing.T) {
	long := strings.Repeat("n", 300)
	named := func(a *amqp.Attach, size int) *amqp.Attach { a.Name = strings.Repeat("l", size); return a }
	filtered := func(id string) *amqp.Attach {
		a := receiverOf(9, "grouped")
		w := amqp.BeginSymbolMap(nil)
		w.String(string(amqp.FilterSession), id)
		a.Source.Filter = w.End()
		return a
	}
	for name, c := range map[string]struct {
		do   func(c *rawClient)
		want string
	}{
		"a missing entity":                 {sends(0, senderTo(9, long)), "detach amqp:not-found"},
		"a missing entity to receive from": {sends(0, receiverOf(9, long)), "detach amqp:not-found"},
		"a refused sender":                 {sends(0, senderTo(9, "orders"+"/$DeadLetterQueue")), "detach amqp:not-allowed"},
		"a long link name":                 {sends(0, named(senderTo(9, long), 500)), "end amqp:frame-size-too-small"},
		"a link name of 5,000":             {sends(0, named(receiverOf(9, "orders"), 5_000)), "end amqp:frame-size-too-small"},
		"a session that is not there":      {sends(0, filtered(strings.Repeat("s", 128))), "attach"},
		"a session with a long link name":  {sends(0, named(filtered(strings.Repeat("s", 128)), 300)), "detach amqp:frame-size-too-small"},
		"an unknown session field":         {sends(0, &amqp.Attach{Name: "x", Handle: 9, Role: amqp.RoleSender}), "detach amqp:invalid-field"},
		"a message of a bad batch":         {func(c *rawClient) { c.send(0, transferOf(2, 1), []byte(long)) }, "reject com.microsoft:argument-error"},
		"a message that is too large": {func(c *rawClient) {
			for i := range 2 {
				tr := transferOf(2, 1)
				tr.More = i == 0
				c.send(0, tr, make([]byte, hostileMessageBytes*3/4))
			}
		}, "reject amqp:link:message-size-exceeded"},
		"a disposition of a lock that is over": {func(c *rawClient) {
			c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: 900, State: amqp.Accepted{}})
			c.send(0, transferOf(77, 1))
		}, "end amqp:session:unattached-handle"},
		"a frame of nonsense": {frameOf(0, append([]byte{0x00, 0x53, 0x14}, long...)...), "close amqp:decode-error"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxMessageBytes = hostileMessageBytes })
				b.broker.queue("grouped", withSessions)
				raw := b.client()
				defer raw.close()
				raw.openAs(func(o *amqp.Open) { o.MaxFrameSize = amqp.Some(uint32(512)) })
				raw.begin(0)
				raw.attachPair(0, 0, "$cbs", "reply")
				(&scene{t: t, b: b, c: raw}).putToken(testPolicy)
				raw.attach(0, senderTo(2, "orders"))
				expect[*amqp.Flow](raw)
				raw.largest = 0
				c.do(raw)
				got := "attach"
				if c.want != "attach" {
					got = raw.outcome()
				} else if a, _ := expect[*amqp.Attach](raw); a.Source == nil {
					got = "no attach"
				}
				if got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				if raw.largest > 512 || raw.largest < 20 {
					t.Errorf("a frame of %d bytes", raw.largest)
				}
			})
		})
	}
}

// L6: an idle-time-out that cannot be kept is refused with a clear word (AMQP 1.0 §2.4.5).
func TestAnIdleTimeOutThatCannotBeKeptIsRefused(t *testing.T) {
	for idle, refused := range map[uint32]bool{1: true, 200: true, 499: true, 500: false, 0: false} {
		t.Run(fmt.Sprint(idle), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c := b.client()
				defer c.close()
				c.openAs(func(o *amqp.Open) { o.IdleTimeOut = amqp.Some(idle) })
				if !refused {
					c.begin(0)
					return
				}
				cl, _ := expect[*amqp.Close](c)
				if cl.Error == nil || cl.Error.Condition != amqp.ConditionInvalidField || !strings.Contains(cl.Error.Description, "500 ms or more") {
					t.Errorf("%+v", cl.Error)
				}
			})
		})
	}
}

// L7: behind a framing error the socket goes as soon as the client has nothing more to say, and after
// CloseTimeout if it goes on.
func TestAFramingErrorEndsWithTheClient(t *testing.T) {
	for name, c := range map[string]struct {
		hangUp bool
		within time.Duration
	}{
		"a client that hangs up": {true, 100 * time.Millisecond},
		"a client that stays":    {false, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				raw := b.client()
				raw.reach(atOpen)
				raw.write([]byte{0, 0, 0, 3, 2, 0, 0, 0})
				if cl, _ := expect[*amqp.Close](raw); cl.Error == nil || cl.Error.Condition != amqp.ConditionFramingError {
					t.Errorf("%+v", cl.Error)
				}
				began := time.Now() // virtual
				if c.hangUp {
					raw.conn.Close()
				} else {
					raw.write([]byte("more"))
				}
				for b.server.stats.Connections.Load() > 0 {
					time.Sleep(10 * time.Millisecond)
				}
				took := time.Since(began)
				if took > c.within || !c.hangUp && took < b.server.cfg.CloseTimeout/2 {
					t.Errorf("the connection was held for %v", took)
				}
				raw.close()
			})
		})
	}
}

// L8: what was sent before the attach was answered, and is dropped by a detach, is not dropped in silence.
func TestADetachBeforeTheAttachTellsOfWhatIsLost(t *testing.T) {
	for _, sent := range []bool{true, false} {
		t.Run(fmt.Sprintf("messages sent: %t", sent), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("orders")
				c := b.client()
				defer c.close()
				c.authenticate()
				c.hold = true
				c.send(0, senderTo(7, "orders"))
				if sent {
					tr := transferOf(7, 0)
					tr.Settled = amqp.Some(true)
					c.send(0, tr, amqp.AppendData(nil, []byte("x")))
				}
				c.hold = false
				c.send(0, &amqp.Detach{Handle: 7, Closed: true})
				if a, _ := expect[*amqp.Attach](c); a.Target != nil {
					t.Errorf("%+v", a)
				}
				d, _ := expect[*amqp.Detach](c)
				if sent != (d.Error != nil && d.Error.Condition == amqp.ConditionTransferLimitExceeded) || !sent && d.Error != nil {
					t.Errorf("%+v", d.Error)
				}
				if n := b.broker.counts(t, "orders").Active; n != 0 {
					t.Errorf("%d are stored", n)
				}
			})
		})
	}
}

// E9, RUL-13: the text of an entity that is not there names the host that the client used.
func TestAMissingEntityIsNamedAsTheClientCallsIt(t *testing.T) {
	for hostname, want := range map[string]string{
		"shop.example.net": "sb://shop.example.net/nothing'", "amqps://shop:5671": "sb://shop/nothing'",
		"": "sb://configured/nothing'",
	} {
		t.Run(hostname, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c := b.client()
				defer c.close()
				c.openAs(func(o *amqp.Open) { o.Hostname = amqp.Some(hostname) })
				c.begin(0)
				c.attachPair(0, 0, "$cbs", "reply")
				s := &scene{t: t, b: b, c: c, nodes: map[string]uint32{"nothing": 4}}
				s.putToken(testPolicy)
				c.send(0, senderTo(7, "nothing"))
				expect[*amqp.Attach](c)
				d, _ := expect[*amqp.Detach](c)
				if d.Error == nil || !strings.Contains(d.Error.Description, want) {
					t.Errorf("%+v, want %s", d.Error, want)
				}
			}, func(c *Config) { c.Namespace = "configured" })
		})
	}
}

// E3, RUL-33, T-265: a session id and another partition key exclude each other on partitioned entities, if
// neither is empty; elsewhere both are kept.
func TestASessionIDBesideAnotherPartitionKey(t *testing.T) {
	plain := &fsm.Descriptor{Kind: fsm.Queue}
	spread := &fsm.Descriptor{Kind: fsm.Queue, Partitioned: true}
	for name, c := range map[string]struct {
		d          *fsm.Descriptor
		session    string
		key, share string
		refused    bool
	}{
		"plain":                         {d: plain, session: "s", key: "k", share: "s"},
		"partitioned":                   {d: spread, session: "s", key: "k", refused: true},
		"partitioned, equal":            {d: spread, session: "k", key: "k", share: "k"},
		"partitioned, an empty session": {d: spread, session: "", key: "k", share: ""},
		"plain, an empty session":       {d: plain, session: "", key: "k", share: ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := amqp.BeginMapSection(nil, amqp.CodeMessageAnnotations)
			w.String(annPartitionKey, c.key)
			payload := append(w.End(), encoded("x", func(p *amqp.Properties) { p.GroupID = []byte(c.session) })...)
			m, share, byText, refusal := translateMessage(payload, c.d, noID)
			if c.refused {
				if refusal == nil || refusal.Condition != amqp.ConditionNotAllowed {
					t.Errorf("%+v", refusal)
				}
				return
			}
			if refusal != nil || m.SessionID != c.session || !m.HasSession || m.PartitionKey != c.key || share != c.share || !byText {
				t.Errorf("%+v, share by %q, %+v", m, share, refusal)
			}
		})
	}
}

// E10: a peek without bodies tells their sizes; one with bodies has the annotations and no size.
func TestAPeekMayLeaveBodiesOut(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := newScene(t, b)
		defer s.c.close()
		for _, omit := range []any{true, false, nil} {
			code, answer, text := s.ask("orders", "peek-message", mapOf("message-count", int32(1), "omit-message-body", omit))
			if code != 200 {
				t.Fatalf("%d %s", code, text)
			}
			list, _ := answer.Get("messages")
			raw, _ := list.(amqp.List)[0].(amqp.Map).Get("message")
			m := sections(t, raw.([]byte))
			a := mapIn(t, m.DeliveryAnnotations)
			size := a["amqp.Symbol omitted-message-body-size"]
			want := fmt.Sprintf("int64 %d", len(amqp.AppendData(nil, []byte("active"))))
			if omit != true {
				want = ""
			}
			if size != want || (m.Body == nil) != (omit == true) || m.DeliveryAnnotations == nil || m.Properties == nil || m.Header == nil {
				t.Errorf("omit %v: size %q, want %q, body %x, annotations %x", omit, size, want, m.Body, m.DeliveryAnnotations)
			}
		}
		if code, _, _ := s.ask("orders", "peek-message", mapOf("message-count", int32(1), "omit-message-body", "yes")); code != 400 {
			t.Errorf("a text for a boolean: %d", code)
		}
	})
}

// RUL-25: a receiver of the Python SDK names 1 MiB whatever its queue holds, and takes what is larger.
func TestAPythonReceiverTakesLargeMessages(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxMessageBytes = 4 << 20 })
		c := b.client()
		defer c.close()
		c.authenticate()
		c.attach(0, senderTo(2, "orders"))
		expect[*amqp.Flow](c)
		body := amqp.AppendData(nil, make([]byte, 2<<20))
		for first := true; first || len(body) > 0; first = false {
			n := min(len(body), 60<<10)
			p := transferOf(2, 0)
			p.More = n < len(body)
			c.send(0, p, body[:n])
			body = body[n:]
		}
		expect[*amqp.Disposition](c)
		python := receiverOf(3, "orders")
		python.MaxMessageSize = amqp.Some(uint64(1 << 20))
		c.attach(0, python)
		c.send(0, credit(3, 0, 1, false))
		for got := 0; got < 2<<20; {
			p, payload := expect[*amqp.Transfer](c)
			if got += len(payload); !p.More && got < 2<<20 {
				t.Fatalf("the message ends after %d bytes", got)
			}
		}
	})
}

// L3: a receiver that takes no message of a size gets none; its link ends, and the message is there for
// others, first and uncounted.
func TestAReceiversMaxMessageSizeIsKept(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		defer c.close()
		c.authenticate()
		c.attach(0, senderTo(2, "orders"))
		expect[*amqp.Flow](c)
		for i, size := range []int{10, 5_000, 20} {
			c.send(0, transferOf(2, uint32(i)), amqp.AppendData(nil, make([]byte, size)))
			expect[*amqp.Disposition](c)
		}
		small := receiverOf(3, "orders")
		small.MaxMessageSize = amqp.Some(uint64(1_000))
		c.attach(0, small)
		c.send(0, credit(3, 0, 10, false))
		first, _ := expect[*amqp.Transfer](c)
		d, _ := expect[*amqp.Detach](c)
		if d.Handle != 3 || d.Error == nil || d.Error.Condition != amqp.ConditionMessageSizeExceeded {
			t.Errorf("%+v", d.Error)
		}
		c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: first.DeliveryID.Value, State: amqp.Accepted{}})
		expect[*amqp.Disposition](c)
		c.attach(0, receiverOf(4, "orders"))
		c.send(0, credit(4, 0, 10, false))
		for _, size := range []int{5_000, 20} {
			_, payload := expect[*amqp.Transfer](c)
			s := sections(t, payload)
			h, err := s.ParseHeader()
			if data, _ := amqp.SectionValue(s.Body).Binary(); err != nil || h.DeliveryCount != 0 || len(data) != size {
				t.Errorf("%d bytes, count %d, %v, want %d bytes", len(data), h.DeliveryCount, err, size)
			}
		}
	})
}
