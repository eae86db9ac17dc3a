package stored

import (
	"strings"
	"testing"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

func TestATraceParentIsReadAsW3CHasIt(t *testing.T) {
	want := Trace{ID: [16]byte{0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36},
		Span: [8]byte{0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7}}
	for text, ok := range map[string]bool{
		"00-" + traceID + "-" + spanID + "-01":                  true,
		"00-" + traceID + "-" + spanID + "-03":                  true, // a flag that is not known yet
		"00-" + traceID + "-" + spanID + "-00":                  false,
		"00-" + traceID + "-" + spanID + "-02":                  false,
		"01-" + traceID + "-" + spanID + "-01":                  true,
		"01-" + traceID + "-" + spanID + "-01-more":             true,
		"01-" + traceID + "-" + spanID + "-01more":              false,
		"00-" + traceID + "-" + spanID + "-01-more":             false,
		"ff-" + traceID + "-" + spanID + "-01":                  false,
		"00-" + strings.ToUpper(traceID) + "-" + spanID + "-01": false,
		"00-" + strings.Repeat("0", 32) + "-" + spanID + "-01":  false,
		"00-" + traceID + "-" + strings.Repeat("0", 16) + "-01": false,
		"00-" + traceID[:31] + "x-" + spanID + "-01":            false,
		"00+" + traceID + "-" + spanID + "-01":                  false,
		"00-" + traceID + "+" + spanID + "-01":                  false,
		"00-" + traceID + "-" + spanID + "+01":                  false,
		"00-" + traceID + "-" + spanID + "-1":                   false,
		"zz-" + traceID + "-" + spanID + "-01":                  false,
		"|4bf92f3577b34da6.1." + strings.Repeat("a", 40):        false, // an id of Application Insights before W3C
		"": false,
	} {
		got, good := readTraceParent(text)
		if good != ok || ok && got != want {
			t.Errorf("%q: %+v, %v", text, got, good)
		}
	}
}

// traced is a stored message with application properties that are texts.
func traced(properties ...string) []byte {
	var m Message
	b := m.AppendHead(nil)
	content := []byte{byte(len(properties))}
	for _, p := range properties {
		content = append(append(content, 0xb1, 0, 0, byte(len(p)>>8), byte(len(p))), p...) // str32-utf8
	}
	b = append(b, 0x00, 0x53, 0x74, 0xd1, 0, 0, byte((len(content)+3)>>8), byte(len(content)+3), 0, 0, 0) // map32
	return append(append(b, content...), data...)
}

func TestTheTraceOfAMessage(t *testing.T) {
	good, other := "00-"+traceID+"-"+spanID+"-01", "00-"+traceID+"-"+strings.Repeat("1", 16)+"-01"
	for name, c := range map[string]struct {
		body  []byte
		span  byte // the last byte of the span
		state string
		none  bool
	}{
		"of the libraries of Azure":  {body: traced("Diagnostic-Id", good), span: 0xb7},
		"of OpenTelemetry":           {body: traced("traceparent", good, "tracestate", "a=1"), span: 0xb7, state: "a=1"},
		"as a header of HTTP":        {body: traced("Traceparent", good, "Tracestate", "a=1"), span: 0xb7, state: "a=1"},
		"traceparent goes first":     {body: traced("Diagnostic-Id", good, "traceparent", other), span: 0x11},
		"a bad traceparent does not": {body: traced("Diagnostic-Id", good, "traceparent", "x"), span: 0xb7},
		"a state that is too long":   {body: traced("traceparent", good, "tracestate", strings.Repeat("a", 513)), span: 0xb7},
		"no trace":                   {body: traced("other", good), none: true},
		"no properties":              {body: []byte("\x01\x00\x00" + data), none: true},
		"what is no message":         {body: []byte("x"), none: true},
		"nothing":                    {none: true},
	} {
		got, ok := ReadTrace(c.body)
		if ok == c.none || got.Span[7] != c.span || got.State != c.state {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}
