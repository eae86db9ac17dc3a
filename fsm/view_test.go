package fsm

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
		v, rest, ok := nextValue(encoded + "!")
		if got := v.value(); !ok || rest != "!" || got != want {
			t.Errorf("%x: %v %v, rest %q", encoded, got, ok, rest)
		}
		back, rest, ok := nextValue(string(appendValue(nil, want)))
		if got := back.value(); !ok || rest != "" || got != want {
			t.Errorf("%v came back as %v", want, got)
		}
	}
	for _, bad := range []string{"", "\x00", "\x00\x53", "\x10", "\x50", "\x81\x00", "\xa1", "\xa1\x05x", "\xb1\x00\x00",
		"\xb1\xff\xff\xff\xffx", "\x00\x00\x00\x00\x00\x00\x40"} {
		if v, _, ok := nextValue(bad); ok {
			t.Errorf("%x is %v", bad, v.value())
		}
	}
	long := string(make([]byte, 300))
	v, _, _ := nextValue(string(appendValue(nil, rule.OfString(long))))
	if text, _ := v.text(); text != long {
		t.Error("a long string does not come back")
	}
	v, _, _ = nextValue(string(appendValue(nil, rule.OfBinary("raw"))))
	if v.code != codeBinary8 || v.content != "raw" {
		t.Errorf("a parameter's bytes became %v", v)
	}
}

// management-api.md 4.3: where system properties come from, in short and long forms.
func TestSystemPropertiesOfAStoredMessage(t *testing.T) {
	annotations := string(appendSized(nil, codeMap32, []byte("\xa3\x13x-opt-partition-key\xa1\x02pk\xa3\x17x-opt-via-partition-key\xa1\x01v"), 4))
	fields := map[int]string{fieldMessageID: "m", fieldTo: "t", fieldSubject: "s", fieldReplyTo: "r",
		fieldCorrelationID: "c", fieldContentType: "ct", fieldGroupID: "g", fieldReplyToGroupID: "rg"}
	b := storedMessage("body", []string{"Color:red"}, fields, annotations)
	b = append([]byte{storedVersion, storedPriority | storedTTL, 9, 0, 0, 0x10, 0}, b[2:]...)
	var v view
	v.look(b)
	v.facts = facts{number: 3, first: 2, enqueuedAt: 1000, expiresAt: 2000, scheduledAt: 500, size: len(b)}
	v.carried = &Carried{Source: "old", Reason: "why", Description: "text"}
	for p, want := range map[rule.SystemProperty]rule.Value{
		rule.Label: rule.OfString("s"), rule.MessageID: rule.OfString("m"), rule.CorrelationID: rule.OfString("c"),
		rule.To: rule.OfString("t"), rule.ReplyTo: rule.OfString("r"), rule.ReplyToSessionID: rule.OfString("rg"),
		rule.SessionID: rule.OfString("g"), rule.ContentType: rule.OfString("ct"), rule.TimeToLive: rule.OfMillis(4096),
		rule.PartitionKey: rule.OfString("pk"), rule.ViaPartitionKey: rule.OfString("v"),
		rule.ScheduledEnqueueTime: rule.OfTimestamp(500), rule.EnqueuedTime: rule.OfTimestamp(1000),
		rule.ExpiresAt: rule.OfTimestamp(2000), rule.SequenceNumber: rule.OfInt(3),
		rule.EnqueuedSequenceNumber: rule.OfInt(2), rule.DeliveryCount: rule.OfInt(0), rule.State: rule.OfString("Active"),
		rule.Size: rule.OfInt(int64(len(b))), rule.DeadLetterSource: rule.OfString("old"), rule.LockToken: {},
	} {
		if got := v.System(p); got != want {
			t.Errorf("%v is %v, want %v", p, got, want)
		}
	}
	for name, want := range map[string]string{"color": "red", "DEADLETTERREASON": "why", "DeadLetterErrorDescription": "text"} {
		if got, ok := v.User(name); !ok || got != rule.OfString(want) {
			t.Errorf("%s is %v", name, got)
		}
	}
	if v.spelling("COLOR") != "Color" || v.spelling("new") != "new" {
		t.Error("a property is renamed")
	}
	v = view{}
	v.look([]byte("\x01\x00\x00\x00\xa3\x14amqp:properties:list\x45\x00\xa3\x1eamqp:application-properties:map\xc1\x08\x04\xa1\x01a\x54\x05x"))
	if got := v.System(rule.MessageID); !got.IsNull() {
		t.Errorf("message id %v", got)
	}
	for id, want := range map[string]string{"\x44": "0", "\x53\x07": "7", "\x80\x00\x00\x00\x00\x00\x00\x01\x00": "256",
		"\xa0\x01\xab": "ab", "\x98" + string(make([]byte, 16)): "00000000-0000-0000-0000-000000000000"} {
		value, _, _ := nextValue(id)
		if got, ok := value.idText(); !ok || got != want {
			t.Errorf("id %x is %q", id, got)
		}
	}
}

// Stored bytes of a faulty front end are looked at without a panic, and never beyond their end.
func FuzzView(f *testing.F) {
	f.Add(storedMessage("x", []string{"a:1", "b:c"}, map[int]string{0: "m", 10: "g"}, "\xc1\x01\x00"))
	f.Add([]byte("\x01\x06\x00\x00\x00\x00\x00\x05\xd1\xff\xff\xff\xff"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		var v view
		v.look(b)
		for p := rule.Label; p <= rule.IsBodyConsumed; p++ {
			v.System(p)
		}
		v.User("a")
		_, _ = Carry(&Delivery{Body: b}, &Move{})
	})
}
