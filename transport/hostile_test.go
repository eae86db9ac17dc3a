package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// How far a hostile client has come before it does its thing.
type stage int

const (
	atSocket stage = iota // connected
	atSASL                // mechanisms have been offered
	atAMQP                // protocol headers exchanged, no SASL
	atOpen                // open, no token
	atToken               // a token for everything; channel 0, handles 0 and 1 are $cbs
	atLinks               // also: handle 2 sends to orders, 3 receives from it, 4 and 5 are its $management
)

// hostile is one thing that a client must not do, and what must come of it.
type hostile struct {
	name string
	at   stage
	do   func(c *rawClient)
	// want is "close C", "end C", "detach C", "reject C" with a condition C, "status N" of a
	// reply, "sasl N", "gone" for a socket that is closed without a frame, or "ignored".
	want string
}

func rawFrame(kind byte, channel uint16, body ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	b = append(b, 2, kind)
	b = binary.BigEndian.AppendUint16(b, channel)
	return append(b, body...)
}

func bytesOf(b ...byte) func(*rawClient) { return func(c *rawClient) { c.write(b) } }

func frameOf(channel uint16, body ...byte) func(*rawClient) {
	return func(c *rawClient) { c.write(rawFrame(0, channel, body...)) }
}

func sends(channel uint16, p amqp.Performative, payload ...[]byte) func(*rawClient) {
	return func(c *rawClient) { c.send(channel, p, payload...) }
}

// small is a limit that makes overruns cheap.
const hostileMessageBytes = 64 << 10

