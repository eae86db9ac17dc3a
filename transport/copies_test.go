package transport

import (
	"testing"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// S-220: what the action of a rule changed is in the copy, everything else is the sender's, byte for
// byte; a message that no action touched has no copy made of its bytes.
func TestACopyHasWhatItsRuleChanged(t *testing.T) {
	text := func(s string) []byte { return amqp.AppendString(nil, s) }
	sent := goamqp.NewMessage([]byte("body"))
	sent.Properties = &goamqp.MessageProperties{MessageID: "m", Subject: ptr("old"), To: ptr("to"), GroupID: ptr("s"),
		ReplyTo: ptr("reply"), ContentType: ptr("text/plain"), CorrelationID: uint64(7), ReplyToGroupID: ptr("rs")}
	sent.ApplicationProperties = map[string]any{"keep": "k", "change": "old", "drop": int32(1)}
	sent.Annotations = goamqp.Annotations{annPartitionKey: "s", annViaPartitionKey: "via", "x-opt-own": "mine"}
	raw, err := sent.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	m, _, _, bad := translateMessage(raw, &fsm.Descriptor{}, noID)
	if bad != nil {
		t.Fatal(bad)
	}
	d := &fsm.Delivery{Seq: 1, EnqueuedAt: 1000, ScheduledAt: 900, Body: m.Body}
	read := func() *goamqp.Message {
		t.Helper()
		out, err := appendDelivery(nil, d, false)
		if err != nil {
			t.Fatal(err)
		}
		got := &goamqp.Message{}
		if err := got.UnmarshalBinary(out); err != nil {
			t.Fatalf("%v in %x", err, out)
		}
		return got
	}
	if got := read(); *got.Properties.Subject != "old" || got.ApplicationProperties["drop"] != int32(1) {
		t.Fatalf("untouched: %+v", got.Properties)
	}
	d.Properties = []fsm.Property{{Key: "change", Value: text("new")}, {Key: "drop"}, {Key: "absent"}, {Key: "add", Value: text("a")}}
	d.System = []fsm.SystemValue{
		{Property: rule.Label, Value: text("new")}, {Property: rule.To}, {Property: rule.SessionID, Value: text("s2")},
		{Property: rule.MessageID, Value: text("m2")}, {Property: rule.CorrelationID}, {Property: rule.ReplyTo, Value: text("r2")},
		{Property: rule.ContentType, Value: amqp.AppendSymbol(nil, "text/html")}, {Property: rule.ReplyToSessionID},
		{Property: rule.PartitionKey, Value: text("s2")}, {Property: rule.ViaPartitionKey}, {Property: rule.ScheduledEnqueueTime},
	}
	got := read()
	p := got.Properties
	if *p.Subject != "new" || p.To != nil || *p.GroupID != "s2" || p.MessageID != "m2" || p.CorrelationID != nil ||
		*p.ReplyTo != "r2" || *p.ContentType != "text/html" || p.ReplyToGroupID != nil {
		t.Errorf("properties %+v", p)
	}
	if a := got.ApplicationProperties; len(a) != 3 || a["keep"] != "k" || a["change"] != "new" || a["add"] != "a" {
		t.Errorf("application properties %v", a)
	}
	a := got.Annotations
	if _, via := a[annViaPartitionKey]; via || a[annPartitionKey] != "s2" || a["x-opt-own"] != "mine" || a[annScheduledTime] != nil {
		t.Errorf("annotations %v", a)
	}
	if string(got.GetData()) != "body" {
		t.Errorf("body %q", got.GetData())
	}
	shown, err := Show(d)
	if err != nil || shown.Subject != "new" || shown.PartitionKey != "s2" || *shown.SessionID != "s2" || shown.Properties["drop"] != nil {
		t.Errorf("shown %+v, %v", shown, err)
	}
}

func ptr[T any](v T) *T { return &v }
