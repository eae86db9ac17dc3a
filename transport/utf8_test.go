package transport

import (
	"bytes"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// The encoder writes no text that is not UTF-8, so a frame is written with placeholder in it, whose bytes are exchanged.
const placeholder = "%no%"

// noText are four bytes that are no UTF-8, each for another reason.
var noText = []string{"\xff\xfeab", "a\xc0\x80b", "\xed\xa0\x80a", "ab\xe2\x82"}

// odd sends a frame in which the placeholder is other bytes.
func (c *rawClient) odd(text string, p amqp.Performative, payload ...[]byte) {
	c.t.Helper()
	var b []byte
	if tr, ok := p.(*amqp.Transfer); ok {
		b = amqp.AppendTransfer(nil, 0, tr, payload...)
	} else {
		b = amqp.AppendFrame(nil, 0, p)
	}
	if !bytes.Contains(b, []byte(placeholder)) {
		c.t.Fatal("the frame has no placeholder")
	}
	c.write(bytes.ReplaceAll(b, []byte(placeholder), []byte(text)))
}

// AMQP 1.0 §1.6.20: strings are UTF-8. What is not is refused wherever it stands, nothing of it is stored, and nothing is put in its
// place: two session ids never become one. A body is kept as it came.
func TestTextThatIsNoUTF8IsRefused(t *testing.T) {
	const decode, rejected = "close amqp:decode-error", "reject com.microsoft:argument-error"
	symbols := func(name amqp.Symbol, v amqp.Raw) amqp.Raw {
		w := amqp.BeginSymbolMap(nil)
		w.Raw(string(name), v)
		return w.End()
	}
	text := amqp.Raw(amqp.AppendString(nil, placeholder))
	attach := func(edit func(*amqp.Attach)) amqp.Performative {
		a := receiverOf(9, "sessions")
		edit(a)
		return a
	}
	message := func(edit func(*amqp.Properties)) []byte {
		p := &amqp.Properties{GroupID: []byte("s")}
		edit(p)
		return append(amqp.AppendProperties(nil, p), amqp.AppendData(nil, []byte("x"))...)
	}
	section := func(code amqp.Code, key string, v amqp.Raw) []byte {
		w := amqp.BeginMapSection(nil, code)
		w.Raw(key, v)
		return append(w.End(), message(func(*amqp.Properties) {})...)
	}
	for name, tc := range map[string]struct {
		frame   amqp.Performative // nil: a message
		payload []byte
		want    string
	}{
		"the name of a link":               {attach(func(a *amqp.Attach) { a.Name = placeholder }), nil, decode},
		"the address of a source":          {attach(func(a *amqp.Attach) { a.Source.Address = amqp.Some(placeholder) }), nil, decode},
		"the address of a target":          {attach(func(a *amqp.Attach) { a.Target = &amqp.Target{Address: amqp.Some(placeholder)} }), nil, decode},
		"the session that is asked for":    {attach(func(a *amqp.Attach) { a.Source.Filter = symbols(amqp.FilterSession, text) }), nil, decode},
		"the session that is shared":       {attach(func(a *amqp.Attach) { a.Source.Filter = symbols(amqp.FilterShared, text) }), nil, decode},
		"a property of a link":             {attach(func(a *amqp.Attach) { a.Properties = symbols("client", text) }), nil, decode},
		"the name of a property of a link": {attach(func(a *amqp.Attach) { a.Properties = symbols(placeholder, amqp.AppendNull(nil)) }), nil, decode},

		"the session id":            {nil, message(func(p *amqp.Properties) { p.GroupID = []byte(placeholder) }), rejected},
		"the message id":            {nil, message(func(p *amqp.Properties) { p.MessageID = text }), rejected},
		"the correlation id":        {nil, message(func(p *amqp.Properties) { p.CorrelationID = text }), rejected},
		"to":                        {nil, message(func(p *amqp.Properties) { p.To = []byte(placeholder) }), rejected},
		"the subject":               {nil, message(func(p *amqp.Properties) { p.Subject = []byte(placeholder) }), rejected},
		"reply-to":                  {nil, message(func(p *amqp.Properties) { p.ReplyTo = []byte(placeholder) }), rejected},
		"the session to reply to":   {nil, message(func(p *amqp.Properties) { p.ReplyToGroupID = []byte(placeholder) }), rejected},
		"the content type":          {nil, message(func(p *amqp.Properties) { p.ContentType = []byte(placeholder) }), rejected},
		"the partition key":         {nil, section(amqp.CodeMessageAnnotations, annPartitionKey, text), rejected},
		"the name of an annotation": {nil, section(amqp.CodeMessageAnnotations, placeholder, amqp.AppendNull(nil)), rejected},
		"an application property":   {nil, section(amqp.CodeApplicationProperties, "k", text), rejected},
		"the name of a property":    {nil, section(amqp.CodeApplicationProperties, placeholder, amqp.AppendNull(nil)), rejected},
	} {
		t.Run(name, func(t *testing.T) {
			for _, bad := range noText {
				inBubble(t, func(b *bubble) {
					b.broker.queue("sessions", func(d *fsm.Descriptor) { d.RequiresSession = true })
					c := b.client()
					c.authenticate()
					c.attach(0, senderTo(2, "sessions"))
					expect[*amqp.Flow](c)
					if tc.frame != nil {
						c.odd(bad, tc.frame)
					} else {
						c.odd(bad, transferOf(2, 1), tc.payload)
					}
					if got := c.outcome(); got != tc.want {
						t.Errorf("%q: %s, want %s", bad, got, tc.want)
					}
					if got := b.broker.counts(t, "sessions").Active; got != 0 {
						t.Errorf("%q: %d messages are stored", bad, got)
					}
					c.close()
				})
			}
		})
	}
}

// A request to a management node that has text that is no UTF-8 is refused, and so is a token.
func TestRequestsThatAreNoUTF8AreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		handle    uint32
		operation string
		body      any
	}{
		"the session of a request": {4, "com.microsoft:peek-message", amqp.Map{{Key: "session-id", Value: placeholder}, {Key: "message-count", Value: int32(1)}}},
		"a token":                  {0, "put-token", placeholder},
	} {
		t.Run(name, func(t *testing.T) {
			for _, bad := range noText {
				inBubble(t, func(b *bubble) {
					b.broker.queue("orders")
					c := b.client()
					c.reach(atLinks)
					out := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "m"), ReplyTo: []byte(map[uint32]string{0: "reply", 4: "mgmt"}[tc.handle])})
					w := amqp.BeginMapSection(out, amqp.CodeApplicationProperties)
					w.String("operation", tc.operation)
					w.String("name", "amqp://localhost/orders")
					out, err := amqp.AppendValueBody(w.End(), tc.body)
					if err != nil {
						t.Fatal(err)
					}
					c.odd(bad, transferOf(tc.handle, 1), out)
					if got := c.outcome(); got != "status 400" {
						t.Errorf("%q: %s, want status 400", bad, got)
					}
					c.close()
				})
			}
		})
	}
}