func hostileCases() []hostile {
	decode, framing := "close amqp:decode-error", "close amqp:connection:framing-error"
	list := func(fields ...byte) []byte { // list8 of null fields
		return append([]byte{0xc0, byte(len(fields) + 1), byte(len(fields))}, fields...)
	}
	perf := func(code byte, rest ...byte) []byte { return append([]byte{0x00, 0x53, code}, rest...) }
	nested := bytes.Repeat([]byte{0xc0, 0xff, 0x01}, 200)
	message := func(sections ...[]byte) []byte { return bytes.Join(sections, nil) }
	data := amqp.AppendData(nil, []byte("x"))
	text := func(t *amqp.Transfer, edit func(*amqp.Transfer)) *amqp.Transfer { edit(t); return t }
	return []hostile{
		// Before AMQP.
		{"random bytes", atSocket, bytesOf(0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0), "gone"},
		{"a TLS hello on a plain port", atSocket, bytesOf(0x16, 3, 1, 0, 0, 0, 0, 0), "gone"},
		{"AMQP 0-9-1", atSocket, bytesOf('A', 'M', 'Q', 'P', 0, 0, 9, 1), "gone"},
		{"AMQP with an unknown layer", atSocket, bytesOf('A', 'M', 'Q', 'P', 9, 1, 0, 0), "gone"},
		{"half a header, then silence", atSocket, bytesOf('A', 'M', 'Q', 'P', 3), "gone"},
		{"one byte, then silence", atSocket, bytesOf('A'), "gone"},
		{"silence", atSocket, func(*rawClient) {}, "gone"},
		{"an HTTP request line without end", atSocket, func(c *rawClient) {
			c.write(append([]byte("GET /"), bytes.Repeat([]byte("a"), 200_000)...))
		}, "gone"},
		{"an HTTP request with a NUL", atSocket, func(c *rawClient) { c.write([]byte("GET /\x00 HTTP/1.1\r\n\r\n")) }, "gone"},
		// SASL.
		{"EXTERNAL, which is not offered", atSASL, sends(0, &amqp.SASLInit{Mechanism: "EXTERNAL"}), "sasl 1"},
		{"an unknown mechanism", atSASL, sends(0, &amqp.SASLInit{Mechanism: "SCRAM-SHA-1"}), "sasl 1"},
		{"PLAIN without parts", atSASL, sends(0, &amqp.SASLInit{Mechanism: "PLAIN"}), "sasl 1"},
		{"PLAIN with too many parts", atSASL, sends(0, &amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00\x00\x00\x00")}), "sasl 1"},
		{"PLAIN with a wrong key", atSASL, sends(0, &amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00" + testPolicy + "\x00nope")}), "sasl 1"},
		{"sasl-response before init", atSASL, sends(0, &amqp.SASLResponse{Response: []byte("x")}), "gone"},
		{"an open instead of sasl-init", atSASL, sends(0, &amqp.Open{ContainerID: "c"}), "gone"},
		{"a SASL frame of 1 GiB", atSASL, bytesOf(0x40, 0, 0, 0, 2, 1, 0, 0), "gone"},
		{"a truncated sasl-init", atSASL, func(c *rawClient) { c.write(rawFrame(1, 0, 0x00, 0x53, 0x41, 0xc0, 0x20, 0x03)) }, "gone"},
		// Open.
		{"a begin before open", atAMQP, sends(0, &amqp.Begin{}), "close amqp:illegal-state"},
		{"a frame of 1 GiB before open", atAMQP, bytesOf(0x40, 0, 0, 0, 2, 0, 0, 0), "gone"},
		{"a frame of 5 KiB before open", atAMQP, func(c *rawClient) { c.write(rawFrame(0, 0, make([]byte, 5000)...)) }, "gone"},
		{"an open without a container", atAMQP, func(c *rawClient) { c.write(rawFrame(0, 0, perf(0x10, 0x45)...)) }, decode},
		{"an open with a tiny max-frame-size", atAMQP, sends(0, &amqp.Open{ContainerID: "c", MaxFrameSize: amqp.Some(uint32(100))}), "close amqp:invalid-field"},
		{"a SASL frame instead of open", atAMQP, sends(0, &amqp.SASLInit{Mechanism: "PLAIN"}), "gone"},
		{"a slow open", atAMQP, bytesOf(0, 0, 0, 40, 2), "gone"},
		// Frames.
		{"a second open", atOpen, sends(0, &amqp.Open{ContainerID: "c"}), "close amqp:illegal-state"},
		{"a SASL frame after open", atOpen, sends(0, &amqp.SASLInit{Mechanism: "PLAIN"}), framing},
		{"a frame of 1 GiB", atOpen, bytesOf(0x40, 0, 0, 0, 2, 0, 0, 0), framing},
		{"a frame shorter than its header", atOpen, bytesOf(0, 0, 0, 4, 2, 0, 0, 0), framing},
		{"a data offset of 1", atOpen, bytesOf(0, 0, 0, 8, 1, 0, 0, 0), framing},
		{"a data offset behind the frame", atOpen, bytesOf(0, 0, 0, 8, 9, 0, 0, 0), framing},
		{"frame type 7", atOpen, bytesOf(0, 0, 0, 8, 2, 7, 0, 0), framing},
		{"an unknown performative", atOpen, frameOf(0, perf(0x99, 0x45)...), decode},
		{"a performative that is no list", atOpen, frameOf(0, perf(0x11, 0xa1, 0x01, 'x')...), decode},
		{"a body that is not described", atOpen, frameOf(0, 0xa1, 0x01, 'x'), decode},
		{"a symbolic descriptor of nothing", atOpen, frameOf(0, 0x00, 0xa3, 0x03, 'a', 'b', 'c', 0x45), decode},
		{"a truncated begin", atOpen, frameOf(0, perf(0x11, 0xc0, 0x30, 0x08, 0x40)...), decode},
		{"a list that claims 2^32 fields", atOpen, frameOf(0, perf(0x11, 0xd0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40)...), decode},
		{"an array of 2^31 zero-width elements", atOpen, frameOf(0, perf(0x10, append([]byte{0xd0, 0, 0, 0, 23, 0, 0, 0, 6, 0xa1, 1, 'c', 0x40, 0x40, 0x40, 0x40, 0xf0, 0, 0, 0, 5, 0x7f, 0xff, 0xff, 0xff}, 0x40)...)...), decode},
		{"lists nested 200 deep", atOpen, frameOf(0, perf(0x10, append([]byte{0xd0, 0, 0, 0x02, 0x60, 0, 0, 0, 10}, nested...)...)...), decode},
		{"a performative of SASL after open", atOpen, frameOf(0, perf(0x41, 0x45)...), decode},
		{"bytes behind a begin", atOpen, func(c *rawClient) {
			b := amqp.AppendFrame(nil, 0, &amqp.Begin{})
			b = append(b, 1, 2, 3)
			binary.BigEndian.PutUint32(b, uint32(len(b)))
			c.write(b)
		}, decode},
		{"a socket cut inside a frame", atOpen, func(c *rawClient) { c.write([]byte{0, 0, 0, 50, 2}); c.conn.Close() }, "gone"},
		// Channels.
		{"an attach on a channel that has not begun", atOpen, sends(3, senderTo(0, "$cbs")), "close amqp:not-allowed"},
		{"an end of a channel that has not begun", atOpen, sends(3, &amqp.End{}), "close amqp:not-allowed"},
		{"a begin of a channel twice", atToken, sends(0, &amqp.Begin{}), "close amqp:not-allowed"},
		{"a channel above the maximum", atOpen, sends(65000, &amqp.Begin{}), framing}, // L2
		{"a begin with a remote channel", atOpen, sends(0, &amqp.Begin{RemoteChannel: amqp.Some(uint16(1))}), "close amqp:invalid-field"},
		{"frames behind an end, before and after its answer", atLinks, func(c *rawClient) {
			c.send(0, credit(3, 0, 5, false)) // a link that has something to call off
			c.send(0, &amqp.End{})
			c.send(0, &amqp.Detach{Handle: 2, Closed: true})
			expect[*amqp.End](c)
			c.send(0, &amqp.Detach{Handle: 3, Closed: true})
			c.send(0, transferOf(2, 1), data)
			c.send(0, &amqp.End{})
			c.begin(0)
		}, "ignored"},
		// Links.
		{"a transfer on an unknown handle", atToken, sends(0, transferOf(99, 0), data), "end amqp:session:unattached-handle"},
		{"a flow on an unknown handle", atToken, sends(0, credit(99, 0, 1, false)), "end amqp:session:unattached-handle"},
		{"a detach of an unknown handle", atToken, sends(0, &amqp.Detach{Handle: 99}), "end amqp:session:unattached-handle"},
		{"a handle in use", atToken, sends(0, senderTo(0, "orders")), "end amqp:session:handle-in-use"},
		{"a handle above the maximum", atToken, sends(0, senderTo(1<<31, "orders")), framing}, // L2
		{"a link without a name", atToken, sends(0, &amqp.Attach{Handle: 9, Role: amqp.RoleSender, Target: &amqp.Target{Address: amqp.Some("orders")}}), "end amqp:invalid-field"},
		{"an entity without a token", atOpen, func(c *rawClient) { c.begin(0); c.send(0, senderTo(0, "orders")) }, "detach amqp:unauthorized-access"},
		{"a dead-letter queue without a token", atOpen, func(c *rawClient) { c.begin(0); c.send(0, receiverOf(0, "orders/$DeadLetterQueue")) }, "detach amqp:unauthorized-access"},
		{"a missing entity", atToken, sends(0, senderTo(9, "no/such/queue")), "detach amqp:not-found"},
		{"an empty address", atToken, sends(0, senderTo(9, "")), "detach amqp:not-found"},
		{"an address of slashes and escapes", atToken, sends(0, senderTo(9, "//%2f%00%zz//")), "detach amqp:not-found"},
		{"no target", atToken, sends(0, &amqp.Attach{Name: "x", Handle: 9, Role: amqp.RoleSender}), "detach amqp:invalid-field"},
		{"a dynamic source", atToken, sends(0, &amqp.Attach{Name: "x", Handle: 9, Role: amqp.RoleReceiver, Source: &amqp.Source{Dynamic: true}}), "detach amqp:invalid-field"},
		{"a sender to a dead-letter queue", atToken, sends(0, senderTo(9, "orders/$DeadLetterQueue")), "detach amqp:not-allowed"}, // S-171
		{"a session filter that is a list", atToken, func(c *rawClient) {
			a := receiverOf(9, "orders")
			w := amqp.BeginSymbolMap(nil)
			w.Raw(string(amqp.FilterSession), amqp.Raw{0x45})
			a.Source.Filter = w.End()
			c.send(0, a)
		}, "detach amqp:invalid-field"},
		{"a coordinator that sends", atToken, sends(0, &amqp.Attach{Name: "x", Handle: 9, Role: amqp.RoleReceiver, Coordinator: &amqp.Coordinator{}}), "detach amqp:invalid-field"},
		{"a message that is none to a coordinator", atToken, toCoordinator([]byte("hello")), "reject amqp:decode-error"},
		{"a discharge without an id", atToken, toCoordinator([]byte{0x00, 0x53, 0x77, 0x00, 0x53, 0x32, 0x45}), "reject amqp:decode-error"},
		{"a discharge of nobody", atToken, toCoordinator(amqp.AppendDischarge(nil, amqp.Discharge{TxnID: make([]byte, 32)})), "reject amqp:transaction:unknown-id"},
		{"five kilobytes to a coordinator", atToken, toCoordinator(make([]byte, 5_000)), "detach amqp:link:message-size-exceeded"},
		{"a send in a transaction before its link is attached", atToken, func(c *rawClient) {
			c.hold = true
			c.send(0, senderTo(9, "orders"))
			c.hold = false
			c.send(0, text(transferOf(9, 1), func(t *amqp.Transfer) { t.State = &amqp.TransactionalState{TxnID: []byte("t")} }), data)
		}, "reject amqp:transaction:unknown-id"},
		{"the same link again", atLinks, func(c *rawClient) {
			a := receiverOf(7, "orders")
			a.Name = "rx-3"
			c.send(0, a)
		}, "detach amqp:link:stolen"},
		// Transfers.
		{"a transfer on a receiving link", atLinks, sends(0, transferOf(3, 0), data), "end amqp:not-allowed"},
		{"a transfer without a delivery id", atLinks, sends(0, text(transferOf(2, 0), func(t *amqp.Transfer) { t.DeliveryID = amqp.Opt[uint32]{} }), data), "detach amqp:invalid-field"},
		{"a delivery inside a delivery", atLinks, func(c *rawClient) {
			c.send(0, text(transferOf(2, 1), func(t *amqp.Transfer) { t.More = true }), data)
			c.send(0, transferOf(2, 2), data)
		}, "detach amqp:invalid-field"},
		{"a delivery tag of 33 bytes", atLinks, func(c *rawClient) {
			b := append([]byte{0x52, 2, 0x52, 1, 0xa0, 33}, make([]byte, 33)...)
			c.write(rawFrame(0, 0, perf(0x14, append([]byte{0xc0, byte(len(b) + 1), 3}, b...)...)...))
		}, decode},
		{"a message larger than announced in one delivery", atLinks, func(c *rawClient) {
			big := make([]byte, 30_000)
			for i := range 4 {
				c.send(0, text(transferOf(2, 1), func(t *amqp.Transfer) { t.More = i < 3 }), big)
			}
		}, "reject amqp:link:message-size-exceeded"},
		{"a delivery that never ends", atLinks, func(c *rawClient) {
			big := make([]byte, 60_000)
			for range 200 {
				c.send(0, text(transferOf(2, 1), func(t *amqp.Transfer) { t.More = true }), big)
			}
		}, "reject amqp:link:message-size-exceeded"},
		{"transfers without credit", atLinks, func(c *rawClient) {
			for id := range uint32(overrunMax + 2_000) {
				c.send(0, text(transferOf(2, id), func(t *amqp.Transfer) { t.Settled = amqp.Some(true) }), []byte{})
			}
		}, "ignored"}, // each is answered by fresh credit
		{"a message that is no message", atLinks, sends(0, transferOf(2, 1), []byte("hello")), "reject com.microsoft:argument-error"},
		{"sections out of order", atLinks, sends(0, transferOf(2, 1), message(data, amqp.AppendHeader(nil, amqp.Header{}))), "reject com.microsoft:argument-error"},
		{"a data section that claims 1 GiB", atLinks, sends(0, transferOf(2, 1), []byte{0x00, 0x53, 0x75, 0xb0, 0x40, 0, 0, 0, 'x'}), "reject com.microsoft:argument-error"},
		{"properties of the wrong type", atLinks, sends(0, transferOf(2, 1), message(perf(0x73, list(0x41)...), data)), "reject com.microsoft:argument-error"},
		{"invalid UTF-8 in a subject", atLinks, sends(0, transferOf(2, 1), message(perf(0x73, list(0x40, 0x40, 0x40, 0xa1, 0x02, 0xff, 0xfe)...), data)), "reject com.microsoft:argument-error"},
		{"a session id of 129 characters", atLinks, sends(0, transferOf(2, 1), message(amqp.AppendProperties(nil, &amqp.Properties{GroupID: bytes.Repeat([]byte("s"), 129)}), data)), "reject com.microsoft:argument-error"}, // S-228
		{"a message id of 129 characters", atLinks, sends(0, transferOf(2, 1), message(amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, strings.Repeat("m", 129))}), data)), "reject com.microsoft:argument-error"},
		{"a property of 33 KiB", atLinks, func(c *rawClient) { // S-227
			w := amqp.BeginMapSection(nil, amqp.CodeApplicationProperties)
			w.String("k", strings.Repeat("v", 33<<10))
			c.send(0, transferOf(2, 1), w.End(), data)
		}, "reject com.microsoft:argument-error"},
		{"a time to live of zero", atLinks, sends(0, transferOf(2, 1), message(amqp.AppendHeader(nil, amqp.Header{TTL: amqp.Some(uint32(0))}), data)), "reject com.microsoft:argument-error"}, // S-205
		{"a partition key that is no string", atLinks, func(c *rawClient) {
			w := amqp.BeginMapSection(nil, amqp.CodeMessageAnnotations)
			w.Long(annPartitionKey, 7)
			c.send(0, transferOf(2, 1), message(w.End(), data))
		}, "reject com.microsoft:argument-error"},
		{"an unknown message format", atLinks, sends(0, text(transferOf(2, 1), func(t *amqp.Transfer) { t.MessageFormat = amqp.Some(uint32(77)) }), data), "reject amqp:not-implemented"},
		{"an empty batch", atLinks, sends(0, text(transferOf(2, 1), func(t *amqp.Transfer) { t.MessageFormat = amqp.Some(amqp.FormatBatch) })), "reject com.microsoft:argument-error"},
		{"a batch of garbage", atLinks, sends(0, text(transferOf(2, 1), func(t *amqp.Transfer) { t.MessageFormat = amqp.Some(amqp.FormatBatch) }), data), "reject com.microsoft:argument-error"},
		{"a send in a transaction of nobody", atLinks, sends(0, text(transferOf(2, 1), func(t *amqp.Transfer) { t.State = &amqp.TransactionalState{TxnID: []byte("t")} }), data), "reject amqp:transaction:unknown-id"},
		// Dispositions and flows.
		{"a disposition of everything", atLinks, sends(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: 0, Last: amqp.Some(uint32(1<<31 - 2)), State: amqp.Accepted{}}), "ignored"},
		{"a disposition from high to low", atLinks, sends(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: 9, Last: amqp.Some(uint32(3)), State: amqp.Accepted{}}), "end amqp:invalid-field"},
		{"a disposition of unknown deliveries", atLinks, sends(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: 5000, State: amqp.Rejected{}}), "ignored"},
		{"a disposition with an unknown state", atLinks, frameOf(0, perf(0x15, append([]byte{0xc0, 10, 6, 0x41, 0x43, 0x40, 0x42}, 0x00, 0x53, 0x2f, 0x45, 0x42)...)...), decode},
		{"credit of 2^32-1", atLinks, sends(0, credit(3, 0, 1<<32-1, false)), "ignored"},
		{"credit from the future", atLinks, sends(0, credit(3, 1<<31+5, 10, false)), "ignored"},
		{"a flow on a sending link with credit", atLinks, sends(0, credit(2, 0, 10_000, true)), "ignored"},
		// Requests.
		{"a request that is no message", atLinks, sends(0, transferOf(4, 1), []byte("hello")), "reject amqp:decode-error"},
		{"a request larger than announced", atLinks, func(c *rawClient) {
			big := make([]byte, 60_000)
			for i := range 5 {
				c.send(0, text(transferOf(4, 1), func(t *amqp.Transfer) { t.More = i < 4 }), big)
			}
		}, "detach amqp:link:message-size-exceeded"},
		{"an unknown operation", atLinks, managed("no-such-thing", nil), "status 501"},
		{"an operation without a body", atLinks, managed("renew-lock", nil), "status 400"},
		{"tokens that are strings", atLinks, managed("renew-lock", amqp.Map{{Key: "lock-tokens", Value: []string{"x"}}}), "status 400"},
		{"a peek of minus one", atLinks, managed("peek-message", amqp.Map{{Key: "message-count", Value: int32(-1)}}), "status 400"},
		{"more numbers than allowed", atLinks, managed("cancel-scheduled-message", amqp.Map{{Key: "sequence-numbers", Value: make([]int64, 1001)}}), "status 400"},
		{"a disposition of an unknown kind", atLinks, managed("update-disposition", amqp.Map{{Key: "disposition-status", Value: "eaten"}}), "status 400"},
		{"a schedule of garbage", atLinks, managed("schedule-message", amqp.Map{{Key: "messages", Value: amqp.List{amqp.Map{{Key: "message", Value: []byte("x")}}}}}), "status 400"},
		{"session state without the session", atLinks, managed("get-session-state", amqp.Map{{Key: "session-id", Value: "s"}}), "status 400"},
		{"a token that is none", atToken, token("hello"), "status 401"},
		{"a token with a wrong signature", atToken, token("SharedAccessSignature sr=amqp%3a%2f%2flocalhost%2f&sig=AAAA&se=99999999999&skn=" + testPolicy), "status 401"},
		{"a token of a megabyte", atToken, token(strings.Repeat("x", 40<<10)), "status 400"},
	}
}

