package transport

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// dressed is a message with everything that a client can write around its body; the keys of its maps are
// strings, as the Java SDK writes them, and the footer stands ahead of the body, as rhea writes it.
func dressed(t *testing.T, edit ...func(*amqp.Properties)) []byte {
	t.Helper()
	section := func(dst []byte, code amqp.Code, pairs ...any) []byte {
		m, err := amqp.AppendValue(nil, mapOf(pairs...))
		if err != nil {
			t.Fatal(err)
		}
		return append(append(dst, 0x00, 0x53, byte(code)), m...)
	}
	out := amqp.AppendHeader(nil, amqp.Header{Durable: true, FirstAcquirer: true})
	out = section(out, amqp.CodeDeliveryAnnotations, "x-opt-lock-token", amqp.UUID{1}, "delivery", "d", amqp.Symbol("symbol"), int32(1))
	out = section(out, amqp.CodeMessageAnnotations, "message", "m", "x-opt-message-state", nil,
		"x-opt-enqueue-sequence-number", nil, "x-opt-scheduled-enqueue-time", nil, "x-opt-deadletter-source", "elsewhere")
	p := &amqp.Properties{MessageID: amqp.AppendString(nil, "id")}
	for _, f := range edit {
		f(p)
	}
	out = amqp.AppendProperties(out, p)
	out = section(out, amqp.CodeApplicationProperties, "property", "p")
	out = section(out, amqp.CodeFooter, "footer", "f", "ключ", "k")
	return amqp.AppendData(out, []byte("body"))
}

// mapIn reads the map of a section, keys and values as text with their types.
func mapIn(t *testing.T, section []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	if section == nil {
		return out
	}
	v, err := amqp.SectionValue(section).Value()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range v.(amqp.Map) {
		out[fmt.Sprintf("%T %v", p.Key, p.Key)] = fmt.Sprintf("%T %v", p.Value, p.Value)
	}
	return out
}

func sections(t *testing.T, payload []byte) amqp.Sections {
	t.Helper()
	s, err := amqp.ParseMessage(payload)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// B2, J3, E1, L10, RUL-27: what stands around the body comes back, with symbols for keys. A delivery
// that is locked carries its token; annotations that are the broker's are not taken from a client.
func TestWhatStandsAroundABodyComesBack(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch %t", batch), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("orders")
				c := b.client()
				defer c.close()
				c.authenticate()
				c.attach(0, senderTo(2, "orders"))
				expect[*amqp.Flow](c)
				tr, payload := transferOf(2, 1), dressed(t)
				if batch {
					tr.MessageFormat, payload = amqp.Some(amqp.FormatBatch), amqp.AppendData(nil, payload)
				}
				c.send(0, tr, payload)
				if d, _ := expect[*amqp.Disposition](c); d.State != (amqp.Accepted{}) {
					t.Fatalf("%+v", d.State)
				}
				c.attach(0, receiverOf(3, "orders"))
				c.send(0, credit(3, 0, 1, false))
				got, payload := expect[*amqp.Transfer](c)
				s := sections(t, payload)
				token, _ := amqp.TokenFromTag(got.DeliveryTag)
				want := map[string]string{
					"amqp.Symbol x-opt-lock-token": fmt.Sprintf("amqp.UUID %v", token),
					"amqp.Symbol delivery":         "string d", "amqp.Symbol symbol": "int32 1",
				}
				if m := mapIn(t, s.DeliveryAnnotations); fmt.Sprint(m) != fmt.Sprint(want) {
					t.Errorf("delivery annotations %v, want %v", m, want)
				}
				m := mapIn(t, s.MessageAnnotations)
				for _, key := range []string{annEnqueuedTime, annSequenceNumber, annLockedUntil, "message"} {
					if m["amqp.Symbol "+key] == "" {
						t.Errorf("%s is missing", key)
					}
				}
				if len(m) != 4 {
					t.Errorf("message annotations %v, want 4", m)
				}
				if m := mapIn(t, s.Footer); fmt.Sprint(m) != "map[amqp.Symbol footer:string f string ключ:string k]" {
					t.Errorf("footer %v", m)
				}
				if h, err := s.ParseHeader(); err != nil || !h.FirstAcquirer || !h.Durable {
					t.Errorf("header %+v, %v", h, err)
				}
				if !bytes.Equal(s.Body, amqp.AppendData(nil, []byte("body"))) {
					t.Errorf("body %x", s.Body)
				}
			})
		})
	}
}

