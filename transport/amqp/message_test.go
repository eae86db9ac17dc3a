package amqp

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

const (
	hexHeader     = "00 53 70 c0 0b 05 41 50 04 70 00 00 ea 60 42 43"
	hexDelivery   = "00 53 71 c1 01 00"
	hexAnnotation = "00 53 72 c1 1e 02 a3 13 782d6f70742d706172746974696f6e2d6b6579 a1 06 6b6579 2d3131"
	hexProperties = "00 53 73 c0 0e 0b a1 01 6d 40 40 40 40 40 40 40 40 40 40"
	hexAppProps   = "00 53 74 c1 07 02 a1 01 6b a1 01 76"
	hexData       = "00 53 75 a0 02 68 69"
	hexSequence   = "00 53 76 c0 02 01 41"
	hexValue      = "00 53 77 a1 02 68 69"
	hexFooter     = "00 53 78 c1 01 00"
)

func TestSectionsOfAMessage(t *testing.T) {
	all := []string{hexHeader, hexDelivery, hexAnnotation, hexProperties, hexAppProps, hexData,
		hexFooter}
	join := func(parts ...string) []byte {
		var out []byte
		for _, p := range parts {
			out = append(out, unhex(t, p)...)
		}
		return out
	}
	payload := join(all...)
	s, err := ParseMessage(payload)
	if err != nil {
		t.Fatal(err)
	}
	got := [][]byte{s.Header, s.DeliveryAnnotations, s.MessageAnnotations, s.Properties,
		s.ApplicationProperties, s.Body, s.Footer}
	for i, section := range got {
		if !bytes.Equal(section, unhex(t, all[i])) {
			t.Errorf("section %d: % x", i, section)
		}
	}
	if want := join(all[3:]...); !bytes.Equal(s.Bare, want) {
		t.Errorf("bare % x", s.Bare)
	}
	if s.BodyCode != CodeData {
		t.Errorf("body code 0x%02x", uint8(s.BodyCode))
	}
	// The Python client writes delivery annotations last; they are no part of the bare message.
	late, err := ParseMessage(join(hexHeader, hexProperties, hexData, hexFooter, hexDelivery))
	if err != nil {
		t.Fatal(err)
	}
	if want := join(hexProperties, hexData, hexFooter); !bytes.Equal(late.Bare, want) ||
		!bytes.Equal(late.DeliveryAnnotations, unhex(t, hexDelivery)) ||
		!bytes.Equal(late.Body, unhex(t, hexData)) {
		t.Errorf("delivery annotations at the end: %+v", late)
	}
	for _, tc := range []struct {
		name  string
		parts []string
		body  int // sections of the body, at the end of parts
		code  Code
		bare  int // sections of the bare message, at the end of parts
	}{
		{"several data sections", []string{hexHeader, hexData, hexData, hexData}, 3, CodeData, 3},
		{"several sequences", []string{hexSequence, hexSequence}, 2, CodeAMQPSequence, 2},
		{"an empty sequence", []string{"00 53 76 45"}, 1, CodeAMQPSequence, 1},
		{"a value", []string{hexProperties, hexValue}, 1, CodeAMQPValue, 2},
		{"a value that is described", []string{"00 53 77 00 53 31 45"}, 1, CodeAMQPValue, 1},
		{"no body", []string{hexHeader, hexProperties, hexAppProps}, 0, 0, 2},
		{"a header alone", []string{hexHeader}, 0, 0, 0},
		{"nothing", nil, 0, 0, 0},
		{"an empty header", []string{"00 53 70 45", hexData}, 1, CodeData, 1},
		{"a body that nobody looks into", []string{"00 53 77 c0 03 ff ff ff"}, 1, CodeAMQPValue, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := ParseMessage(join(tc.parts...))
			if err != nil {
				t.Fatal(err)
			}
			if want := join(tc.parts[len(tc.parts)-tc.body:]...); !bytes.Equal(s.Body, want) {
				t.Errorf("body % x", s.Body)
			}
			if want := join(tc.parts[len(tc.parts)-tc.bare:]...); !bytes.Equal(s.Bare, want) {
				t.Errorf("bare % x", s.Bare)
			}
			if s.BodyCode != tc.code {
				t.Errorf("body code 0x%02x", uint8(s.BodyCode))
			}
		})
	}
}

