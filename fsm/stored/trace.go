package stored

import (
	"encoding/hex"
	"strings"
)

// Trace is the place of a message in a distributed trace, as W3C Trace Context has it.
type Trace struct {
	ID    [16]byte
	Span  [8]byte // of whoever sent the message
	State string  // tracestate, at most maxTraceState bytes
}

// The application properties by which clients carry a trace, in small letters: a header of HTTP comes as Traceparent. The
// libraries of Azure write a traceparent under both of the first two names.
const (
	propertyTraceParent  = "traceparent"
	propertyDiagnosticID = "diagnostic-id"
	propertyTraceState   = "tracestate"
)

const (
	// maxTraceState is how much of a state is kept (W3C Trace Context §3.3.1.5).
	maxTraceState = 512
	// traceParentBytes is the length of a traceparent of version 00.
	traceParentBytes = 55
)

// ReadTrace returns the place of a stored message in a trace. It returns false if its application does not trace the message,
// or does not want that the trace is recorded.
func ReadTrace(body []byte) (Trace, bool) {
	var s Sent
	if !s.Read(body) {
		return Trace{}, false
	}
	var parent, diagnostic, state string
	for i := range s.Properties {
		switch text := s.Properties[i].Value.Text(); strings.ToLower(s.Properties[i].Name) {
		case propertyTraceParent:
			parent = text
		case propertyDiagnosticID:
			diagnostic = text
		case propertyTraceState:
			state = text
		}
	}
	t, ok := readTraceParent(parent)
	if !ok {
		t, ok = readTraceParent(diagnostic)
	}
	if len(state) <= maxTraceState {
		t.State = strings.Clone(state)
	}
	return t, ok
}

// readTraceParent reads a traceparent, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01. It returns false for one
// that is malformed or not sampled. Later versions may have more behind the flags (W3C Trace Context §3.2).
func readTraceParent(text string) (t Trace, ok bool) {
	if len(text) < traceParentBytes || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
		len(text) > traceParentBytes && text[traceParentBytes] != '-' {
		return Trace{}, false
	}
	var version, flags [1]byte
	for _, part := range []struct {
		to   []byte
		from string
	}{{version[:], text[:2]}, {t.ID[:], text[3:35]}, {t.Span[:], text[36:52]}, {flags[:], text[53:55]}} {
		if part.from != strings.ToLower(part.from) {
			return Trace{}, false
		}
		if _, err := hex.Decode(part.to, []byte(part.from)); err != nil {
			return Trace{}, false
		}
	}
	if version[0] == 0xff || version[0] == 0 && len(text) != traceParentBytes || t.ID == [16]byte{} || t.Span == [8]byte{} ||
		flags[0]&1 == 0 {
		return Trace{}, false
	}
	return t, true
}
