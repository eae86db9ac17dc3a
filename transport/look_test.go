package transport

import (
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// A filter sees of a message that is there what its sender wrote, what was changed since, and what has become of it.
func TestFiltersSeeWhatIsThere(t *testing.T) {
	raw := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "m"), Subject: []byte("order")})
	w := amqp.BeginMapSection(raw, amqp.CodeApplicationProperties)
	w.Raw("region", amqp.AppendString(nil, "eu"))
	w.Raw("priority", amqp.AppendLong(nil, 5))
	w.Raw("gone", amqp.AppendString(nil, "x"))
	m, _, _, bad := translateMessage(amqp.AppendData(w.End(), []byte("hello")), &fsm.Descriptor{}, noID)
	if bad != nil {
		t.Fatal(bad)
	}
	d := &fsm.Delivery{Seq: 7, EnqueuedSeq: 3, Body: m.Body, Attempts: 4, State: fsm.StateDeferred, EnqueuedAt: 1000, Reason: "Poison",
		Description: "too hot", Source: "orders", Properties: []fsm.Property{{Key: "priority", Value: amqp.AppendLong(nil, 9)}, {Key: "gone"}},
		System: []fsm.SystemValue{{Property: rule.To, Value: amqp.AppendString(nil, "there")}}}
	look, err := Look(d)
	if err != nil {
		t.Fatal(err)
	}
	for filter, want := range map[string]bool{
		"region = 'eu'": true, "priority = 9": true, "priority = 5": false, "gone = 'x'": false, "sys.Label = 'order'": true,
		"sys.MessageId = 'm'": true, "sys.DeliveryCount = 4": true, "sys.SequenceNumber = 7": true, "sys.EnqueuedSequenceNumber = 3": true,
		"DeadLetterReason = 'Poison'": true, "DeadLetterErrorDescription LIKE '%hot'": true, "sys.DeadLetterSource = 'orders'": true,
		"sys.State = 'Deferred'": true, "sys.To = 'there'": true, "sys.SessionId IS NULL": true, "sys.ScheduledEnqueueTimeUtc IS NULL": true,
		"sys.EnqueuedTimeUtc IS NOT NULL": true, "sys.TimeToLive IS NULL": true, "nobody IS NULL": true, "newid() <> newid()": true,
	} {
		source := rule.Source{Kind: rule.SQLFilter, Expression: filter}
		r, err := source.Compile()
		if err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		if got, err := r.Filter.Match(look); err != nil || got != want {
			t.Errorf("%s: %v %v", filter, got, err)
		}
	}
	if _, err := Look(&fsm.Delivery{Body: []byte("x")}); err == nil {
		t.Error("bytes that are no message are one")
	}
}