// toCoordinator attaches a coordinator link and sends one message over it.
func toCoordinator(payload []byte) func(*rawClient) {
	return func(c *rawClient) {
		c.attach(0, &amqp.Attach{Name: "co", Handle: 9, Role: amqp.RoleSender, Source: &amqp.Source{}, Coordinator: &amqp.Coordinator{}})
		expect[*amqp.Flow](c)
		c.send(0, transferOf(9, 1), payload)
	}
}

// managed sends a management request; nil is a request without a body.
func managed(op string, body amqp.Map) func(*rawClient) {
	return func(c *rawClient) {
		out := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "m"), ReplyTo: []byte("mgmt")})
		w := amqp.BeginMapSection(out, amqp.CodeApplicationProperties)
		w.String("operation", "com.microsoft:"+op)
		out = w.End()
		if body != nil {
			var err error
			if out, err = amqp.AppendValueBody(out, body); err != nil {
				c.t.Fatal(err)
			}
		}
		c.send(0, text4(transferOf(4, 1)), out)
	}
}

func text4(t *amqp.Transfer) *amqp.Transfer { t.Settled = amqp.Some(true); return t }

// token puts a token over the links of authenticate.
func token(text string) func(*rawClient) {
	return func(c *rawClient) {
		out := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "m"), ReplyTo: []byte("reply")})
		w := amqp.BeginMapSection(out, amqp.CodeApplicationProperties)
		w.String("operation", "put-token")
		w.String("name", "amqp://localhost/orders")
		out, err := amqp.AppendValueBody(w.End(), text)
		if err != nil {
			c.t.Fatal(err)
		}
		c.send(0, text4(transferOf(0, 1)), out)
	}
}

