package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/transport/auth"
)

// Operators list connections and close them, by the command line and by HTTP.
func TestConnectionsCommands(t *testing.T) {
	d := newDesk(t)
	run := func(args ...string) (string, int) {
		t.Helper()
		return d.run(client.NewConnectionsCommand(), "", append(args, "--ops", d.base)...)
	}
	for _, name := range []string{"orders", "archive"} {
		d.must(client.NewQueueCommand(), "", "create", name)
	}
	target := d.n.target(devKeyName, devKey)
	target.Version = "7.8.9"
	wires := map[string]*dial.Wire{}
	for _, name := range []string{"orders", "archive"} {
		w, err := dial.Connect(t.Context(), target, "", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if _, err := w.Session.NewSender(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
		wires[name] = w
	}
	out, code := run("list")
	if code != 0 || strings.Count(out, "\n") != 3 || strings.Count(out, " n1 ") != 2 || strings.Count(out, " busbar-cli ") != 2 ||
		strings.Count(out, " 7.8.9 ") != 2 || strings.Count(out, devKeyName) != 2 {
		t.Errorf("list: %d\n%s", code, out)
	}
	if out, code = run("list", "-o", "wide"); code != 0 || !strings.Contains(out, "BYTES OUT\n") || strings.Count(out, "\n") != 3 {
		t.Errorf("wide list: %d\n%s", code, out)
	}
	if out, code = run("list", "--links", "--entity", "orders"); code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(out, " sender ") {
		t.Errorf("list of links: %d\n%s", code, out)
	}
	if out, code = run("list", "--max", "1"); code != 0 || !strings.Contains(out, "1 of 2 connections; see --max") {
		t.Errorf("list of one: %d\n%s", code, out)
	}
	var all struct {
		Connections []struct {
			ID    string
			Links []struct{ Entity string }
		}
	}
	out, _ = run("list", "-o", "json", "--entity", "archive")
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Connections) != 1 || all.Connections[0].Links[0].Entity != "archive" {
		t.Fatalf("list as JSON: %v, %s", err, out)
	}
	if out, code = run("close"); code != exit.Usage || !strings.Contains(out, "busbar connections list shows ids") {
		t.Errorf("close of nothing: %d %s", code, out)
	}
	if out, code = run("close", "nonsense"); code != exit.NotFound || !strings.Contains(out, "no connection is like that") {
		t.Errorf("close of a missing one: %d %s", code, out)
	}
	if out, code = run("close", all.Connections[0].ID); code != 0 || out != "closed 1 connection\n" {
		t.Errorf("close: %d %s", code, out)
	}
	select {
	case <-wires["archive"].Conn.Done():
	case <-time.After(time.Minute):
		t.Error("the connection stays open")
	}
	if _, err := wires["orders"].Session.NewSender(t.Context(), "orders", nil); err != nil {
		t.Errorf("the other connection: %v", err)
	}

	// What is not asked for as it should be closes nothing.
	weak := auth.NewToken("http://"+d.n.opsHost()+"/", "nobody", "key", time.Now().Add(time.Hour))
	for target, want := range map[string]int{
		"POST /api/connections/close":                   400,
		"POST /api/connections/close?entitty=orders":    400,
		"POST /api/connections/close?id=a&id=b":         400,
		"POST /api/connections/close?id=":               400,
		"POST /api/connections/close?client=x&max=3":    400,
		"GET /api/connections/close?client=busbar":      405,
		"POST /api/connections":                         405,
		"GET /api/connections?max=0":                    400,
		"GET /api/connections?client=none":              200,
		"POST /api/connections/close?client=none-is-so": 404,
	} {
		method, path, _ := strings.Cut(target, " ")
		if res, text := d.n.requestTo(t, d.n.opsHost(), method, path, "", ""); res.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", target, res.StatusCode, text, want)
		}
		if res, _ := d.n.requestTo(t, d.n.opsHost(), method, path, "", weak); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s with a wrong token: %d", target, res.StatusCode)
		}
	}
	if out, code = run("list"); code != 0 || strings.Count(out, "\n") != 2 {
		t.Errorf("list at the end: %d\n%s", code, out)
	}
}
