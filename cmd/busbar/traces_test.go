package main

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// spanCollector is a collector of OpenTelemetry on a socket of its own.
type spanCollector struct {
	*httptest.Server
	t       *testing.T
	mu      sync.Mutex
	spans   []*otlp.Span
	service string
	changed chan struct{}
}

func newCollector(t *testing.T) *spanCollector {
	t.Helper()
	c := &spanCollector{t: t, changed: make(chan struct{}, 1)}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *spanCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			c.t.Error(err)
			return
		}
		body = unzipped
	}
	b, err := io.ReadAll(body)
	var request collect.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(b, &request)
	}
	if r.URL.Path != "/v1/traces" || err != nil {
		c.t.Errorf("%s: %v", r.URL.Path, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		c.service = attributeOf(of.GetResource().GetAttributes(), "service.name")
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// span waits for the only span of that name.
func (c *spanCollector) span(name string) *otlp.Span {
	c.t.Helper()
	for {
		c.mu.Lock()
		var found []*otlp.Span
		var names []string
		for _, s := range c.spans {
			names = append(names, s.GetName())
			if s.GetName() == name {
				found = append(found, s)
			}
		}
		c.mu.Unlock()
		if len(found) > 1 {
			c.t.Fatalf("%d spans %q", len(found), name)
		}
		if len(found) == 1 {
			return found[0]
		}
		select {
		case <-c.changed:
		case <-c.t.Context().Done():
			c.t.Fatalf("no span %q among %q", name, names)
		case <-time.After(time.Minute):
			c.t.Fatalf("no span %q among %q", name, names)
		}
	}
}

func attributeOf(all []*common.KeyValue, key string) string {
	for _, a := range all {
		if a.GetKey() == key {
			if text := a.GetValue().GetStringValue(); text != "" {
				return text
			}
			return fmt.Sprint(a.GetValue().GetIntValue())
		}
	}
	return ""
}

const (
	tracedID   = "4bf92f3577b34da6a3ce929d0e0e4736"
	tracedSpan = "00f067aa0ba902b7"
)

// Decision 0096: the stations of a message that its application traces are spans of that trace, each below the one that caused it.
func TestTheStationsOfATracedMessageAreSpans(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_SERVICE_NAME", "orders-broker")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	l := openLive(t, nodeConfig(t, nil))
	l.put(t, "/to", "QueueDescription", "")
	l.put(t, "/q", "QueueDescription", "")
	l.put(t, "/via", "QueueDescription", "<ForwardTo>to</ForwardTo>")
	session := l.amqpSession(t, nil)
	began := time.Now().Add(-time.Second)
	send := func(queue, name, parent string) {
		t.Helper()
		s, err := session.NewSender(t.Context(), queue, nil)
		if err == nil {
			m := amqp.NewMessage([]byte("x"))
			m.ApplicationProperties = map[string]any{name: parent, "tracestate": "vendor=1"}
			err = s.Send(t.Context(), m, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	receive := func(queue string, settle func(*amqp.Receiver, *amqp.Message) error) {
		t.Helper()
		r, err := session.NewReceiver(t.Context(), queue, &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()})
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.Receive(t.Context(), nil)
		if err == nil {
			err = settle(r, m)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	below := func(name string, parent []byte, want map[string]string) *otlp.Span {
		t.Helper()
		s := c.span(name)
		if hex.EncodeToString(s.GetTraceId()) != tracedID || !slices.Equal(s.GetParentSpanId(), parent) || s.GetTraceState() != "vendor=1" {
			t.Errorf("%s: trace %x below %x with state %q, want it below %x", name, s.GetTraceId(), s.GetParentSpanId(), s.GetTraceState(), parent)
		}
		if from, to := int64(s.GetStartTimeUnixNano()), int64(s.GetEndTimeUnixNano()); from > to || from < began.UnixNano() || to > time.Now().UnixNano() {
			t.Errorf("%s lasts from %d to %d", name, from, to)
		}
		for key, value := range want {
			if got := attributeOf(s.GetAttributes(), key); got != value {
				t.Errorf("%s: %s is %q, want %q", name, key, got, value)
			}
		}
		return s
	}
	producer, _ := hex.DecodeString(tracedSpan)
	parent := "00-" + tracedID + "-" + tracedSpan + "-01"

	send("q", "Diagnostic-Id", parent)
	accept := below("accept q", producer, map[string]string{"messaging.system": "servicebus", "messaging.destination.name": "q", "error.type": ""})
	below("commit q", accept.GetSpanId(), nil)
	receive("q", func(r *amqp.Receiver, m *amqp.Message) error {
		return r.RejectMessage(t.Context(), m, &amqp.Error{Condition: "com.microsoft:dead-letter",
			Info: map[string]any{"DeadLetterReason": "broken"}})
	})
	deliver := below("deliver q", producer, map[string]string{"messaging.servicebus.message.delivery_count": "1"})
	below("dead-letter q", deliver.GetSpanId(), map[string]string{"messaging.servicebus.disposition_status": "dead_letter",
		"busbar.dead_letter.reason": "broken", "busbar.sequence_number": attributeOf(deliver.GetAttributes(), "busbar.sequence_number")})
	receive("q/$DeadLetterQueue", func(r *amqp.Receiver, m *amqp.Message) error { return r.AcceptMessage(t.Context(), m) })
	deliver = below("deliver q/$DeadLetterQueue", producer, map[string]string{"busbar.dead_letter.reason": "broken"})
	below("settle q/$DeadLetterQueue", deliver.GetSpanId(), map[string]string{"messaging.servicebus.disposition_status": "complete"})

	send("via", "traceparent", parent)
	below("forward via", producer, map[string]string{"busbar.forward.destination": "to"})

	// What is refused has its code. Over HTTP a trace is a header.
	l.put(t, "/shut", "QueueDescription", "<Status>SendDisabled</Status>")
	if res, text := l.request(t, http.MethodPost, "/shut/messages", "x", "", "traceparent", parent, "tracestate", "vendor=1"); res.StatusCode < 400 {
		t.Fatalf("a send to a queue that is shut: %d %s", res.StatusCode, text)
	}
	shut := below("accept shut", producer, map[string]string{"error.type": "MessagingEntityDisabled"})
	if shut.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR {
		t.Errorf("the status of a refused send is %v", shut.GetStatus())
	}

	// What is not traced, or not sampled, has no span. The spans of the message behind tell that those would have come.
	l.put(t, "/quiet", "QueueDescription", "")
	for _, silent := range []string{"00-" + tracedID + "-" + tracedSpan + "-00", "", "nonsense"} {
		send("quiet", "traceparent", silent)
	}
	send("quiet", "traceparent", parent)
	below("accept quiet", producer, nil)
	if c.mu.Lock(); c.service != "orders-broker" {
		t.Errorf("the service is %q", c.service)
	}
	c.mu.Unlock()
}

// A collector that is away holds up no message, and is told once. A node that stops sends its last spans.
func TestACollectorThatIsAway(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.URL+"/v1/traces")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
	l := openLive(t, nodeConfig(t, nil))
	l.put(t, "/q", "QueueDescription", "")
	post := func() {
		t.Helper()
		if res, text := l.request(t, http.MethodPost, "/q/messages", "x", "", "traceparent", "00-"+tracedID+"-"+tracedSpan+"-01"); res.StatusCode != http.StatusCreated {
			t.Fatalf("%d %s", res.StatusCode, text)
		}
	}
	post()
	if err := l.node.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.span("accept q")

	c.Close()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "50")
	l = openLive(t, nodeConfig(t, nil))
	l.put(t, "/q", "QueueDescription", "")
	for range 20 {
		post()
	}
	for !strings.Contains(l.log.String(), "traces are not exported") {
		select {
		case <-t.Context().Done():
			t.Fatal("nobody is told")
		case <-time.After(10 * time.Millisecond):
		}
	}
	for range 20 {
		post()
	}
	if n := strings.Count(l.log.String(), "traces are not exported"); n != 1 {
		t.Errorf("it is told %d times", n)
	}
}

// What the environment asks for and Busbar cannot do is told before a node serves, with the cure.
func TestTheEnvironmentOfTraces(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want string // of the error
	}{
		"another exporter": {map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, `OTEL_TRACES_EXPORTER is "zipkin": set it to otlp or none`},
		"another protocol": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			`OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": Busbar speaks http/protobuf`},
		"another protocol of traces": {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
			`OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is "http/json"`},
		"the protocol of traces counts": {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ""},
		"all of it off": {map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "zipkin"}, ""},
		"traces off":    {map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ""},
		"not asked for": {map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range c.env {
				t.Setenv(key, value)
			}
			cfg := nodeConfig(t, nil)
			out, code := execute(t, newConfigCommand(), "", "check", "--dev", "--data-dir", cfg.DataDir)
			if want := map[bool]int{true: 0, false: exit.Usage}[c.want == ""]; code != want || !strings.Contains(out, c.want) {
				t.Errorf("config check: %d %s", code, out)
			}
		})
	}
}