// reach brings a client to a stage.
func (c *rawClient) reach(at stage) {
	switch at {
	case atSASL:
		c.header(amqp.ProtocolSASL)
		expect[*amqp.SASLMechanisms](c)
	case atAMQP:
		c.header(amqp.ProtocolAMQP)
		if f := <-c.in; f.header == nil {
			c.t.Fatal("no protocol header")
		}
	case atOpen:
		c.open("ANONYMOUS")
	case atToken:
		c.authenticate()
	case atLinks:
		c.authenticate()
		c.attach(0, senderTo(2, "orders"))
		expect[*amqp.Flow](c)
		c.attach(0, receiverOf(3, "orders"))
		c.attachPair(0, 4, "orders/$management", "mgmt")
	}
}

// outcome reads on until the server has said what it thinks.
func (c *rawClient) outcome() string {
	for {
		p, payload := c.next()
		switch p := p.(type) {
		case nil:
			return "gone"
		case *amqp.SASLOutcome:
			return fmt.Sprintf("sasl %d", p.Outcome)
		case *amqp.Close:
			return "close " + conditionText(p.Error)
		case *amqp.End:
			if p.Error != nil {
				return "end " + conditionText(p.Error)
			}
		case *amqp.Detach:
			return "detach " + conditionText(p.Error)
		case *amqp.Disposition:
			if r, ok := p.State.(amqp.Rejected); ok {
				return "reject " + conditionText(r.Error)
			}
		case *amqp.Transfer:
			s, err := amqp.ParseMessage(payload)
			if err != nil {
				return err.Error()
			}
			v, _ := s.ApplicationProperty("statusCode")
			code, _ := v.Int64()
			return fmt.Sprintf("status %d", code)
		}
	}
}

