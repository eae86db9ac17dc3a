package amqp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// Every constructor of AMQP 1.0 §1.6, and whether it is the one that we write.
var primitives = []struct {
	hex       string
	v         any
	canonical bool
}{
	{"40", nil, true},
	{"41", true, true},
	{"42", false, true},
	{"56 01", true, false},
	{"56 00", false, false},
	{"50 ff", uint8(255), true},
	{"60 01 02", uint16(0x0102), true},
	{"43", uint32(0), true},
	{"52 00", uint32(0), false},
	{"52 ff", uint32(255), true},
	{"70 00 00 00 05", uint32(5), false},
	{"70 00 00 01 00", uint32(256), true},
	{"44", uint64(0), true},
	{"53 07", uint64(7), true},
	{"80 00 00 00 00 00 00 00 07", uint64(7), false},
	{"80 ff ff ff ff ff ff ff ff", uint64(1<<64 - 1), true},
	{"51 80", int8(-128), true},
	{"61 80 00", int16(-32768), true},
	{"54 ff", int32(-1), true},
	{"71 00 00 00 07", int32(7), false},
	{"71 00 00 00 80", int32(128), true},
	{"71 ff ff ff 7f", int32(-129), true},
	{"55 80", int64(-128), true},
	{"81 00 00 00 00 00 00 00 01", int64(1), false},
	{"81 80 00 00 00 00 00 00 00", int64(-1 << 63), true},
	{"72 3f 80 00 00", float32(1), true},
	{"82 bf f0 00 00 00 00 00 00", float64(-1), true},
	{"73 00 01 f4 a9", Char(0x1f4a9), true},
	{"74 01 02 03 04", Decimal32{1, 2, 3, 4}, true},
	{"84 01 02 03 04 05 06 07 08", Decimal64{1, 2, 3, 4, 5, 6, 7, 8}, true},
	{"94 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10",
		Decimal128{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, true},
	{"83 00 00 01 11 22 33 44 55", Timestamp(0x11122334455), true},
	{"83 ff ff ff ff ff ff ff ff", Timestamp(-1), true},
	{"98 b5 dc 4a 70 ac 5d 43 b3 b1 32 ec 8f cd ac 3a 9d", tokenUUID, true},
	{"a0 02 00 ff", []byte{0, 255}, true},
	{"b0 00 00 00 01 07", []byte{7}, false},
	{"a0 00", []byte{}, true},
	{"a1 02 c3 a9", "é", true},
	{"b1 00 00 00 01 61", "a", false},
	{"a1 00", "", true},
	{"a3 01 61", Symbol("a"), true},
	{"b3 00 00 00 01 61", Symbol("a"), false},
	{"45", List{}, true},
	{"c0 01 00", List{}, false},
	{"d0 00 00 00 04 00 00 00 00", List{}, false},
	{"c0 04 02 40 52 05", List{nil, uint32(5)}, true},
	{"d0 00 00 00 05 00 00 00 01 41", List{true}, false},
	{"c1 01 00", Map{}, true},
	{"c1 06 02 a1 01 6b 54 07", Map{{"k", int32(7)}}, true},
	{"d1 00 00 00 06 00 00 00 02 41 42", Map{{true, false}}, false},
	{"00 53 24 45", Described{uint64(0x24), List{}}, true},
	{"00 a3 01 78 a1 01 79", Described{Symbol("x"), "y"}, true},
	{"00 80 00 00 00 13 70 00 00 0c 40", Described{uint64(0x137000000c), nil}, true},
	{"00 a1 01 78 a1 01 79", Described{"x", "y"}, true}, // reserved, but a client may write it
	{"00 40 41", Described{nil, true}, true},
	{"00 98 b5 dc 4a 70 ac 5d 43 b3 b1 32 ec 8f cd ac 3a 9d 41", Described{tokenUUID, true}, true},
	{"e0 02 00 81", []int64{}, true},
	{"e0 01 00", Array{0x40, nil, []any{}}, false}, // as the Python client writes an empty array
	{"f0 00 00 00 04 00 00 00 00", Array{0x40, nil, []any{}}, false},
	{"e0 0a 01 81 00 00 00 00 00 00 00 05", []int64{5}, true},
	{"e0 04 02 55 ff 01", []int64{-1, 1}, false},
	{"e0 0a 01 83 00 00 00 00 00 00 00 05", []Timestamp{5}, true},
	{"e0 12 01 98 b5 dc 4a 70 ac 5d 43 b3 b1 32 ec 8f cd ac 3a 9d", []UUID{tokenUUID}, true},
	{"e0 06 02 a3 01 61 01 62", []Symbol{"a", "b"}, true},
	{"f0 00 00 00 0a 00 00 00 01 b3 00 00 00 01 61", []Symbol{"a"}, false},
	{"e0 05 02 a1 00 01 62", []string{"", "b"}, true},
	{"e0 0a 02 71 00 00 00 01 ff ff ff ff", Array{0x71, nil, []any{int32(1), int32(-1)}}, true},
	{"e0 04 02 56 01 00", Array{0x56, nil, []any{true, false}}, true},
	{"e0 02 03 40", Array{0x40, nil, []any{nil, nil, nil}}, true},
	{"e0 02 02 43", Array{0x43, nil, []any{uint32(0), uint32(0)}}, true},
	{"e0 02 01 45", Array{0x45, nil, []any{List{}}}, true},
	{"e0 06 02 a0 01 07 01 08", Array{0xa0, nil, []any{[]byte{7}, []byte{8}}}, true},
	{"e0 06 01 00 53 01 54 05", Array{0x54, uint64(1), []any{int32(5)}}, true},
	{"e0 05 01 00 40 54 05", Array{0x54, Raw{0x40}, []any{int32(5)}}, true},
	{"e0 07 02 c0 02 01 41 01 00", Array{0xc0, nil, []any{List{true}, List{}}}, true},
	{"e0 0b 01 d0 00 00 00 05 00 00 00 01 41", Array{0xd0, nil, []any{List{true}}}, true},
	{"e0 0a 01 d0 00 00 00 04 00 00 00 00", Array{0xd0, nil, []any{List{}}}, true},
	{"e0 06 01 c1 03 02 41 42", Array{0xc1, nil, []any{Map{{true, false}}}}, true},
	{"e0 06 01 e0 03 01 54 05", Array{0xe0, nil, []any{Array{0x54, nil, []any{int32(5)}}}}, true},
	{"e0 06 01 b0 00 00 00 00", Array{0xb0, nil, []any{[]byte{}}}, true},
}

// tokenUUID is the lock token whose tag the golden transfer has.
var tokenUUID = UUID{
	0xb5, 0xdc, 0x4a, 0x70, 0xac, 0x5d, 0x43, 0xb3,
	0xb1, 0x32, 0xec, 0x8f, 0xcd, 0xac, 0x3a, 0x9d,
}

func TestEveryConstructor(t *testing.T) {
	for _, tc := range primitives {
		t.Run(tc.hex, func(t *testing.T) {
			b := unhex(t, tc.hex)
			got, rest, err := DecodeValue(append(b[:len(b):len(b)], 0xee))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.v) || !bytes.Equal(rest, []byte{0xee}) {
				t.Errorf("got %#v, want %#v, rest % x", got, tc.v, rest)
			}
			left := newBudget(b)
			if n, err := left.checkValue(b, 0); n != len(b) || err != nil {
				t.Errorf("checked %d of %d bytes: %v", n, len(b), err)
			}
			if n, err := valueSize(b); n != len(b) || err != nil {
				t.Errorf("size %d of %d bytes: %v", n, len(b), err)
			}
			for cut := range len(b) {
				if _, _, err := DecodeValue(b[:cut]); !errors.Is(err, ErrDecode) {
					t.Errorf("the first %d bytes: %v", cut, err)
				}
			}
			again, err := AppendValue(nil, tc.v)
			if err != nil {
				t.Fatal(err)
			}
			if tc.canonical && !bytes.Equal(again, b) {
				t.Errorf("encoded % x", again)
			}
			back, _, err := DecodeValue(again)
			if err != nil || !reflect.DeepEqual(back, tc.v) {
				t.Errorf("decoded again: %#v, %v", back, err)
			}
		})
	}
}

