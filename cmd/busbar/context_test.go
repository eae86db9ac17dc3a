package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// A context says which broker is meant, where its operations port is, and hides its key.
func TestContexts(t *testing.T) {
	d := newDesk(t)
	d.must(client.NewQueueCommand(), "", "create", "orders")
	file := filepath.Join(t.TempDir(), "below", "contexts.yaml")
	t.Setenv("BUSBAR_CONTEXTS", file)
	t.Setenv("SERVICEBUS_CONNECTION_STRING", "")
	t.Setenv("BUSBAR_OPS", "")
	away := "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=key-of-away;UseDevelopmentEmulator=true"
	run := func(stdin, line string) (string, int) {
		t.Helper()
		return execute(t, newRoot(), stdin, strings.Fields(line)...)
	}
	steps := func(all []contextStep) {
		t.Helper()
		for _, s := range all {
			if out, code := run(s.stdin, s.line); code != s.code || !strings.Contains(out, s.want) {
				t.Errorf("busbar %s: %d %q, want %d %q", s.line, code, out, s.code, s.want)
			} else if strings.Contains(out, "key-of-away") != strings.Contains(s.line, "--show-key") {
				t.Errorf("busbar %s shows the key or hides it: %s", s.line, out)
			}
		}
	}
	steps([]contextStep{
		{"", "context list", 0, "NAME  CONNECTION STRING  OPS"},
		{"", "context show", exit.NotFound, "busbar context use takes one"},
		{"", "context use away", exit.NotFound, "busbar context add makes one"},
		{"nonsense\n", "context add away", exit.Usage, "connection string"},
		{away, "context add a/b", exit.Usage, "is no name of a context"},
		{away + "\n", "context add away", 0, "context away is known and in use"},
		{"", "queue list", exit.Failed, "127.0.0.1:1"},
		{d.cs, "context add here --ops " + d.base, 0, "context here is known\n"},
		{"", "queue list --context here", 0, "orders"},
		{"", "queue peek orders --context here", 0, "NUMBER"},
		{"", "cluster status --context here", 0, "n1"},
		{"", "queue list --context none", exit.NotFound, "there are away, here"},
		{"", "queue list --context here --connection-string x", exit.Usage, "exclude each other"},
		{"", "context use here", 0, "context here is in use"},
		{"", "queue list", 0, "orders"},
		{"", "queue show orders", 0, "orders"},
		{"", "context list", 0, "*  here  "},
		{"", "context show away", 0, "SharedAccessKey=...;UseDevelopmentEmulator=true"},
		{"", "context show away --show-key", 0, "key-of-away"},
		{"", "context show -o json", 0, `"name":"here","current":true`},
	})
	t.Setenv("BUSBAR_CONTEXT", "away")
	steps([]contextStep{{"", "queue list", exit.Failed, "127.0.0.1:1"}, {"", "queue list --context here", 0, "orders"}})
	t.Setenv("SERVICEBUS_CONNECTION_STRING", d.cs)
	steps([]contextStep{{"", "queue list", exit.Failed, "127.0.0.1:1"}})
	t.Setenv("BUSBAR_CONTEXT", "")
	steps([]contextStep{
		{"", "context use away", 0, "in use"},
		{"", "queue list", 0, "orders"}, // by the environment, which counts more than the context in use
		{"", "context remove away", 0, "removed context away"},
		{"", "context list", 0, "\n  here  "},
	})
	if runtime.GOOS == "windows" {
		return
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	steps([]contextStep{{"", "context list", exit.Usage, "chmod 600 " + file}})
}

type contextStep struct {
	stdin, line string
	code        int
	want        string
}

// A shell completes names that the broker knows, and never file names where none are wanted.
func TestNamesAreCompleted(t *testing.T) {
	d := newDesk(t)
	t.Setenv("BUSBAR_CONTEXTS", filepath.Join(t.TempDir(), "contexts.yaml"))
	for _, line := range []string{"queue create orders", "topic create trade", "subscription create trade eu", "subscription create trade us",
		"context add prod --connection-string " + d.cs} {
		if out, code := d.line(line); code != 0 {
			t.Fatalf("busbar %s: %d %s", line, code, out)
		}
	}
	const noFiles, files = ":4", ":0"
	for line, want := range map[string]string{
		"peek |":                              "orders trade/Subscriptions/eu trade/Subscriptions/us " + noFiles,
		"send |":                              "orders trade/Subscriptions/eu trade/Subscriptions/us " + noFiles,
		"peek orders |":                       noFiles,
		"send orders |":                       noFiles,
		"queue create |":                      noFiles,
		"topic show |":                        "trade " + noFiles,
		"subscription show trade |":           "eu us " + noFiles,
		"rule list trade |":                   "eu us " + noFiles,
		"queue move orders |":                 "orders trade " + noFiles,
		"dlq redrive orders --to |":           "orders trade " + noFiles,
		"queue peek orders --state |":         "active deferred scheduled " + noFiles,
		"queue list -o |":                     "table wide json jsonl yaml " + noFiles,
		"queue list --context |":              "prod " + noFiles,
		"context use |":                       "prod " + noFiles,
		"cluster drain |":                     "n1 " + noFiles,
		"cluster transfer-leader |":           "catalog 1 2 " + noFiles,
		"cluster transfer-leader 1 |":         "n1 " + noFiles,
		"events --kind |":                     "leader node alarm entity " + noFiles,
		"queue peek orders --session |":       noFiles,
		"peek --connection-string |":          noFiles,
		"entities apply |":                    files,
		"send orders --file |":                files,
		"queue list --ca-file |":              files,
		"connections list --entity |":         "orders trade trade/Subscriptions/eu trade/Subscriptions/us " + noFiles,
		"peek --connection-string nonsense |": noFiles,
	} {
		before, _, _ := strings.Cut(line, "|")
		t.Setenv("SERVICEBUS_CONNECTION_STRING", d.cs)
		t.Setenv("BUSBAR_OPS", d.base)
		out, code := execute(t, newRoot(), "", append([]string{"__complete"}, append(strings.Fields(before), "")...)...)
		var got []string
		for word := range strings.Lines(out) {
			if word = strings.TrimSpace(word); word != "" && !strings.HasPrefix(word, "Completion ended") {
				got = append(got, word)
			}
		}
		if text := strings.Join(got, " "); code != 0 || text != want {
			t.Errorf("%s: %d %q, want %q", line, code, text, want)
		}
	}
}