// E4, RUL-27: the state is told by a peek, and by a delivery where it is not the usual one; the number of
// the first entity where a message has come from another one, also if the two are equal.
func TestStateAndFirstNumberAreToldWhereTheyMean(t *testing.T) {
	m, _, _, refusal := translateMessage(dressed(t), &fsm.Descriptor{Kind: fsm.Queue}, noID)
	if refusal != nil {
		t.Fatal(refusal)
	}
	for name, c := range map[string]struct {
		d      fsm.Delivery
		peeked bool
		state  string
		first  string
		token  bool
	}{
		"a delivery":                      {d: fsm.Delivery{Token: fsm.LockToken{1}}, token: true},
		"receive and delete":              {},
		"a deferred message":              {d: fsm.Delivery{State: fsm.StateDeferred, Token: fsm.LockToken{1}}, state: "int32 1", token: true},
		"one that was scheduled":          {d: fsm.Delivery{ScheduledAt: 5, Token: fsm.LockToken{1}}, state: "int32 2", token: true},
		"a peek":                          {peeked: true, state: "int32 0"},
		"a peek at a deferred message":    {d: fsm.Delivery{State: fsm.StateDeferred}, peeked: true, state: "int32 1"},
		"a peek at a scheduled message":   {d: fsm.Delivery{State: fsm.StateScheduled, ScheduledAt: 5}, peeked: true, state: "int32 2"},
		"a peek at one that is activated": {d: fsm.Delivery{ScheduledAt: 5}, peeked: true, state: "int32 0"},
		"one that was forwarded":          {d: fsm.Delivery{EnqueuedSeq: 9}, first: "int64 9"},
		"one of equal number":             {d: fsm.Delivery{EnqueuedSeq: 3}, first: "int64 3"},
	} {
		t.Run(name, func(t *testing.T) {
			c.d.Seq, c.d.EnqueuedAt, c.d.Body = 3, 7, m.Body
			out, err := appendDelivery(nil, &c.d, c.peeked)
			if err != nil {
				t.Fatal(err)
			}
			s := sections(t, out)
			a := mapIn(t, s.MessageAnnotations)
			if got := a["amqp.Symbol "+annState]; got != c.state {
				t.Errorf("state %q, want %q", got, c.state)
			}
			if got := a["amqp.Symbol "+annEnqueuedNumber]; got != c.first {
				t.Errorf("first number %q, want %q", got, c.first)
			}
			d := mapIn(t, s.DeliveryAnnotations)
			if d["amqp.Symbol delivery"] != "string d" || (d["amqp.Symbol "+annLockToken] != "") != c.token {
				t.Errorf("delivery annotations %v, a token wanted: %t", d, c.token)
			}
		})
	}
}

// E4: through the broker, with a message that is due in ten seconds and one that has no such time.
func TestAScheduledMessageSaysSoWhenItComes(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		defer c.close()
		c.authenticate()
		c.attach(0, senderTo(2, "orders"))
		expect[*amqp.Flow](c)
		w := amqp.BeginMapSection(nil, amqp.CodeMessageAnnotations)
		w.Timestamp(annScheduledTime, amqp.Timestamp(time.Now().Add(10*time.Second).UnixMilli()))
		for i, payload := range [][]byte{amqp.AppendData(w.End(), []byte("later")), amqp.AppendData(nil, []byte("now"))} {
			c.send(0, transferOf(2, uint32(i)), payload)
			expect[*amqp.Disposition](c)
		}
		c.attach(0, receiverOf(3, "orders"))
		c.send(0, credit(3, 0, 2, false))
		for _, want := range []string{"", "int32 2"} {
			_, payload := expect[*amqp.Transfer](c) // the second one in virtual time
			a := mapIn(t, sections(t, payload).MessageAnnotations)
			if a["amqp.Symbol "+annState] != want || (a["amqp.Symbol "+annScheduledTime] == "") != (want == "") ||
				a["amqp.Symbol "+annEnqueuedNumber] != "" {
				t.Errorf("annotations %v, want state %q", a, want)
			}
		}
	})
}

// What was stored before delivery annotations were kept is delivered as ever.
func TestTheEarlierStoredFormIsRead(t *testing.T) {
	bare := append(amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "id")}), amqp.AppendData(nil, []byte("x"))...)
	w := amqp.BeginSymbolMap(nil)
	w.String("message", "m")
	annotations := w.End()
	body := append([]byte{1, byte(stored.Properties), byte(len(annotations))}, annotations...)
	out, err := appendDelivery(nil, &fsm.Delivery{Seq: 1, EnqueuedAt: 1, Body: append(body, bare...)}, false)
	if err != nil {
		t.Fatal(err)
	}
	s := sections(t, out)
	if s.DeliveryAnnotations != nil || mapIn(t, s.MessageAnnotations)["amqp.Symbol message"] != "string m" || !bytes.HasSuffix(out, bare) {
		t.Errorf("%+v", s)
	}
}

// The section that most deliveries carry is written as one copy; it is what the writer of maps makes.
func TestTheSectionOfALockTokenIsWellFormed(t *testing.T) {
	token := fsm.LockToken{1, 2, 3, 15: 9}
	w := amqp.BeginMapSection(nil, amqp.CodeDeliveryAnnotations)
	w.UUID(annLockToken, amqp.UUID(token))
	if want, got := w.End(), appendDeliveryAnnotations(nil, &fsm.Delivery{Token: token}, nil, false); !bytes.Equal(got, want) {
		t.Errorf("got  % x\nwant % x", got, want)
	}
}