func TestMalformedValuesAreRefused(t *testing.T) {
	deep := func(unit string, n int) []byte { return bytes.Repeat(unhex(t, unit), n) }
	nested := []byte{0x40}
	for range 40 {
		size := binary.BigEndian.AppendUint32([]byte{0xd0}, uint32(len(nested)+4))
		nested = append(append(size, 0, 0, 0, 1), nested...)
	}
	cases := map[string][]byte{
		"no bytes":                               {},
		"a constructor that does not exist":      {0x57, 0},
		"a described value without a value":      unhex(t, "00 53 10"),
		"a descriptor that is a list":            unhex(t, "00 45 40"),
		"a descriptor that is a map":             unhex(t, "00 c1 01 00 40"),
		"a descriptor that is not UTF-8":         unhex(t, "00 a1 01 ff 40"),
		"a described value as a descriptor":      unhex(t, "00 00 53 01 53 02 40"),
		"a string that is not UTF-8":             unhex(t, "a1 01 ff"),
		"a symbol that is not ASCII":             unhex(t, "a3 02 c3 a9"),
		"a boolean of 2":                         unhex(t, "56 02"),
		"a char that is a surrogate":             unhex(t, "73 00 00 d8 00"),
		"a char beyond Unicode":                  unhex(t, "73 80 00 00 00"),
		"a binary longer than its bytes":         unhex(t, "b0 ff ff ff ff 00"),
		"a list with bytes behind its items":     unhex(t, "c0 03 01 40 40"),
		"a list with fewer items than its count": unhex(t, "c0 02 02 40"),
		"a list whose size lacks the count":      unhex(t, "c0 00"),
		"a list32 whose size lacks the count":    unhex(t, "d0 00 00 00 03 00 00 00"),
		"a list of 2³²−1 items":                  unhex(t, "d0 00 00 00 04 ff ff ff ff"),
		"an item that ends behind its list":      unhex(t, "c0 03 01 a1 05 61 61 61 61 61"),
		"a map with an odd count":                unhex(t, "c1 04 03 40 40 40"),
		"an array without a constructor":         unhex(t, "e0 01 01"),
		"an array of a missing constructor":      unhex(t, "e0 02 00 57"),
		"an array with too few bytes":            unhex(t, "e0 03 02 50 01"),
		"an array with too many bytes":           unhex(t, "e0 04 01 50 01 02"),
		"an array of texts with bytes behind":    unhex(t, "e0 05 01 a1 01 61 62"),
		"an array of symbols beyond ASCII":       unhex(t, "e0 04 01 a3 01 ff"),
		"an array of strings beyond UTF-8":       unhex(t, "e0 04 01 a1 01 ff"),
		"an array of 2³²−1 nulls":                unhex(t, "f0 00 00 00 05 ff ff ff ff 40"),
		"an array of 2³²−1 longs":                unhex(t, "f0 00 00 00 05 ff ff ff ff 81"),
		"an array of 2³²−1 empty lists":          unhex(t, "f0 00 00 00 05 ff ff ff ff 45"),
		"an array of 2³²−1 strings":              unhex(t, "f0 00 00 00 05 ff ff ff ff a1"),
		"an array of booleans that are not":      unhex(t, "e0 03 01 56 02"),
		"lists nested beyond MaxDepth":           deep("d0 00 00 00 ff 00 00 00 01", 25),
		"lists nested 40 deep":                   nested,
		"described values nested a million deep": deep("00 53 01", 1<<20),
		"arrays nested a million deep":           deep("f0 ff ff ff ff 00 00 00 01", 1<<17),
		"many small arrays of no width": append(unhex(t, "d0 00 00 40 04 00 00 10 00"),
			deep("e0 02 ff 40", 1<<12)...),
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			if v, _, err := DecodeValue(b); !errors.Is(err, ErrDecode) {
				t.Errorf("decoded %.80v, %v", fmt.Sprint(v), err)
			}
			left := newBudget(b)
			if _, err := left.checkValue(b, 0); !errors.Is(err, ErrDecode) {
				t.Errorf("checked: %v", err)
			}
		})
	}
}