// E1: rhea writes the footer ahead of the body, plain and in batches; what is stored has it behind.
func TestAFooterMayComeAheadOfTheBody(t *testing.T) {
	join := func(parts ...string) []byte { return unhex(t, strings.Join(parts, " ")) }
	plain := join(hexHeader, hexDelivery, hexAnnotation, hexProperties, hexAppProps, hexFooter, hexData, hexData)
	bare := join(hexProperties, hexAppProps, hexData, hexData, hexFooter)
	batch := append(join(hexFooter), AppendData(AppendData(nil, plain), plain)...)
	messages := [][]byte{plain}
	for m, err := range BatchMessages(batch) {
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	if len(messages) != 3 {
		t.Fatalf("%d messages in the batch, want 2", len(messages)-1)
	}
	for _, m := range messages {
		s, err := ParseMessage(m)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(s.Bare, bare) || !bytes.Equal(s.Footer, join(hexFooter)) || !bytes.Equal(s.Body, join(hexData, hexData)) {
			t.Errorf("bare % x\nfooter % x\nbody % x", s.Bare, s.Footer, s.Body)
		}
		again, err := ParseMessage(s.Bare)
		if err != nil || !bytes.Equal(again.Bare, bare) || !bytes.Equal(again.Footer, s.Footer) {
			t.Errorf("read again: %+v, %v", again, err)
		}
	}
	s, err := ParseMessage(join(hexProperties, hexFooter))
	if err != nil || !bytes.Equal(s.Bare, join(hexProperties, hexFooter)) {
		t.Errorf("a footer and no body: %+v, %v", s, err)
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	for name, hex := range map[string]string{
		"no section":                                   "40",
		"a performative":                               "00 53 14 45",
		"a descriptor alone":                           "00 53 75",
		"a header behind the body":                     hexData + hexHeader,
		"two headers":                                  hexHeader + hexHeader,
		"two delivery annotations":                     hexDelivery + hexData + hexDelivery,
		"delivery annotations in the middle":           hexProperties + hexDelivery + hexData,
		"two values":                                   hexValue + hexValue,
		"data and a value":                             hexData + hexValue,
		"a value and data":                             hexValue + hexData,
		"data and a sequence":                          hexData + hexSequence,
		"a footer ahead of the body and one behind it": hexFooter + hexData + hexFooter,
		"two footers":                                  hexFooter + hexFooter,
		"properties behind the footer":                 hexFooter + hexProperties + hexData,
		"application properties behind the footer":     hexProperties + hexFooter + hexAppProps + hexData,
		"annotations that are a list":                  "00 53 72 45",
		"a header that is a map":                       "00 53 70 c1 01 00",
		"data that is a string":                        "00 53 75 a1 01 61",
		"a sequence that is a binary":                  "00 53 76 a0 00",
		"data longer than the message":                 "00 53 75 b0 00 00 00 05 61",
		"annotations with an odd count":                "00 53 72 c1 02 01 40",
		"annotations with text not UTF-8":              "00 53 72 c1 06 02 a1 00 a1 01 ff",
		"application properties beyond them":           "00 53 74 c1 04 02 a1 05 61",
		"bytes behind the last section":                hexData + "00",
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := ParseMessage(unhex(t, hex)); !errors.Is(err, ErrDecode) {
				t.Errorf("got %+v, %v", s, err)
			}
		})
	}
}

func TestHeader(t *testing.T) {
	for _, tc := range []struct {
		name, hex string
		want      Header
		canonical bool
	}{
		{"missing", "", Header{}, false},
		{"empty", "00 53 70 45", Header{}, false},
		{"all five fields", hexHeader,
			Header{Durable: true, Priority: Some(uint8(4)), TTL: Some(uint32(60000))}, true},
		{"a delivery count of 0 is written (G17)", "00 53 70 c0 06 05 42 40 40 42 43", Header{},
			true},
		{"first acquirer and count", "00 53 70 c0 0a 05 42 40 43 41 70 00 00 01 00",
			Header{TTL: Some(uint32(0)), FirstAcquirer: true, DeliveryCount: 256}, true},
		{"trimmed and null", "00 53 70 c0 04 03 40 40 43", Header{TTL: Some(uint32(0))}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := ParseMessage(unhex(t, tc.hex))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := s.ParseHeader(); got != tc.want || err != nil {
				t.Errorf("got %+v, %v", got, err)
			}
			if got := AppendHeader(nil, tc.want); tc.canonical && !bytes.Equal(got, s.Header) {
				t.Errorf("written % x", got)
			}
		})
	}
	for _, hex := range []string{
		"00 53 70 c0 02 01 43",                // durable of a uint
		"00 53 70 c0 07 06 40 40 40 40 40 40", // six fields
	} {
		s, err := ParseMessage(unhex(t, hex))
		if err != nil {
			t.Fatal(err)
		}
		if h, err := s.ParseHeader(); !errors.Is(err, ErrDecode) {
			t.Errorf("%s: %+v, %v", hex, h, err)
		}
	}
}