func conditionText(e *amqp.Error) string {
	if e == nil {
		return ""
	}
	return string(e.Condition)
}

// S-1, S-3, T-57: whatever a client sends, it gets an error that fits, and only it does.
func TestHostileClients(t *testing.T) {
	for _, h := range hostileCases() {
		t.Run(h.name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxMessageBytes = hostileMessageBytes })
				witness := b.client()
				witness.reach(atLinks)
				c := b.client()
				c.reach(h.at)
				h.do(c)
				if h.want != "ignored" {
					if got := c.outcome(); got != h.want {
						t.Errorf("got %q, want %q\n%s", got, h.want, lastLines(c.trace.String()))
					}
				} else {
					time.Sleep(time.Second) // virtual: time enough to object
					c.send(0, &amqp.Flow{NextIncomingID: amqp.Some(uint32(1)), IncomingWindow: 2048, Echo: true})
					for {
						p, _ := c.next()
						if f, ok := p.(*amqp.Flow); ok && !f.Handle.Set {
							break
						}
						if p == nil {
							t.Fatal("the connection is gone")
						}
						if code := p.Code(); code != amqp.CodeFlow && code != amqp.CodeTransfer {
							t.Fatalf("got %s", describe(0, p))
						}
					}
				}
				witness.send(0, transferOf(2, 100), amqp.AppendData(nil, []byte("witness")))
				if d, _ := expect[*amqp.Disposition](witness); d.State != (amqp.Accepted{}) {
					t.Errorf("the witness got %v", d.State)
				}
				if n := b.server.stats.Rejected[sitePanic].Load(); n != 0 {
					t.Errorf("%d panics", n)
				}
				c.close()
				witness.close()
			})
		})
	}
	if n := len(hostileCases()); n < 60 {
		t.Errorf("%d cases", n)
	}
}

func lastLines(s string) string {
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		if strings.HasPrefix(line, "<") || strings.HasPrefix(line, ">") {
			out = append(out, line)
		}
	}
	return strings.Join(out[max(0, len(out)-8):], "\n")
}