func TestNestingEndsAtMaxDepth(t *testing.T) {
	for _, wrap := range []func(any) any{
		func(v any) any { return List{v} },
		func(v any) any { return Map{{Key: "k", Value: v}} },
		func(v any) any { return Described{Descriptor: uint64(1), Value: v} },
	} {
		var v any = "leaf"
		for range MaxDepth {
			v = wrap(v)
		}
		b, err := AppendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := DecodeValue(b); err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%d levels of %T: %v", MaxDepth, v, err)
		}
		if _, err := AppendValue(nil, wrap(v)); !errors.Is(err, ErrDecode) {
			t.Errorf("one level more is written: %v", err)
		}
	}
}

func TestAppendValueRefusesWhatHasNoAMQPType(t *testing.T) {
	for name, v := range map[string]any{
		"a plain int":                     1,
		"a struct":                        struct{}{},
		"a list with a plain int":         List{1},
		"a map with a plain int as key":   Map{{Key: 1}},
		"a map with a plain int as value": Map{{Value: 1}},
		"a descriptor of a list":          Described{Descriptor: List{}},
		"an array of mixed items":         Array{Code: 0x71, Items: []any{int32(1), "x"}},
		"an array item too large for it":  Array{Code: 0x54, Items: []any{int32(300)}},
		"an array of an unknown code":     Array{Code: 0x57},
		"an array item with a descriptor": Array{Code: 0x40, Items: []any{Described{uint64(1),
			nil}}},
		"a binary too long for its array": Array{Code: 0xa0, Items: []any{make([]byte, 256)}},
		"a list too long for its array": Array{Code: 0xc0, Items: []any{List{strings.Repeat("x",
			300)}}},
		"an array with a plain int in it":   Array{Code: 0x71, Items: []any{1}},
		"an array described by nothing":     Array{Descriptor: 1, Code: 0x40},
		"an array within, of an other code": Array{Code: 0xc1, Items: []any{List{true}}},
	} {
		t.Run(name, func(t *testing.T) {
			dst := []byte{1, 2}
			if out, err := AppendValue(dst, v); !errors.Is(err, ErrDecode) || !bytes.Equal(out,
				dst) {
				t.Errorf("got % x, %v", out, err)
			}
		})
	}
}

