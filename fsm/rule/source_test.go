package rule

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
)

func everyValue() []Property {
	var list []Property
	for i, v := range []Value{{}, OfBool(true), OfBool(false), OfInt(math.MinInt64), OfInt(5),
		OfUint(math.MaxUint64), OfFloat(1.5), OfFloat(math.Inf(-1)), OfFloat(math.SmallestNonzeroFloat64),
		OfString(""), OfString("a:ü"), OfGuid([16]byte{0xde, 0xad, 15: 1}), OfTimestamp(-1),
		OfDateTime(maxDateTime), OfDuration(math.MinInt64), OfDecimal("\x00\xff"), OfBinary("")} {
		list = append(list, Property{Name: "@p" + string(rune('a'+i)), Value: v, Type: "long"})
	}
	return list
}

func sources() map[string]Source {
	return map[string]Source{
		"default": Default(),
		"false":   {Kind: FalseFilter},
		"sql": {Kind: SQLFilter, Expression: "color = @c",
			Parameters: []Property{{Name: "@c", Value: OfString("red"), Type: "string"}}},
		"every kind": {Kind: SQLFilter, Expression: "1=1", Parameters: everyValue(),
			Action: "SET a = @pa", ActionParameters: everyValue()},
		"correlation": {Kind: CorrelationFilter, Correlation: &Correlation{
			CorrelationID: text("c1"), Label: text(""),
			Properties: []Property{{Name: "region", Value: OfString("eu")}}},
			Action: "SET hit = 1"},
	}
}

// S-222, S-259: a rule reads back from the log and the catalog as it was written, and compiles.
func TestSourceReadsBack(t *testing.T) {
	for name, want := range sources() {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeSource(want.Append(nil))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("binary: got %+v, %v", got, err)
			}
			written, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			var read Source
			if err := json.Unmarshal(written, &read); err != nil || !reflect.DeepEqual(read, want) {
				t.Errorf("JSON %s: got %+v, %v", written, read, err)
			}
			r, err := read.Compile()
			if err != nil || r.Filter.Kind() != want.Kind || (r.Action == nil) != (want.Action == "") {
				t.Errorf("compiled: %+v, %v", r, err)
			}
		})
	}
}

