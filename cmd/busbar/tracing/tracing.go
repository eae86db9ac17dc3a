package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/transport"
)

// The variables that decide whether there are traces (OpenTelemetry Environment Variable Specification).
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// protocolHTTP is the protocol that is spoken: OTLP in protocol buffers over HTTP.
const protocolHTTP = "http/protobuf"

// Tracer sends spans. Nil sends none. Its methods may be called from many goroutines, and do not block: beyond what
// OTEL_BSP_MAX_QUEUE_SIZE allows, spans are dropped.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// Wanted reports whether the environment asks for traces. An error names the variable that cannot be followed.
func Wanted() (bool, error) {
	if strings.EqualFold(os.Getenv(envDisabled), "true") {
		return false, nil
	}
	switch exporter := strings.TrimSpace(os.Getenv(envExporter)); exporter {
	case "none":
		return false, nil
	case "":
		if os.Getenv(envEndpoint) == "" && os.Getenv(envTracesEndpoint) == "" {
			return false, nil
		}
	case "otlp":
	default:
		return false, fmt.Errorf("%s is %q: set it to otlp or none", envExporter, exporter)
	}
	for _, name := range []string{envTracesProtocol, envProtocol} {
		switch protocol := strings.TrimSpace(os.Getenv(name)); protocol {
		case protocolHTTP:
			return true, nil
		case "":
		default:
			return false, fmt.Errorf("%s is %q: Busbar speaks %s, for which collectors listen on port 4318; set it so", name, protocol, protocolHTTP)
		}
	}
	return true, nil
}

// Open returns a tracer that sends to where the environment says, nil if it does not ask for traces. The name is that of the
// node, the version that of the program.
func Open(ctx context.Context, name, version string, log hclog.Logger) (*Tracer, error) {
	if wanted, err := Wanted(); err != nil || !wanted {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("exporter of traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "busbar"),
		attribute.String("service.instance.id", name), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err), exporter.Shutdown(ctx))
	}
	otel.SetErrorHandler(&complaints{log: log})
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about), sdktrace.WithIDGenerator(given{}))
	return &Tracer{provider: provider, tracer: provider.Tracer("busbar", trace.WithInstrumentationVersion(version))}, nil
}

// Close sends what has not been sent yet, as long as ctx lasts.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Forwarded sends the span of a message that was forwarded, if it is traced. Refused is the code of the refusal, or "".
func (t *Tracer) Forwarded(body []byte, from, to string, taken time.Time, refused string) {
	if place, ok := stored.ReadTrace(body); ok {
		t.Span(transport.Span{Trace: place.ID, Parent: place.Span, State: place.State, Station: transport.StationForward,
			Begin: taken, End: time.Now(), Entity: from, To: to, Refused: refused})
	}
}

// Span sends a span.
func (t *Tracer) Span(s transport.Span) {
	state, err := trace.ParseTraceState(s.State)
	if err != nil {
		state = trace.TraceState{} // W3C Trace Context §3.3.1: a state that cannot be read is dropped
	}
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: s.Trace, SpanID: s.Parent, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true}))
	if s.ID != [8]byte{} {
		ctx = context.WithValue(ctx, givenID{}, trace.SpanID(s.ID))
	}
	kind := trace.SpanKindServer
	if s.Station == transport.StationCommit || s.Station == transport.StationForward {
		kind = trace.SpanKindInternal
	}
	_, span := t.tracer.Start(ctx, s.Station.String()+" "+s.Entity, trace.WithTimestamp(s.Begin), trace.WithSpanKind(kind),
		trace.WithAttributes(attributes(&s)...))
	if s.Refused != "" {
		span.SetStatus(codes.Error, s.Refused)
	}
	span.End(trace.WithTimestamp(s.End))
}

// attributes are those of the semantic conventions of OpenTelemetry for messaging with Service Bus, and ours behind them.
func attributes(s *transport.Span) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("messaging.system", "servicebus"),
		attribute.String("messaging.destination.name", s.Entity), attribute.String("messaging.operation.name", s.Station.String())}
	text := func(key, value string) {
		if value != "" {
			all = append(all, attribute.String(key, value))
		}
	}
	text("error.type", s.Refused)
	text("messaging.servicebus.disposition_status", s.Verdict)
	text("busbar.dead_letter.reason", s.DeadFor)
	text("busbar.forward.destination", s.To)
	if s.Attempt != 0 {
		all = append(all, attribute.Int64("messaging.servicebus.message.delivery_count", int64(s.Attempt)))
	}
	if s.Number != 0 {
		all = append(all, attribute.Int64("busbar.sequence_number", int64(s.Number)))
	}
	return all
}

// given names spans as the front end has named them: what a client does with a delivery is below the span of that delivery.
type given struct{}

type givenID struct{}

// NewIDs implements [sdktrace.IDGenerator]. No span of a node begins a trace.
func (g given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	span := g.NewSpanID(ctx, trace.TraceID{})
	var id trace.TraceID
	copy(id[:], span[:])
	return id, span
}

// NewSpanID implements [sdktrace.IDGenerator].
func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if id, ok := ctx.Value(givenID{}).(trace.SpanID); ok {
		return id
	}
	return transport.NewSpanID()
}

// complainEvery is how often a fault of the exporter is told at most.
const complainEvery = time.Minute

// complaints tells of faults of the exporter.
type complaints struct {
	log  hclog.Logger
	mu   sync.Mutex
	told time.Time
}

// Handle implements [otel.ErrorHandler].
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.told) < complainEvery {
		return
	}
	c.told = time.Now()
	c.log.Warn("traces are not exported", "error", err)
}