// An item is written in the form that its array's constructor gives it, whichever is its shortest.
func TestItemsTakeTheFormOfTheirArray(t *testing.T) {
	for _, tc := range []struct {
		hex  string
		code byte
		item any
	}{
		{"e0 06 01 70 00 00 00 05", tUint, uint32(5)},
		{"e0 03 01 52 00", tSmallUint, uint32(0)},
		{"e0 03 01 53 00", tSmallUlong, uint64(0)},
		{"e0 0a 01 80 00 00 00 00 00 00 00 05", tUlong, uint64(5)},
		{"e0 06 01 71 ff ff ff ff", tInt, int32(-1)},
		{"e0 03 01 56 00", tBool, false},
		{"e0 07 01 b0 00 00 00 01 07", tBinary32, []byte{7}},
		{"e0 0a 01 d0 00 00 00 04 00 00 00 00", tList32, List{}},
		{"e0 04 01 c0 01 00", tList8, List{}},
		{"e0 0b 01 f0 00 00 00 05 00 00 00 00 81", tArray32, []int64{}},
	} {
		want := unhex(t, tc.hex)
		got, err := AppendValue(nil, Array{Code: tc.code, Items: []any{tc.item}})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%#v in an array of 0x%02x: % x, %v", tc.item, tc.code, got, err)
		}
	}
}

func TestStatesSayTheirCode(t *testing.T) {
	for _, s := range []DeliveryState{Received{}, Accepted{}, Rejected{}, Released{}, Modified{},
		Declared{}, &TransactionalState{}} {
		if c, _, err := readCode(appendState(nil, s)); c != s.StateCode() || err != nil {
			t.Errorf("%T: 0x%02x, %v", s, uint8(c), err)
		}
	}
}

