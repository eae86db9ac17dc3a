package transport

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

func TestAMessageIsShown(t *testing.T) {
	value := func(v any) []byte {
		b, err := amqp.AppendValueBody(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		body           []byte
		text, encoding string
		bytes          int
	}{
		"text":              {amqp.AppendData(nil, []byte("hello")), "hello", "", 5},
		"two data sections": {amqp.AppendData(amqp.AppendData(nil, []byte("hel")), []byte("lo")), "hello", "", 5},
		"bytes":             {amqp.AppendData(nil, []byte{0xff, 0xfe}), "//4=", "base64", 2},
		"a text value":      {value("hello"), "hello", "", 5},
		"a binary value":    {value([]byte("hello")), "hello", "", 5},
		"a number":          {value(int32(7)), "VAc=", "base64 of AMQP", 2},
		"nothing":           {nil, "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			raw := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "m"), GroupID: []byte{}})
			m, _, _, bad := translateMessage(append(raw, c.body...), &fsm.Descriptor{}, noID)
			if bad != nil {
				t.Fatal(bad)
			}
			s, err := Show(&fsm.Delivery{Seq: 5, Body: m.Body, State: fsm.StateDeferred, EnqueuedAt: 1000, ExpiresAt: fsm.Wall(fsm.Unlimited)})
			if err != nil || s.Body != c.text || s.BodyEncoding != c.encoding || s.BodyBytes != c.bytes {
				t.Fatalf("%+v, %v", s, err)
			}
			if s.SequenceNumber != 5 || s.State != "deferred" || s.SessionID == nil || *s.SessionID != "" || s.MessageID != "m" ||
				s.ExpiresAt != nil || !s.EnqueuedAt.Equal(time.UnixMilli(1000)) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Whatever clients put into properties, the answer is JSON.
func TestPropertiesAreShownInJSON(t *testing.T) {
	w := amqp.BeginMapSection(nil, amqp.CodeApplicationProperties)
	put := func(key string, v any) {
		raw, err := amqp.AppendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		w.Raw(key, raw)
	}
	put("NaN", math.NaN())
	put("large", int64(math.MaxInt64))
	put("small", int32(-3))
	put("time", amqp.Timestamp(0))
	put("far", amqp.Timestamp(math.MaxInt64))
	put("nil", nil)
	put("id", amqp.UUID{1})
	put("bytes", []byte{1})
	put("char", amqp.Char('x'))
	put("decimal", amqp.Decimal32{1})
	put("sent", "old")
	m, _, _, bad := translateMessage(append(w.End(), amqp.AppendData(nil, nil)...), &fsm.Descriptor{}, noID)
	if bad != nil {
		t.Fatal(bad)
	}
	s, err := Show(&fsm.Delivery{Body: m.Body, Properties: []fsm.Property{{Key: "sent", Value: amqp.AppendString(nil, "new")}}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(s.Properties)
	want := `{"NaN":"NaN","bytes":"AQ==","char":"x","decimal":"7401000000","far":9223372036854775807,` +
		`"id":"01000000-0000-0000-0000-000000000000","large":"9223372036854775807","nil":null,"sent":"new","small":-3,"time":0}`
	if err != nil || string(out) != want {
		t.Errorf("got %s, %v", out, err)
	}
	if _, err := Show(&fsm.Delivery{Body: []byte("x")}); err == nil {
		t.Error("bytes that are no message are shown")
	}
}

// A6: callers without a link share pumps, but never one at a time.
func TestCallersDoNotShareAPump(t *testing.T) {
	ts := startServer(t, 1)
	d := ts.broker.queue("orders")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			m := fsm.Message{Body: (&stored.Message{}).AppendHead(nil)}
			out, err := ts.Propose(context.Background(), waist.ShareKey(d, fsm.Main, 0), &fsm.Enqueue{Messages: []fsm.Message{m}})
			if err != nil || out.Refusal != fsm.None || out.Repeated {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
	wg.Wait()
	a, err := ts.Query(context.Background(), waist.ShareKey(d, fsm.Main, 0), &fsm.Counts{})
	if err != nil || a.Counts.Active != 20 {
		t.Errorf("%+v, %v", a.Counts, err)
	}
}