// TestProperties: all thirteen fields, each with its type, ids of each type. S-27 is group-id.
func TestProperties(t *testing.T) {
	for _, tc := range []struct {
		name string
		want Properties
	}{
		{"none", Properties{}},
		{"all", Properties{
			MessageID: rawOf("m"), UserID: []byte{1}, To: []byte("to"), Subject: []byte("s"),
			ReplyTo: []byte("r"), CorrelationID: rawOf(uint64(300)), ContentType: []byte("a/b"),
			ContentEncoding: []byte("gzip"), AbsoluteExpiryTime: Some(Timestamp(1 << 40)),
			CreationTime: Some(Timestamp(0)), GroupID: []byte("session"),
			GroupSequence: Some(uint32(7)), ReplyToGroupID: []byte("other"),
		}},
		{"ids of other types", Properties{MessageID: rawOf(tokenUUID),
			CorrelationID: rawOf([]byte{9})}},
		{"an empty session id is not an absent one", Properties{GroupID: []byte{}}}, // RUL-17
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := AppendProperties(nil, &tc.want)
			s, err := ParseMessage(b)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.ParseProperties()
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	var none Sections
	if p, err := none.ParseProperties(); err != nil || !reflect.DeepEqual(p, Properties{}) {
		t.Errorf("missing: %+v, %v", p, err)
	}
	want := "00 53 73 c0 25 0d a1 01 6d 40 40 40 40 80 00 00 00 00 00 00 01 2c a3 01 61 40 " +
		"83 00 00 00 00 00 00 00 05 40 a1 01 67 52 07 40"
	got := AppendProperties(nil, &Properties{MessageID: rawOf("m"),
		CorrelationID: rawOf(uint64(300)),
		ContentType:   []byte("a"), AbsoluteExpiryTime: Some(Timestamp(5)), GroupID: []byte("g"),
		GroupSequence: Some(uint32(7))})
	if !bytes.Equal(got, unhex(t, want)) {
		t.Errorf("written % x", got)
	}
}

func TestPropertiesOfAnotherTypeAreRefused(t *testing.T) {
	for name, hex := range map[string]string{
		"a message-id that is a uint":     "00 53 73 c0 02 01 43",
		"a message-id that is a symbol":   "00 53 73 c0 03 01 a3 00",
		"a content-type that is a string": "00 53 73 c0 09 07 40 40 40 40 40 40 a1 00",
		"a user-id that is a string":      "00 53 73 c0 04 02 40 a1 00",
		"fourteen fields":                 "00 53 73 c0 0f 0e 40 40 40 40 40 40 40 40 40 40 40 40 40 40",
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseMessage(unhex(t, hex))
			if err != nil {
				t.Fatal(err)
			}
			if p, err := s.ParseProperties(); !errors.Is(err, ErrDecode) {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
}

func TestAnnotationsAndApplicationPropertiesAreFound(t *testing.T) {
	w := BeginMapSection(nil, CodeMessageAnnotations)
	w.Timestamp("x-opt-enqueued-time", 1000)
	w.Long("x-opt-sequence-number", -1)
	w.Int("x-opt-message-state", 2)
	w.String("x-opt-partition-key", "p")
	w.UUID("x-opt-lock-token", tokenUUID)
	w.Short("x-opt-partition-id", 3)
	w.Bool("b", true)
	w.Uint("u", 7)
	w.Ulong("ul", 8)
	w.Symbol("sy", "S")
	w.Binary("bin", []byte{1})
	w.Null("n")
	w.Raw("raw", nil)
	section := w.End()
	want := symbolMap(Symbol("x-opt-enqueued-time"), Timestamp(1000),
		Symbol("x-opt-sequence-number"), int64(-1), Symbol("x-opt-message-state"), int32(2),
		Symbol("x-opt-partition-key"), "p", Symbol("x-opt-lock-token"), tokenUUID,
		Symbol("x-opt-partition-id"), int16(3), Symbol("b"), true, Symbol("u"), uint32(7),
		Symbol("ul"), uint64(8), Symbol("sy"), Symbol("S"), Symbol("bin"), []byte{1},
		Symbol("n"), nil, Symbol("raw"), nil)
	if got := SectionValue(section); !bytes.Equal(got, want) {
		t.Errorf("written\n% x, want\n% x", got, want)
	}
	w = BeginMapSection(section, CodeApplicationProperties)
	w.String("k", "v")
	s, err := ParseMessage(w.End())
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := s.Annotation("x-opt-enqueued-time"); !ok || !bytes.Equal(v,
		rawOf(Timestamp(1000))) {
		t.Errorf("enqueued time % x", v)
	}
	if v, ok := s.Annotation("x-opt-missing"); ok {
		t.Errorf("missing annotation % x", v)
	}
	if v, ok := s.ApplicationProperty("k"); !ok || !bytes.Equal(v, rawOf("v")) {
		t.Errorf("application property % x", v)
	}
	var none Sections
	if _, ok := none.Annotation("x"); ok {
		t.Error("an annotation in a message without any")
	}
}

func TestBatch(t *testing.T) {
	envelope := hexHeader + hexAnnotation + hexProperties + hexAppProps
	for _, tc := range []struct {
		name, hex string
		want      []string
		fails     bool
	}{
		{"two messages", "00 53 75 a0 01 61 00 53 75 a0 02 62 63", []string{"a", "bc"}, false},
		{"an envelope is stepped over", envelope + "00 53 75 b0 00 00 00 01 61", []string{"a"},
			false},
		{"no message", envelope, nil, true},
		{"nothing", "", nil, true},
		{"a value", hexValue, nil, true},
		{"a sequence", hexSequence, nil, true},
		{"a broken second message", "00 53 75 a0 01 61 00 53 75 a0 02 62", []string{"a"}, true},
		{"a header behind a message", "00 53 75 a0 01 61" + hexHeader, []string{"a"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			var failed error
			for m, err := range BatchMessages(unhex(t, tc.hex)) {
				if err != nil {
					failed = err
					continue
				}
				got = append(got, string(m))
			}
			if !reflect.DeepEqual(got, tc.want) || errors.Is(failed, ErrDecode) != tc.fails {
				t.Errorf("got %q, %v", got, failed)
			}
		})
	}
	for m, err := range BatchMessages(unhex(t, "00 53 75 a0 01 61 00 53 75 a0 02 62 63")) {
		if string(m) != "a" || err != nil {
			t.Errorf("before a break: %q, %v", m, err)
		}
		break
	}
}

// TestMergeApplicationProperties: S-154, properties of an abandon, a defer or a dead-letter end in
// the application properties.
func TestMergeApplicationProperties(t *testing.T) {
	section := func(m Map) []byte {
		return append(appendDescriptor(nil, CodeApplicationProperties), rawOf(m)...)
	}
	p := func(key string, v any) Property { return Property{Key: key, Value: rawOf(v)} }
	span := Described{Symbol("com.microsoft:timespan"), int64(5)}
	for _, tc := range []struct {
		name     string
		existing []byte
		overlay  []Property
		want     []byte
	}{
		{"nothing to nothing", nil, nil, nil},
		{"nothing to a section", section(Map{{"a", "1"}}), nil, section(Map{{"a", "1"}})},
		{"a property to nothing", nil, []Property{p("a", "1")}, section(Map{{"a", "1"}})},
		{"a value is replaced in its place, the rest is kept as it is",
			section(Map{{"a", "1"}, {"b", span}, {"c", nil}}),
			[]Property{p("d", int64(4)), p("b", uint32(2))},
			section(Map{{"a", "1"}, {"b", uint32(2)}, {"c", nil}, {"d", int64(4)}})},
		{"keys become strings", section(Map{{Symbol("a"), "1"}}), []Property{p("b", true)},
			section(Map{{"a", "1"}, {"b", true}})},
		{"the later of two counts", nil, []Property{p("a", "1"), p("b", "2"), p("a", "3")},
			section(Map{{"b", "2"}, {"a", "3"}})},
		{"a key that is there twice is written once", section(Map{{"a", "1"}, {"a", "2"}}),
			[]Property{p("a", "3")}, section(Map{{"a", "3"}})},
		{"an absent value is null", nil, []Property{{Key: "a"}}, section(Map{{"a", nil}})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := MergeApplicationProperties([]byte{9}, tc.existing, tc.overlay)
			if err != nil || !bytes.Equal(got, append([]byte{9}, tc.want...)) {
				t.Errorf("got  % x, %v\nwant % x", got, err, tc.want)
			}
		})
	}
	for name, existing := range map[string][]byte{
		"another section":        unhex(t, hexAnnotation),
		"a list":                 unhex(t, "00 53 74 45"),
		"a key that is a number": section(Map{{uint32(1), "x"}}),
		"bytes behind it":        append(section(Map{}), 0),
	} {
		got, err := MergeApplicationProperties([]byte{9}, existing, []Property{p("a", "1")})
		if !errors.Is(err, ErrDecode) || !bytes.Equal(got, []byte{9}) {
			t.Errorf("%s: % x, %v", name, got, err)
		}
	}
}

func TestReadProperties(t *testing.T) { // S-154, S-155
	got, err := ReadProperties(symbolMap(Symbol("DeadLetterReason"), "r", "colour", nil))
	want := []Property{{Key: "DeadLetterReason", Value: rawOf("r")}, {Key: "colour", Value: rawOf(nil)}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, r := range []Raw{nil, rawOf(nil), rawOf(Map{})} {
		if got, err := ReadProperties(r); len(got) > 0 || err != nil {
			t.Errorf("% x: %v, %v", r, got, err)
		}
	}
	for _, r := range []Raw{rawOf(List{"a"}), rawOf(Map{{uint32(1), "x"}}), {tMap8}, {tMap8, 3, 2, 0xa1, 9}} {
		if got, err := ReadProperties(r); !errors.Is(err, ErrDecode) {
			t.Errorf("% x: %v, %v", r, got, err)
		}
	}
}

func TestTextOfPropertiesIsNeverMalformed(t *testing.T) {
	b := AppendProperties(nil, &Properties{Subject: []byte("a\xff"), ContentType: []byte("b\xff")})
	s, err := ParseMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.ParseProperties()
	if err != nil || string(p.Subject) != "a\ufffd" || string(p.ContentType) != "b?" {
		t.Errorf("got %q, %q, %v", p.Subject, p.ContentType, err)
	}
}

func TestValueBody(t *testing.T) {
	got, err := AppendValueBody([]byte{9}, Map{{"k", []int64{5}}})
	if want := "09 00 53 77 c1 10 02 a1 01 6b e0 0a 01 81 00 00 00 00 00 00 00 05"; err != nil ||
		!bytes.Equal(got, unhex(t, want)) {
		t.Errorf("got % x, %v", got, err)
	}
	if got, err := AppendValueBody([]byte{9}, 1); !errors.Is(err, ErrDecode) || len(got) != 1 {
		t.Errorf("a plain int: % x, %v", got, err)
	}
}

func TestRawReadsOnePrimitiveOfItsType(t *testing.T) {
	if v, ok := rawOf("s").Text(); v != "s" || !ok {
		t.Errorf("string %q", v)
	}
	if v, ok := rawOf(Symbol("s")).Text(); v != "s" || !ok {
		t.Errorf("symbol %q", v)
	}
	if v, ok := rawOf(Timestamp(7)).Timestamp(); v != 7 || !ok {
		t.Errorf("timestamp %d", v)
	}
	if v, ok := rawOf(tokenUUID).UUID(); v != tokenUUID || !ok {
		t.Errorf("uuid %v", v)
	}
	if v, ok := rawOf([]byte{7}).Binary(); !bytes.Equal(v, []byte{7}) || !ok {
		t.Errorf("binary %v", v)
	}
	for _, r := range []Raw{rawOf(true), {tBool, 1}} {
		if v, ok := r.Bool(); !v || !ok {
			t.Errorf("% x: boolean %t", r, v)
		}
	}
	for _, r := range []Raw{nil, {}, rawOf(nil), rawOf(Described{uint64(1), "s"}), {tString8, 5}, {tString8, 0, 0}} {
		_, text := r.Text()
		_, number := r.Int64()
		_, at := r.Timestamp()
		_, id := r.UUID()
		_, b := r.Binary()
		_, yes := r.Bool()
		if text || number || at || id || b || yes {
			t.Errorf("% x reads as something", r)
		}
	}
	for _, r := range []Raw{nil, {}, {tNull}} {
		if !r.IsNull() {
			t.Errorf("% x is not null", r)
		}
	}
	if m, err := rawOf(List{}).Map(); !errors.Is(err, ErrDecode) {
		t.Errorf("a list is the map %v, %v", m, err)
	}
	if v, err := (Raw{tNull, 0}).Value(); !errors.Is(err, ErrDecode) {
		t.Errorf("bytes behind a value: %v, %v", v, err)
	}
	m, err := rawOf(Map{{Symbol("a"), "1"}, {"b", nil}}).Map()
	if v, ok := m.Get("a"); err != nil || v != "1" || !ok {
		t.Errorf("map %v, %v", m, err)
	}
	if _, ok := m.Get("c"); ok {
		t.Error("a missing key is found")
	}
}