func TestOptAndErrorText(t *testing.T) {
	if got := (Opt[int]{}).Or(7) + Some(0).Or(7); got != 7 {
		t.Errorf("absent is 7 and present 0, their sum %d", got)
	}
	var err error = &Error{Condition: ConditionNotFound, Description: "no queue"}
	if err.Error() != "amqp:not-found: no queue" {
		t.Errorf("got %q", err)
	}
}

func TestTextOfOursIsNeverMalformed(t *testing.T) {
	got, _, err := DecodeValue(AppendString(nil, "a\xffb"))
	if err != nil || got != "a\ufffdb" {
		t.Errorf("string %q, %v", got, err)
	}
	got, _, err = DecodeValue(AppendSymbol(nil, "a\xffb"))
	if err != nil || got != Symbol("a?b") {
		t.Errorf("symbol %q, %v", got, err)
	}
	got, _, err = DecodeValue(AppendArray(nil, []string{"\xff"}))
	if err != nil || !reflect.DeepEqual(got, []string{"\ufffd"}) {
		t.Errorf("array %q, %v", got, err)
	}
}

// TestWhatIsWrittenReadsBack is the property decode(encode(x)) == x over random values.
func TestWhatIsWrittenReadsBack(t *testing.T) {
	const seed = 1
	rnd := rand.New(rand.NewPCG(seed, 0))
	for i := range 5000 {
		v := randomValue(rnd, 4)
		b, err := AppendValue(nil, v)
		if err != nil {
			t.Fatalf("seed %d, value %d: %#v: %v", seed, i, v, err)
		}
		got, rest, err := DecodeValue(b)
		if err != nil || len(rest) > 0 || !reflect.DeepEqual(got, v) {
			t.Fatalf("seed %d, value %d: wrote %#v, read %#v, %v", seed, i, v, got, err)
		}
		if n, err := valueSize(b); n != len(b) || err != nil {
			t.Fatalf("seed %d, value %d: size %d of %d, %v", seed, i, n, len(b), err)
		}
	}
}

func randomValue(rnd *rand.Rand, depth int) any {
	text := func() string { return strings.Repeat("añ", rnd.IntN(3)*rnd.IntN(100)) }
	n := rnd.IntN(4) * rnd.IntN(100)
	switch k := rnd.IntN(18); {
	case k == 0:
		return text()
	case k == 1:
		return Symbol(strings.Repeat("s", n))
	case k == 2:
		return make([]byte, n)
	case k == 3:
		return uint32(rnd.Uint64() >> (32 + rnd.IntN(32)))
	case k == 4:
		return rnd.Uint64() >> rnd.IntN(64)
	case k == 5:
		return int32(rnd.Uint32()) >> rnd.IntN(32)
	case k == 6:
		return int64(rnd.Uint64()) >> rnd.IntN(64)
	case k == 7:
		return Timestamp(rnd.Uint64())
	case k == 8:
		return make([]int64, n)
	case k == 9:
		return make([]UUID, n)
	case k == 10:
		return []string{text(), text()}
	case k == 11:
		return Array{Code: 0xb0, Items: []any{make([]byte, n), []byte{}}}
	case k < 14 || depth <= 0:
		return rnd.IntN(2) == 0
	case k < 16:
		list := make(List, rnd.IntN(4)*rnd.IntN(4)*rnd.IntN(30))
		for i := range list {
			list[i] = randomValue(rnd, depth-2)
		}
		return list
	case k == 16:
		m := make(Map, rnd.IntN(5))
		for i := range m {
			m[i] = Pair{Key: text(), Value: randomValue(rnd, depth-1)}
		}
		return m
	default:
		return Described{Descriptor: rnd.Uint64() >> rnd.IntN(64), Value: randomValue(rnd, depth-1)}
	}
}

