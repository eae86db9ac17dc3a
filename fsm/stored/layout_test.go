package stored

import (
	"bytes"
	"errors"
	"testing"

	"github.com/busbar-mq/busbar/fsm/rule"
)

const (
	properties  = "\x00\x53\x73\xc0\x07\x04\xa1\x01m\x40\x40\x40" // a message id, and three fields that are null
	application = "\x00\x53\x74\xc1\x07\x02\xa1\x01a\xa1\x01b"    // a: b
	data        = "\x00\x53\x75\xa0\x01x"
	annotations = "\xc1\x1c\x02\xa3\x13x-opt-partition-key\xa1\x04 key" // a symbol, a string
	delivered   = "\xc1\x07\x02\xa3\x01d\xa1\x01v"
	bareMessage = properties + application + data
)

// golden are stored messages byte for byte, as docs/formats/message.md has them.
var golden = map[string]struct {
	message Message
	bytes   string
}{
	"nothing but a body": {
		Message{Bare: []byte(data)},
		"\x01" + // version
			"\x00" + // flags
			"\x00" + // length of the annotations
			data,
	},
	"everything": {
		Message{
			Flags: Durable | Priority | TTL | Properties | Expiry | Acquirer, Priority: 9, TTL: 0x01020304,
			Annotations: []byte(annotations), DeliveryAnnotations: []byte(delivered), Bare: []byte(bareMessage),
		},
		"\x01" + // version
			"\x3f" + // flags
			"\x09" + // priority
			"\x01\x02\x03\x04" + // ttl
			"\x27" + // length of the annotations
			annotations + delivered + bareMessage,
	},
	"delivery annotations alone": {
		Message{Flags: Properties, Annotations: []byte("\xc1\x01\x00"), DeliveryAnnotations: []byte(delivered), Bare: []byte(bareMessage)},
		"\x01" + // version
			"\x08" + // flags
			"\x0c" + // length of the annotations
			"\xc1\x01\x00" + // message annotations: none
			delivered + bareMessage,
	},
}

func TestTheLayoutIsTheOneOfThePage(t *testing.T) {
	for name, c := range golden {
		t.Run(name, func(t *testing.T) {
			if got := string(append(c.message.AppendHead(nil), c.message.Bare...)); got != c.bytes {
				t.Errorf("got  % x\nwant % x", got, c.bytes)
			}
			got, err := Parse([]byte(c.bytes))
			if err != nil {
				t.Fatal(err)
			}
			m := c.message
			if got.Flags != m.Flags || got.Priority != m.Priority || got.TTL != m.TTL || !bytes.Equal(got.Annotations, m.Annotations) ||
				!bytes.Equal(got.DeliveryAnnotations, m.DeliveryAnnotations) || !bytes.Equal(got.Bare, m.Bare) {
				t.Errorf("got %+v\nwant %+v", got, m)
			}
		})
	}
	m := Message{DeliveryAnnotations: []byte(delivered)}
	if got := m.AppendHead(nil); !bytes.HasSuffix(got, []byte("\x0c\xc1\x01\x00"+delivered)) {
		t.Errorf("delivery annotations have no map in front of them: % x", got)
	}
}

// A client gets a whole message or none.
func TestMalformedBytesAreRefused(t *testing.T) {
	whole := golden["everything"].bytes
	for n := range len(whole) - len(bareMessage) {
		if _, err := Parse([]byte(whole[:n])); !errors.Is(err, ErrMalformed) {
			t.Errorf("the first %d bytes are taken: %v", n, err)
		}
	}
	for name, b := range map[string]string{
		"another version":            "\x02\x00\x00" + data,
		"an unknown flag":            "\x01\x40\x00" + data,
		"annotations that are none":  "\x01\x00\x01\x10" + data,
		"annotations behind the end": "\x01\x00\xff\x7f" + data,
	} {
		if _, err := Parse([]byte(b)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatTheSenderWroteIsFound(t *testing.T) {
	b := []byte(golden["everything"].bytes)
	var s Sent
	if !s.Read(b) || s.TTL != 0x01020304 || s.Head != string(b[:len(b)-len(data)]) {
		t.Errorf("%+v", s)
	}
	for p, want := range map[rule.SystemProperty]string{rule.MessageID: "m", rule.PartitionKey: " key"} {
		if got, known, ok := s.Text(p); got != want || !known || !ok {
			t.Errorf("%v is %q, %v, %v", p, got, known, ok)
		}
	}
	if got, ok := s.User("A"); !ok || got != rule.OfString("b") || s.Spelling("A") != "a" || s.Spelling("c") != "c" {
		t.Errorf("a is %v, %v", got, ok)
	}
	if id := MessageIDOf(b); id != "m" {
		t.Errorf("message id %q", id)
	}
	// A replica does not stop at a flag of a later version.
	if !s.Read([]byte("\x01\x40\x00"+bareMessage)) || len(s.Properties) != 1 {
		t.Errorf("with an unknown flag: %+v", s)
	}
}

// A body that no front end wrote has no message id, and does not stop anybody.
func TestTheMessageIDOfABody(t *testing.T) {
	for _, b := range [][]byte{nil, {1}, []byte("x"), bytes.Repeat([]byte{0xff}, 40)} {
		if got := MessageIDOf(b); got != "" {
			t.Errorf("%x has the message id %q", b, got)
		}
	}
}

func TestTheHeadOfALargeMessageHoldsItsProperties(t *testing.T) {
	head := len(golden["everything"].bytes) - len(data)
	for name, c := range map[string]struct {
		b    string
		want int
	}{
		"a short one travels whole":       {golden["everything"].bytes, head + len(data)},
		"a long one with its first bytes": {golden["everything"].bytes + string(make([]byte, 8<<10)), 4 << 10},
		"what is no message":              {string(make([]byte, 8<<10)), 4 << 10},
		"long properties": {"\x01\x00\x00\x00\x53\x74\xd1\x00\x00\x20\x00" + string(make([]byte, 8<<10)) + data,
			3 + 3 + 5 + 8<<10},
	} {
		if got := HeadBytes([]byte(c.b)); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}

// Bytes of a faulty front end or disk are read without a panic, and never beyond their end.
func FuzzStored(f *testing.F) {
	for _, c := range golden {
		f.Add([]byte(c.bytes))
	}
	f.Add(traced("traceparent", "00-"+traceID+"-"+spanID+"-01", "tracestate", "a=1"))
	f.Add([]byte("\x01\x06\x00\x00\x00\x00\x00\x05\xd1\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Sent
		readable := s.Read(b)
		for p := rule.Label; p <= rule.IsBodyConsumed; p++ {
			s.Text(p)
		}
		s.User("a")
		ReadTrace(b)
		if n := HeadBytes(b); n > len(b) {
			t.Fatalf("a head of %d bytes of %d", n, len(b))
		}
		m, err := Parse(b)
		if err != nil {
			return
		}
		if !readable {
			t.Fatal("a client gets what the state cannot read")
		}
		if back, err := Parse(append(m.AppendHead(nil), m.Bare...)); err != nil || back.Flags != m.Flags || !bytes.Equal(back.Bare, m.Bare) {
			t.Fatalf("%+v came back as %+v, %v", m, back, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for name, c := range golden {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			whole := []byte(c.bytes)
			for b.Loop() {
				if m, err := Parse(whole); err != nil || len(m.Bare) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}
