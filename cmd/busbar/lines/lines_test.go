package lines

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// values are one of each type, with their form in a line.
var values = []struct {
	hex  string // as AMQP 1.0 §1.6 has it
	json string
}{
	{"40", `null`},
	{"41", `true`},
	{"56 00", `false`},
	{"50 ff", `{"ubyte":255}`},
	{"60 ff ff", `{"ushort":65535}`},
	{"70 ff ff ff ff", `{"uint":4294967295}`},
	{"43", `{"uint":0}`},
	{"53 07", `{"ulong":7}`},
	{"80 ff ff ff ff ff ff ff ff", `{"ulong":"18446744073709551615"}`},
	{"51 80", `{"byte":-128}`},
	{"61 80 00", `{"short":-32768}`},
	{"54 ff", `{"int":-1}`},
	{"55 05", `{"long":5}`},
	{"81 80 00 00 00 00 00 00 00", `{"long":"-9223372036854775808"}`},
	{"72 3d cc cc cd", `{"float":0.1}`},
	{"72 7f a0 00 01", `{"float":"0x7fa00001"}`}, // a signalling NaN with a payload
	{"82 3f b9 99 99 99 99 99 9a", `{"double":0.1}`},
	{"82 80 00 00 00 00 00 00 00", `{"double":-0}`},
	{"82 00 00 00 00 00 00 00 01", `{"double":5e-324}`},
	{"82 ff f0 00 00 00 00 00 00", `{"double":"0xfff0000000000000"}`}, // minus infinity
	{"74 22 50 00 01", `{"decimal32":"0x22500001"}`},
	{"84 22 34 00 00 00 00 00 01", `{"decimal64":"0x2234000000000001"}`},
	{"94 22 07 c0 00 00 00 00 00 00 00 00 00 00 00 00 01", `{"decimal128":"0x2207c000000000000000000000000001"}`},
	{"73 00 01 f6 00", `{"char":128512}`},
	{"83 00 00 01 9c 12 34 56 78", `{"timestamp":"2026-01-31T03:59:05.848Z"}`},
	{"83 80 00 00 00 00 00 00 00", `{"timestamp":-9223372036854775808}`},
	{"98 b5 dc 4a 70 ac 5d 43 b3 b1 32 ec 8f cd ac 3a 9d", `{"uuid":"b5dc4a70-ac5d-43b3-b132-ec8fcdac3a9d"}`},
	{"a0 00", `{"binary":""}`},
	{"a0 02 ff 00", `{"binary":"/wA="}`},
	{"a0 02 68 69", `{"text":"hi"}`},
	{"a1 04 3c c3 a4 0a", `"<ä\n"`},
	{"a3 01 78", `{"symbol":"x"}`},
	{"45", `{"list":[]}`},
	{"c0 05 02 40 a1 01 78", `{"list":[null,"x"]}`},
	{"c1 08 04 54 01 41 a3 01 6b 45", `{"map":[[{"int":1},true],[{"symbol":"k"},{"list":[]}]]}`}, // keys that are no strings
	{"c1 09 04 a1 01 6b 41 a1 01 6b 42", `{"map":[["k",true],["k",false]]}`},                     // the same key twice
	{"00 a3 01 64 00 53 05 a1 01 76", `{"described":{"descriptor":{"symbol":"d"},"value":{"described":{"descriptor":{"ulong":5},"value":"v"}}}}`},
	{"00 40 41", `{"described":{"descriptor":null,"value":true}}`},
	{"e0 0a 01 81 00 00 00 00 00 00 00 05", `{"array":{"items":[{"long":5}],"of":"long"}}`},
	{"e0 06 02 a3 01 61 01 62", `{"array":{"items":[{"symbol":"a"},{"symbol":"b"}],"of":"symbol"}}`},
	{"e0 05 02 a1 00 01 62", `{"array":{"items":["","b"],"of":"string"}}`},
	{"e0 02 00 83", `{"array":{"items":[],"of":"timestamp"}}`},
	{"e0 02 00 98", `{"array":{"items":[],"of":"uuid"}}`},
	{"e0 02 03 41", `{"array":{"items":[true,true,true],"of":"boolean"}}`},
	{"e0 06 01 00 53 01 54 05", `{"array":{"descriptor":{"ulong":1},"items":[{"int":5}],"of":"int"}}`},
	{"e0 05 01 00 40 54 05", `{"array":{"descriptor":null,"items":[{"int":5}],"of":"int"}}`},
	{"e0 06 01 e0 03 01 54 05", `{"array":{"items":[{"array":{"items":[{"int":5}],"of":"int"}}],"of":"array"}}`},
	{"e0 07 02 c0 02 01 41 01 00", `{"array":{"items":[{"list":[true]},{"list":[]}],"of":"list"}}`},
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEveryTypeHasAForm(t *testing.T) {
	for _, tc := range values {
		t.Run(tc.json, func(t *testing.T) {
			encoded := unhex(t, tc.hex)
			v, _, err := amqp.DecodeValue(encoded)
			if err != nil {
				t.Fatal(err)
			}
			got, err := marshal(fromValue(v))
			if err != nil || string(got) != tc.json {
				t.Fatalf("got %s, want %s, %v", got, tc.json, err)
			}
			back, err := toValue(generic(t, got))
			if err != nil {
				t.Fatal(err)
			}
			if err := same(v, back); err != nil {
				t.Errorf("read %#v, want %#v: %v", back, v, err)
			}
			written, err := amqp.AppendValue(nil, back)
			if err != nil {
				t.Fatal(err)
			}
			again, rest, err := amqp.DecodeValue(written)
			if err != nil || len(rest) > 0 {
				t.Fatalf("% x: %v, %d bytes behind it", written, err, len(rest))
			}
			if err := same(v, again); err != nil {
				t.Errorf("sent % x for % x: %v", written, encoded, err)
			}
		})
	}
}

func generic(t testing.TB, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// same compares values of AMQP by their types and contents. It does not see by which of several constructors of one type
// an element of an array was encoded.
func same(a, b any) error {
	switch x := a.(type) {
	case float32:
		y, ok := b.(float32)
		if !ok || math.Float32bits(x) != math.Float32bits(y) {
			return fmt.Errorf("%v, %v", a, b)
		}
		return nil
	case float64:
		y, ok := b.(float64)
		if !ok || math.Float64bits(x) != math.Float64bits(y) {
			return fmt.Errorf("%v, %v", a, b)
		}
		return nil
	case amqp.List:
		y, ok := b.(amqp.List)
		if !ok {
			return fmt.Errorf("%T, %T", a, b)
		}
		return sameItems(x, y)
	case amqp.Map:
		y, ok := b.(amqp.Map)
		if !ok || len(x) != len(y) {
			return fmt.Errorf("%v, %v", a, b)
		}
		for i := range x {
			if err := sameItems([]any{x[i].Key, x[i].Value}, []any{y[i].Key, y[i].Value}); err != nil {
				return err
			}
		}
		return nil
	case amqp.Described:
		y, ok := b.(amqp.Described)
		if !ok {
			return fmt.Errorf("%T, %T", a, b)
		}
		return sameItems([]any{x.Descriptor, x.Value}, []any{y.Descriptor, y.Value})
	}
	x, xIs := arrayOf(a)
	y, yIs := arrayOf(b)
	if xIs && yIs {
		if nameOf(x.Code) != nameOf(y.Code) || !reflect.DeepEqual(x.Descriptor, y.Descriptor) {
			return fmt.Errorf("arrays of %#v %s and %#v %s", x.Descriptor, nameOf(x.Code), y.Descriptor, nameOf(y.Code))
		}
		return sameItems(x.Items, y.Items)
	}
	if !reflect.DeepEqual(a, b) {
		return fmt.Errorf("%#v, %#v", a, b)
	}
	return nil
}

// arrayOf gives all Go types of arrays the same one.
func arrayOf(v any) (amqp.Array, bool) {
	boxed := func(code byte) (amqp.Array, bool) {
		list := reflect.ValueOf(v)
		a := amqp.Array{Code: code, Items: []any{}}
		for i := range list.Len() {
			a.Items = append(a.Items, list.Index(i).Interface())
		}
		return a, true
	}
	switch v := v.(type) {
	case amqp.Array:
		return v, true
	case []int64:
		return boxed(0x81)
	case []amqp.Timestamp:
		return boxed(0x83)
	case []amqp.UUID:
		return boxed(0x98)
	case []amqp.Symbol:
		return boxed(0xb3)
	case []string:
		return boxed(0xb1)
	}
	return amqp.Array{}, false
}

func sameItems(a, b []any) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d and %d items", len(a), len(b))
	}
	for i := range a {
		if err := same(a[i], b[i]); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	return nil
}

// section encodes a described value.
func section(t testing.TB, dst []byte, code amqp.Code, v any) []byte {
	t.Helper()
	out, err := amqp.AppendValue(dst, amqp.Described{Descriptor: uint64(code), Value: v})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// decoded are all values of all types.
func decoded(t testing.TB) (list amqp.List) {
	for _, tc := range values {
		v, _, err := amqp.DecodeValue(unhex(t, tc.hex))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

// full is a message with every section and every field, with a body of its own.
func full(t testing.TB, body func([]byte) []byte) []byte {
	t.Helper()
	all := amqp.Map{}
	for i, v := range decoded(t) {
		all = append(all, amqp.Pair{Key: amqp.Symbol(fmt.Sprintf("x-own-%d", i)), Value: v})
	}
	odd := append(amqp.Map{{Key: uint64(7), Value: "a number for a key"}, {Key: "ä", Value: "a string for a key"}}, all...)
	b := amqp.AppendHeader(nil, amqp.Header{Durable: true, Priority: amqp.Some[uint8](9), TTL: amqp.Some[uint32](1 << 31),
		FirstAcquirer: true, DeliveryCount: 3})
	b = section(t, b, amqp.CodeDeliveryAnnotations, odd)
	b = section(t, b, amqp.CodeMessageAnnotations, odd)
	b = amqp.AppendProperties(b, &amqp.Properties{
		MessageID: amqp.AppendUlong(nil, 1<<63), UserID: []byte{0xff, 0}, To: []byte("to"), Subject: []byte(""),
		ReplyTo: []byte("ö"), CorrelationID: amqp.AppendBinary(nil, []byte{0}), ContentType: []byte("text/plain"),
		ContentEncoding: []byte("gzip"), AbsoluteExpiryTime: amqp.Some[amqp.Timestamp](1 << 60),
		CreationTime: amqp.Some[amqp.Timestamp](-1), GroupID: []byte("s\u2028"), GroupSequence: amqp.Some[uint32](1<<32 - 1),
		ReplyToGroupID: []byte("r"),
	})
	named := amqp.Map{}
	for i, v := range decoded(t) {
		named = append(named, amqp.Pair{Key: fmt.Sprint("p", len(values)-i), Value: v}) // not in the order of the alphabet
	}
	b = section(t, b, amqp.CodeApplicationProperties, named)
	b = body(b)
	return section(t, b, amqp.CodeFooter, odd)
}

// bodies are bodies of all kinds.
func bodies(t testing.TB) map[string]func([]byte) []byte {
	return map[string]func([]byte) []byte{
		"none":     func(b []byte) []byte { return b },
		"data":     func(b []byte) []byte { return amqp.AppendData(b, []byte("text\x00\U0001f600")) },
		"no bytes": func(b []byte) []byte { return amqp.AppendData(b, nil) },
		"several data": func(b []byte) []byte {
			return amqp.AppendData(amqp.AppendData(amqp.AppendData(b, []byte{0xff}), nil), []byte("last"))
		},
		"sequences": func(b []byte) []byte {
			return section(t, section(t, b, amqp.CodeAMQPSequence, decoded(t)), amqp.CodeAMQPSequence, amqp.List{})
		},
		"value":      func(b []byte) []byte { return section(t, b, amqp.CodeAMQPValue, decoded(t)) },
		"null":       func(b []byte) []byte { return section(t, b, amqp.CodeAMQPValue, nil) },
		"text value": func(b []byte) []byte { return section(t, b, amqp.CodeAMQPValue, "<&>\u2028\"") },
		"malformed value": func(b []byte) []byte { // a string that is no UTF-8
			return append(b, 0x00, 0x53, byte(amqp.CodeAMQPValue), 0xa1, 0x01, 0xff)
		},
	}
}

// sections are the values of the sections of a message, by code.
func sections(t testing.TB, payload []byte) map[any][]any {
	t.Helper()
	all := map[any][]any{}
	for at := payload; len(at) > 0; {
		v, rest, err := amqp.DecodeValue(at)
		if err != nil {
			raw, rawErr := amqp.FirstValue(at)
			if rawErr != nil {
				t.Fatal(err)
			}
			v, rest = amqp.Described{Descriptor: "malformed", Value: []byte(raw)}, at[len(raw):]
		}
		d := v.(amqp.Described)
		if name, isSymbol := d.Descriptor.(amqp.Symbol); isSymbol {
			d.Descriptor = codes[string(name)]
		}
		all[d.Descriptor] = append(all[d.Descriptor], d.Value)
		at = rest
	}
	return all
}

var codes = map[string]uint64{"amqp:header:list": 0x70, "amqp:delivery-annotations:map": 0x71, "amqp:message-annotations:map": 0x72,
	"amqp:properties:list": 0x73, "amqp:application-properties:map": 0x74, "amqp:data:binary": 0x75,
	"amqp:amqp-sequence:list": 0x76, "amqp:amqp-value:*": 0x77, "amqp:footer:map": 0x78}

// equalMessages compares two encoded messages value by value, without the code under test. Header and properties may
// leave out their last fields; an empty map says as much as none.
func equalMessages(t testing.TB, a, b []byte) error {
	t.Helper()
	x, y := sections(t, a), sections(t, b)
	for code := range codes {
		u, v := x[codes[code]], y[codes[code]]
		switch codes[code] {
		case 0x70, 0x73:
			if len(u) != len(v) {
				return fmt.Errorf("%s: %d and %d sections", code, len(u), len(v))
			}
			if len(u) == 1 {
				u, v = withoutNulls(codes[code], u[0].(amqp.List)), withoutNulls(codes[code], v[0].(amqp.List))
			}
		case 0x71, 0x72, 0x74, 0x78:
			u, v = withoutEmpty(u), withoutEmpty(v)
		}
		if err := sameItems(u, v); err != nil {
			return fmt.Errorf("%s: %w", code, err)
		}
	}
	return sameItems(x["malformed"], y["malformed"])
}

// withoutNulls leaves out the fields at the end that have their defaults.
func withoutNulls(code uint64, list amqp.List) []any {
	list = append(amqp.List{}, list...)
	if code == 0x70 { // AMQP 1.0 §3.2.1: null is the default
		for i, v := range map[int]any{0: false, 3: false, 4: uint32(0)} {
			if i < len(list) && list[i] == v {
				list[i] = nil
			}
		}
	}
	for len(list) > 0 && list[len(list)-1] == nil {
		list = list[:len(list)-1]
	}
	return list
}

func withoutEmpty(maps []any) []any {
	if len(maps) == 1 && (maps[0] == nil || reflect.DeepEqual(maps[0], amqp.Map{})) {
		return nil
	}
	return maps
}

func TestEveryPartOfAMessageComesBack(t *testing.T) {
	for name, body := range bodies(t) {
		t.Run(name, func(t *testing.T) { comesBack(t, full(t, body)) })
	}
	t.Run("an empty message", func(t *testing.T) { comesBack(t, nil) })
}

// comesBack turns a message into a line and back.
func comesBack(t testing.TB, payload []byte) {
	t.Helper()
	m, err := Decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	line, err := m.Line()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsAny(line, "\n\r") {
		t.Fatalf("more than one line: %q", line)
	}
	read, err := Parse(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	encoded, err := read.Encode()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if err := equalMessages(t, payload, encoded); err != nil {
		t.Fatalf("%v\nbefore % x\nafter  % x\nline   %s", err, payload, encoded, line)
	}
}

func TestWhatABrokerSaysStandsApart(t *testing.T) {
	enqueued := amqp.Timestamp(1_770_000_000_000)
	b := amqp.AppendHeader(nil, amqp.Header{TTL: amqp.Some[uint32](60_000), DeliveryCount: 2})
	b = section(t, b, amqp.CodeDeliveryAnnotations, amqp.Map{{Key: amqp.Symbol(annLockToken), Value: amqp.UUID{1}}})
	b = section(t, b, amqp.CodeMessageAnnotations, amqp.Map{
		{Key: amqp.Symbol(annEnqueuedTime), Value: enqueued}, {Key: amqp.Symbol(annNumber), Value: int64(7)},
		{Key: amqp.Symbol(annFirstNumber), Value: int64(3)}, {Key: amqp.Symbol(annState), Value: int32(1)},
		{Key: amqp.Symbol(annScheduledTime), Value: enqueued - 1}, {Key: amqp.Symbol(annDeadSource), Value: "orders"},
		{Key: amqp.Symbol(annLockedUntil), Value: enqueued + 1}, {Key: amqp.Symbol("x-opt-partition-key"), Value: "k"},
	})
	m, err := FromBroker(b)
	if err != nil {
		t.Fatal(err)
	}
	line, err := m.Line()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"format":1,"sequenceNumber":7,"state":"deferred","enqueuedAt":"2026-02-02T02:40:00.000Z",` +
		`"scheduledAt":"2026-02-02T02:39:59.999Z","expiresAt":"2026-02-02T02:41:00.000Z","lockedUntil":"2026-02-02T02:40:00.001Z",` +
		`"deadLetterSource":"orders","header":{"ttl":60000,"deliveryCount":2},"messageAnnotations":[["x-opt-partition-key","k"]]}`
	if string(line) != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
	if err := m.Schedule(); err != nil {
		t.Fatal(err)
	}
	sent, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	annotations := sections(t, sent)[uint64(amqp.CodeMessageAnnotations)]
	if err := sameItems(annotations, []any{amqp.Map{{Key: amqp.Symbol("x-opt-partition-key"), Value: "k"},
		{Key: amqp.Symbol(annScheduledTime), Value: enqueued - 1}}}); err != nil {
		t.Error(err)
	}
	for _, tc := range []struct {
		after time.Duration
		alive bool
		ttl   uint32
	}{{time.Second, true, 59_000}, {time.Minute, false, 60_000}, {time.Hour, false, 60_000}} {
		m, err := Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		alive, err := m.KeepExpiry(time.UnixMilli(int64(enqueued)).Add(tc.after))
		if err != nil || alive != tc.alive || *m.Header.TTL != tc.ttl {
			t.Errorf("after %v: alive %t with %d ms, want %t with %d, %v", tc.after, alive, *m.Header.TTL, tc.alive, tc.ttl, err)
		}
	}
}

func TestBadLinesSayWhatToDo(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{`{"format":1`, "cut off"},
		{`{"format":1} {"format":1}`, "more behind the object"},
		{`{}`, "the format is 0, want 1"},
		{`{"format":2}`, "the format is 2, want 1"},
		{"{\"format\":1,\"deadLetterSource\":\"\xff\"}", "not UTF-8"},
		{`{"format":1,"body":"x"}`, `unknown field "body"`},
		{`{"format":1,"value":5}`, `value: the number 5 has no type: write {"int":5}`},
		{`{"format":1,"value":[1]}`, `value: a list has no type: write {"list":[...]}`},
		{`{"format":1,"value":{"int":1,"long":2}}`, "an object with 2 fields"},
		{`{"format":1,"value":{"integer":1}}`, "value: integer: there is no such type of AMQP"},
		{`{"format":1,"value":{"ubyte":256}}`, `value: ubyte: "256" is no whole number from 0 of 8 bits`},
		{`{"format":1,"value":{"int":1.5}}`, `int: "1.5" is no whole number of 32 bits`},
		{`{"format":1,"value":{"double":"0x1"}}`, `double: "0x1" has not 16 hexadecimal digits`},
		{`{"format":1,"value":{"double":"much"}}`, `double: "much" is no number of 64 bits`},
		{`{"format":1,"value":{"timestamp":"noon"}}`, `"noon" is no time such as`},
		{`{"format":1,"value":{"timestamp":"2026-01-31T12:00:00.0001Z"}}`, "is no time such as"},
		{`{"format":1,"value":{"uuid":"1"}}`, "has not 32 hexadecimal digits"},
		{`{"format":1,"value":{"symbol":"ä"}}`, "is not ASCII"},
		{`{"format":1,"value":{"binary":"*"}}`, "is not base64"},
		{`{"format":1,"value":{"map":[["a"]]}}`, "pair 1: want [key,value]"},
		{`{"format":1,"value":{"map":{"a":"b"}}}`, "want a list of pairs"},
		{`{"format":1,"value":{"described":{"value":1}}}`, `want {"descriptor":...,"value":...}`},
		{`{"format":1,"value":{"described":{"descriptor":{"list":[]},"value":null}}}`, "a descriptor is no list"},
		{`{"format":1,"value":{"array":{"of":"int","items":[{"long":1}]}}}`, "an item is not of type int"},
		{`{"format":1,"value":{"array":{"of":"integer","items":[]}}}`, `no type "integer"`},
		{`{"format":1,"value":{"array":{"of":"int","items":[],"more":1}}}`, `no field "more"`},
		{`{"format":1,"value":` + strings.Repeat(`{"list":[`, 40) + strings.Repeat(`]}`, 40) + `}`, "nested deeper than 32"},
		{`{"format":1,"data":["x"]}`, "section 1 of data: want"},
		{`{"format":1,"sequence":["x"]}`, "section 1 of sequence: want"},
		{`{"format":1,"data":[{"text":"x"}],"value":null}`, "a message has one of"},
		{`{"format":1,"encoded":"AFNwRQ=="}`, "encoded holds no sections of a body"},
		{`{"format":1,"properties":{"messageId":{"int":1}}}`, "messageId is no string, ulong, uuid or binary"},
		{`{"format":1,"properties":{"userId":"x"}}`, "userId is no binary"},
		{`{"format":1,"properties":{"creationTime":true}}`, "creationTime: want a time"},
		{`{"format":1,"header":{"priority":300}}`, "cannot unmarshal number 300"},
	} {
		m, err := Parse([]byte(tc.line))
		if err == nil {
			_, err = m.Encode()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", tc.line, err, tc.want)
		}
	}
}

// FuzzDecode: what a broker may store comes back from its line with every value.
func FuzzDecode(f *testing.F) {
	for _, body := range bodies(f) {
		f.Add(full(f, body))
	}
	for _, tc := range values {
		f.Add(append([]byte{0x00, 0x53, byte(amqp.CodeAMQPValue)}, unhex(f, tc.hex)...))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if _, err := Decode(payload); err != nil {
			return
		}
		comesBack(t, payload)
	})
}

// FuzzParse: no line makes a message that differs from its own line.
func FuzzParse(f *testing.F) {
	for _, body := range bodies(f) {
		m, err := Decode(full(f, body))
		if err != nil {
			f.Fatal(err)
		}
		line, err := m.Line()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := Parse(line)
		if err != nil {
			return
		}
		payload, err := m.Encode()
		if err != nil {
			return
		}
		comesBack(t, payload)
	})
}