func TestNumbersAreReadWhateverTheirType(t *testing.T) { // Q23
	for v, want := range map[any]int64{
		uint8(1): 1, uint16(2): 2, uint32(3): 3, uint64(4): 4,
		int8(-1): -1, int16(-2): -2, int32(-3): -3, int64(-4): -4,
	} {
		if got, ok := ToInt64(v); !ok || got != want {
			t.Errorf("%T: %d, %t", v, got, ok)
		}
		if got, ok := rawOf(v).Int64(); !ok || got != want {
			t.Errorf("raw %T: %d, %t", v, got, ok)
		}
	}
	for _, v := range []any{uint64(1 << 63), nil, true, "1", Timestamp(1), 1.5} {
		if _, ok := ToInt64(v); ok {
			t.Errorf("%T %v is an integer", v, v)
		}
		if _, ok := rawOf(v).Int64(); ok {
			t.Errorf("raw %T %v is an integer", v, v)
		}
	}
}

func TestListsAndArraysAreReadAlike(t *testing.T) {
	for name, v := range map[string]any{
		"array of long": []int64{1, 2},
		"array of uint": Array{Code: 0x70, Items: []any{uint32(1), uint32(2)}},
		"list":          List{int32(1), uint64(2)},
	} {
		if got, ok := ToInt64s(v); !ok || !reflect.DeepEqual(got, []int64{1, 2}) {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, v := range []any{[]UUID{tokenUUID}, List{tokenUUID}} {
		if got, ok := ToUUIDs(v); !ok || !reflect.DeepEqual(got, []UUID{tokenUUID}) {
			t.Errorf("%T: %v", v, got)
		}
	}
	for _, v := range []any{[]string{"a"}, []Symbol{"a"}, List{Symbol("a")}} {
		if got, ok := ToTexts(v); !ok || !reflect.DeepEqual(got, []string{"a"}) {
			t.Errorf("%T: %v", v, got)
		}
	}
	if got, ok := ToItems([]Timestamp{5}); !ok || !reflect.DeepEqual(got, []any{Timestamp(5)}) {
		t.Errorf("timestamps: %v", got)
	}
	for _, v := range []any{nil, "x", List{"x"}, []string{"1"}, Map{}} {
		if got, ok := ToInt64s(v); ok {
			t.Errorf("%#v: %v", v, got)
		}
	}
}

func TestIDText(t *testing.T) { // Q26
	for _, tc := range []struct {
		id   any
		want string
		ok   bool
	}{
		{"m-1", "m-1", true},
		{"", "", true},
		{uint64(300), "300", true},
		{tokenUUID, "b5dc4a70-ac5d-43b3-b132-ec8fcdac3a9d", true},
		{[]byte{0xab, 1}, "ab01", true},
		{nil, "", false},
		{uint32(1), "", false},
	} {
		if got, ok := IDText(rawOf(tc.id)); got != tc.want || ok != tc.ok {
			t.Errorf("%T: %q, %t", tc.id, got, ok)
		}
	}
}

func TestLockTokenAndTag(t *testing.T) { // G12
	if got := GuidTag(tokenUUID); !bytes.Equal(got[:], guidTag) {
		t.Errorf("tag % x", got)
	}
	if got, ok := TokenFromTag(guidTag); !ok || got != tokenUUID {
		t.Errorf("token %v", got)
	}
	for _, n := range []int{0, 15, 17, 32} {
		if _, ok := TokenFromTag(make([]byte, n)); ok {
			t.Errorf("a tag of %d bytes is a token", n)
		}
	}
}

func TestTicks(t *testing.T) { // G16
	for _, tc := range []struct {
		at   Timestamp
		want int64
	}{
		{0, 621355968000000000},
		{1480539421463, 636161362214630000}, // 2016-11-30T20:57:01.463Z
		{-62135596800000, 0},                // 0001-01-01
		{-62135596800001, 0},
		{253402300799999, 3155378975999990000},
		{253402300800000, 3155378975999999999},
		{1<<63 - 1, 3155378975999999999},
		{-1 << 63, 0},
	} {
		if got := tc.at.Ticks(); got != tc.want {
			t.Errorf("%d: %d, want %d", tc.at, got, tc.want)
		}
	}
	for ticks, want := range map[int64]Timestamp{
		636161362214638052:  1480539421463,
		3155378975999999999: 253402300799999,
		0:                   -62135596800000,
		-1:                  -62135596800001,
	} {
		if got := TimestampOfTicks(ticks); got != want {
			t.Errorf("%d ticks: %d, want %d", ticks, got, want)
		}
	}
}
