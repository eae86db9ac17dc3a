package console

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/transport/audit"
)

// auditBook is a sink of the audit log that keeps its lines. They are read when the log is closed.
type auditBook struct{ bytes.Buffer }

func (p *auditBook) Write(_ time.Time, _ string, _ bool, line []byte) error {
	_, err := p.Buffer.Write(line)
	return err
}

func (p *auditBook) Reopen() error { return nil }

func (p *auditBook) Close() error { return nil }

// Who signs in at a provider, and out again, is in the audit log, and so is a sign-in that comes to nothing. No code and
// no token is.
func TestSignInsAtAProviderAreAudited(t *testing.T) {
	l, lines := newLobby(t), &auditBook{}
	log := audit.New(audit.Config{Now: time.Now}, lines, hclog.NewNullLogger())
	l.console.deps.Audit = log
	l.console = l.restarted()
	l.handler = l.console.Handler(http.NotFoundHandler())
	cookie := l.enter()
	l.do(with(secure(request("DELETE", sessionPath, "")), cookie))
	to, cookie := l.begin()
	back := l.idp.visit(to)
	q := back.Query()
	q.Set("code", "an-invented-code")
	back.RawQuery = q.Encode()
	if w := l.do(returns(back, cookie)); w.Code < 400 {
		t.Fatalf("an invented code: %d", w.Code)
	}
	l.do(returns(back)) // anybody can do this, so it has no line
	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	var all []audit.Event
	for line := range strings.Lines(lines.String()) {
		var e audit.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if len(all) != 3 {
		t.Fatalf("%d lines: %s", len(all), lines)
	}
	person := audit.Who{Kind: "token", Subject: "sub:u-17", Issuer: l.provider.Issuer}
	for i, action := range []string{"console.sign-in", "console.sign-out"} {
		if e := all[i]; e.Action != action || e.Outcome != audit.OK || e.Who != person {
			t.Errorf("%s: %+v", action, e)
		}
	}
	refused := audit.Who{Kind: "nobody", Issuer: l.provider.Issuer}
	if e := all[2]; e.Action != "console.sign-in" || e.Outcome != "Unauthorized" || e.Who != refused || !strings.Contains(e.Reason, "takes its code no more") {
		t.Errorf("an invented code: %+v", e)
	}
	for _, secret := range []string{"an-invented-code", "eyJ", q.Get("state")} {
		if strings.Contains(lines.String(), secret) {
			t.Errorf("the log has %s", secret)
		}
	}
}