// The bytes are for ever: a log may hold them.
func TestSourceBytes(t *testing.T) {
	for name, want := range map[string]string{
		"default": "010200000000" + "00",
		"sql": "0101" + "0a" + hex.EncodeToString([]byte("color = @c")) + "01" +
			"02" + hex.EncodeToString([]byte("@c")) + "0a" + hex.EncodeToString([]byte("string:red")) +
			"06" + hex.EncodeToString([]byte("string")) + "00" + "0000",
		"correlation": "0104" + "0000" + "01" + "01026331" + "000000" + "0100" + "000000" +
			"01" + "06" + hex.EncodeToString([]byte("region")) +
			"09" + hex.EncodeToString([]byte("string:eu")) + "00" +
			"0b" + hex.EncodeToString([]byte("SET hit = 1")) + "00",
	} {
		s := sources()[name]
		if got := hex.EncodeToString(s.Append(nil)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

// S-215: the rule of a subscription that was given none.
func TestTheDefaultRuleSelectsEverything(t *testing.T) {
	s := Default()
	r, err := s.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Filter.Match(&message{}); !got || err != nil || r.Action != nil {
		t.Errorf("got %v, %v, action %v", got, err, r.Action)
	}
	if got, err := False().Match(&message{}); got || err != nil {
		t.Errorf("the false filter: got %v, %v", got, err)
	}
}

func TestSourcesThatDoNotCompile(t *testing.T) {
	for name, c := range map[string]struct {
		s    Source
		want string
	}{
		"no kind":        {Source{}, "there is no filter of kind 0"},
		"unknown kind":   {Source{Kind: 9}, "there is no filter of kind 9"},
		"no expression":  {Source{Kind: SQLFilter}, "expected a value"},
		"syntax":         {Source{Kind: SQLFilter, Expression: "a ="}, "at character 4"},
		"true and more":  {Source{Kind: TrueFilter, Expression: "1=1"}, "only a SQL filter"},
		"no correlation": {Source{Kind: CorrelationFilter}, "at least one property"},
		"two filters":    {Source{Kind: TrueFilter, Correlation: &Correlation{}}, "only a correlation filter"},
		"syntax of the action": {Source{Kind: TrueFilter, Action: "SET"},
			"at character 4"},
		"parameters of no action": {Source{Kind: TrueFilter, ActionParameters: []Property{{Name: "a"}}},
			"expected SET or REMOVE"},
		"parameter without a name": {Source{Kind: SQLFilter, Expression: "1=1",
			Parameters: []Property{{Name: "@"}}},
			"has no name"},
		"parameter twice": {Source{Kind: SQLFilter, Expression: "1=1",
			Parameters: []Property{{Name: "@a"}, {Name: "a"}}}, "given twice"},
		"too large": {Source{Kind: SQLFilter, Expression: "1=1", Parameters: []Property{
			{Name: "@a", Value: OfString(strings.Repeat("x", MaxSourceBytes))}}}, "larger than 65536 bytes"},
		"too many": {Source{Kind: SQLFilter, Expression: "1=1",
			Parameters: make([]Property, MaxSourceBytes/valueBytes+1)}, "larger than 65536 bytes"},
	} {
		if _, err := c.s.Compile(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestMalformedSources(t *testing.T) {
	s := sources()["correlation"]
	whole := s.Append(nil)
	for n := range whole {
		if _, err := DecodeSource(whole[:n]); err == nil {
			t.Errorf("the first %d bytes of %d decode", n, len(whole))
		}
	}
	for name, b := range map[string]string{
		"a byte left over":    hex.EncodeToString(whole) + "00",
		"another version":     "0202000000000000",
		"a flag of 2":         "01020000020000",
		"a length beyond all": "0102ffffffffffffffffff01",
		"more than fits":      "010200ff7f0000",
		"a value of no kind":  "010200010002613a00000000",
		"a value out of range": "0102000100" + "1d" +
			hex.EncodeToString([]byte("dateTime:9000000000000000000")) + "00000000",
	} {
		raw, err := hex.DecodeString(b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeSource(raw); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestMalformedValues(t *testing.T) {
	for _, s := range []string{"", "5", "integer:", "integer:x", "integer:18446744073709551616", "boolean:1",
		"null:x", "double:", "guid:1", "guid:zz020300-0000-0000-0000-000000000000", "decimal:0", "binary:x",
		"dateTime:x", "duration:9999999999999999999", "Kind(3):1"} {
		var v Value
		if err := v.UnmarshalText([]byte(s)); err == nil {
			t.Errorf("%q: got %v", s, v)
		}
	}
}

func TestValuesGiveBackWhatTheyHold(t *testing.T) {
	guid := [16]byte{1, 15: 9}
	for name, ok := range map[string]bool{
		"bool":     OfBool(true).Bool() && !OfBool(false).Bool() && !OfInt(1).Bool(),
		"int":      OfInt(-5).Int() == -5 && OfString("5").Int() == 0,
		"uint":     OfUint(1<<63).Uint() == 1<<63 && OfUint(5) == OfInt(5) && OfInt(-1).Uint() == 0,
		"float":    OfFloat(1.5).Float() == 1.5 && OfInt(-2).Float() == -2 && OfString("").Float() == 0,
		"string":   OfString("x").Text() == "x" && OfBinary("x").Text() == "",
		"raw":      OfBinary("x").Raw() == "x" && OfDecimal("y").Raw() == "y" && OfString("x").Raw() == "",
		"guid":     OfGuid(guid).Guid() == guid && OfInt(1).Guid() == [16]byte{},
		"duration": OfMillis(5).Ticks() == 50_000 && OfMillis(5).Millis() == 5 && OfInt(5).Ticks() == 0,
		"null":     Value{}.IsNull() && !OfBool(false).IsNull(),
	} {
		if !ok {
			t.Errorf("%s does not read back", name)
		}
	}
	if got := Kind(99).String(); got != "Kind(99)" {
		t.Errorf("got %s", got)
	}
}
