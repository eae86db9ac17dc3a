package fsm

import (
	"testing"

	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/fsm/stored"
)

// management-api.md 4.3: where system properties come from, in short and long forms.
func TestSystemPropertiesOfAStoredMessage(t *testing.T) {
	annotations := string(appendSized(nil, map32, []byte("\xa3\x13x-opt-partition-key\xa1\x02pk\xa3\x17x-opt-via-partition-key\xa1\x01v"), 4))
	fields := map[rule.SystemProperty]string{rule.MessageID: "m", rule.To: "t", rule.Label: "s", rule.ReplyTo: "r",
		rule.CorrelationID: "c", rule.ContentType: "ct", rule.SessionID: "g", rule.ReplyToSessionID: "rg"}
	b := storedMessage("body", []string{"Color:red"}, fields, annotations)
	m, err := stored.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	m.Set(stored.Priority|stored.TTL, true)
	m.Priority, m.TTL = 9, 0x1000
	b = append(m.AppendHead(nil), m.Bare...)
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
}

// Stored bytes of a faulty front end are looked at without a panic, and never beyond their end.
func FuzzView(f *testing.F) {
	f.Add(storedMessage("x", []string{"a:1", "b:c"}, map[rule.SystemProperty]string{rule.MessageID: "m", rule.SessionID: "g"}, "\xc1\x01\x00"))
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
