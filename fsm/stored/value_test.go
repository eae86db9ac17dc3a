package stored

import (
	"testing"

	"github.com/busbar-mq/busbar/fsm/rule"
)

// management-api.md 4.2: what the types of AMQP are in the rule language, and back.
func TestAMQPValues(t *testing.T) {
	uuid := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	for encoded, want := range map[string]rule.Value{
		"\x40": {}, "\x41": rule.OfBool(true), "\x42": rule.OfBool(false),
		"\x56\x01": rule.OfBool(true), "\x56\x00": rule.OfBool(false), "\x43": rule.OfInt(0), "\x44": rule.OfInt(0),
		"\x50\xff": rule.OfInt(255), "\x51\xff": rule.OfInt(-1), "\x52\x05": rule.OfInt(5), "\x53\x06": rule.OfInt(6),
		"\x54\xfe": rule.OfInt(-2), "\x55\xfd": rule.OfInt(-3), "\x60\x01\x00": rule.OfInt(256),
		"\x61\xff\xff": rule.OfInt(-1), "\x70\xff\xff\xff\xff": rule.OfInt(1<<32 - 1), "\x71\xff\xff\xff\xfe": rule.OfInt(-2),
		"\x80\xff\xff\xff\xff\xff\xff\xff\xff": rule.OfUint(1<<64 - 1), "\x81\xff\xff\xff\xff\xff\xff\xff\xff": rule.OfInt(-1),
		"\x72\x3f\x80\x00\x00": rule.OfFloat(1), "\x82\x3f\xf0\x00\x00\x00\x00\x00\x00": rule.OfFloat(1),
		"\x73\x00\x00\x00A": rule.OfString("A"), "\x83\x00\x00\x00\x00\x00\x00\x03\xe8": rule.OfTimestamp(1000),
		"\x98" + string(uuid[:]): rule.OfGuid(uuid), "\xa1\x01x": rule.OfString("x"), "\xa3\x01y": rule.OfString("y"),
		"\xb1\x00\x00\x00\x01z": rule.OfString("z"), "\xb3\x00\x00\x00\x01w": rule.OfString("w"),
		"\x74\x00\x00\x00\x01": rule.OfDecimal("\x74\x00\x00\x00\x01"), "\xa0\x01b": rule.OfBinary("\xa0\x01b"),
		"\xa1\x01\xff": rule.OfBinary("\xa1\x01\xff"), "\xc0\x01\x00": rule.OfBinary("\xc0\x01\x00"),
		timespan + "\x55\x07": rule.OfDuration(7), "\x00\xa3\x01t\x54\x01": rule.OfBinary("\x00\xa3\x01t\x54\x01"),
	} {
		v, rest, ok := ReadValue(encoded + "!")
		if got := v.Rule(); !ok || rest != "!" || got != want {
			t.Errorf("%x: %v %v, rest %q", encoded, got, ok, rest)
		}
		back, rest, ok := ReadValue(string(AppendValue(nil, want)))
		if got := back.Rule(); !ok || rest != "" || got != want {
			t.Errorf("%v came back as %v", want, got)
		}
	}
	for _, bad := range []string{"", "\x00", "\x00\x53", "\x10", "\x50", "\x81\x00", "\xa1", "\xa1\x05x", "\xb1\x00\x00",
		"\xb1\xff\xff\xff\xffx", "\x00\x00\x00\x00\x00\x00\x40"} {
		if v, _, ok := ReadValue(bad); ok {
			t.Errorf("%x is %v", bad, v.Rule())
		}
	}
	long := string(make([]byte, 300))
	v, _, _ := ReadValue(string(AppendValue(nil, rule.OfString(long))))
	if text, _ := v.Text(); text != long {
		t.Error("a long string does not come back")
	}
	v, _, _ = ReadValue(string(AppendValue(nil, rule.OfBinary("raw"))))
	if v.code != codeBinary8 || v.content != "raw" {
		t.Errorf("a parameter's bytes became %v", v)
	}
}

// The ids of messages are compared as texts, whatever type they have.
func TestIDsAreTexts(t *testing.T) {
	for id, want := range map[string]string{"\x44": "0", "\x53\x07": "7", "\x80\x00\x00\x00\x00\x00\x00\x01\x00": "256",
		"\xa0\x01\xab": "ab", "\x98" + string(make([]byte, 16)): "00000000-0000-0000-0000-000000000000"} {
		value, _, _ := ReadValue(id)
		if got, ok := value.IDText(); !ok || got != want {
			t.Errorf("id %x is %q", id, got)
		}
	}
}
