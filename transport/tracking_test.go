package transport

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/transport/auth"
)

// keptLog is a log that a test reads while it is written.
type keptLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *keptLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *keptLog) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

var trackedText = regexp.MustCompile(
	`TrackingId:([0-9a-f-]{36}_G0), SystemTracker:localhost(?::([^,]+))?, Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`)

// S-1: whatever is refused, and however, the text has a time, the entity and a tracking id of its own,
// and the log of a broker as it is deployed has that id.
func TestEveryRefusalIsFoundInTheLog(t *testing.T) {
	log := &keptLog{}
	ts := startLogged(t, hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: log}), 1)
	ts.broker.queue("orders")
	ts.broker.queue("grouped", withSessions)
	conn := dial(t, ts)
	session := newSession(t, conn)
	receive := func(from string, options *goamqp.ReceiverOptions) string {
		_, err := session.NewReceiver(testContext(t), from, options)
		return errorText(err)
	}
	described := func(node string, m *goamqp.Message, key string) string {
		text, _ := ask(t, session, node, "replies", m).ApplicationProperties[key].(string)
		return text
	}
	browsing := &goamqp.ReceiverOptions{
		Filters: []goamqp.LinkFilter{goamqp.NewLinkFilter("com.microsoft:session-filter", 0x000000137000000C, nil)},
	}
	seen := map[string]string{}
	for name, text := range map[string]string{
		"a link to nothing: missing":                    receive("missing", nil),
		"a plain receiver of sessions: grouped":         receive("grouped", nil),
		"sessions of a plain queue: orders":             receive("orders", browsing),
		"a receiver of a bad address: orders/$nonsense": receive("orders/$nonsense", nil),
		"a message without session: grouped":            errorText(newSender(t, session, "grouped").Send(testContext(t), goamqp.NewMessage([]byte("x")), nil)),
		"a request about a message unknown: orders":     described("orders/$management", requestTo("renew-lock", map[string]any{"lock-tokens": []goamqp.UUID{{1}}}), "statusDescription"),
		"a bad request: orders":                         described("orders/$management", requestTo("renew-lock", nil), "statusDescription"),
		"an unknown request: orders":                    described("orders/$management", requestTo("nonsense", nil), "statusDescription"),
		"a token that is not valid: orders": described("$cbs", &goamqp.Message{
			Value: auth.NewToken("amqp://"+ts.addr+"/orders", testPolicy, "another key", time.Now().Add(time.Hour)),
			ApplicationProperties: map[string]any{"operation": "put-token", "type": "jwt",
				"name": "amqp://" + ts.addr + "/orders"},
		}, "status-description"),
		"an HTTP request to nothing: missing": textBody(t, ts.curl(t, "POST", "/missing/messages", "x")),
		"a bad HTTP request: grouped":         textBody(t, ts.curl(t, "POST", "/grouped/messages", "x")),
	} {
		found := trackedText.FindStringSubmatch(text)
		if found == nil {
			t.Errorf("%s: no tracking id and time in %q", name, text)
			continue
		}
		if _, entity, _ := strings.Cut(name, ": "); entity != found[2] {
			t.Errorf("%s: the entity is %q in %q", name, found[2], text)
		}
		if other := seen[found[1]]; other != "" {
			t.Errorf("%s and %s have one tracking id", name, other)
		}
		seen[found[1]] = name
		if !log.has(found[1]) {
			t.Errorf("%s: the log has nothing of %q", name, text)
		}
	}
}

func requestTo(operation string, body any) *goamqp.Message {
	return &goamqp.Message{Value: body,
		ApplicationProperties: map[string]any{"operation": "com.microsoft:" + operation}}
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}
