package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// RUL-24: who forwards to itself or in a circle is warned of, and it is no error.
func TestCirclesAreWarnedOf(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"itself":            {"Queues:\n- {Name: a, Properties: {ForwardTo: A}}\n", "/Queues/0: a forwards"},
		"its dead letters":  {"Queues:\n- {Name: a, Properties: {ForwardDeadLetteredMessagesTo: a}}\n", "/Queues/0: a forwards"},
		"in a circle":       {"Queues:\n- {Name: a, Properties: {ForwardTo: b}}\n- {Name: b, Properties: {ForwardTo: a}}\n", "/Queues/1: b forwards"},
		"to its own topic":  {"Topics:\n- Name: t\n  Subscriptions:\n  - {Name: s, Properties: {ForwardTo: t}}\n", "t/Subscriptions/s forwards"},
		"only into another": {"Queues:\n- {Name: a, Properties: {ForwardTo: b}}\n- {Name: b}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "e.yaml")
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, notes, err := entities.Read(file)
			text := strings.Join(notes, "\n")
			if err != nil || tc.want == "" && text != "" || !strings.Contains(text, tc.want) {
				t.Errorf("notes %q, error %v", text, err)
			}
			config := writeConfig(t, "dev: true\ndata-dir: "+t.TempDir()+"\nentities: "+file+"\n")
			out, code := execute(t, newConfigCommand(), "", "check", "--config", config)
			if code != 0 || !strings.Contains(out, "the configuration is good") ||
				strings.Contains(out, "warning") != (tc.want != "") || !strings.Contains(out, tc.want) {
				t.Errorf("config check: %d %s", code, out)
			}
		})
	}
}

// RUL-24: new entities that forward in a circle are refused, with their names and before anything is made. What
// is there already waits for nothing, so a file of entities that are there is applied again and again.
func TestANewCircleIsRefusedAndAnOldOneApplied(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	apply := func(text string) (string, int) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "e.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return execute(t, client.NewEntitiesCommand(), "", "apply", file, "--connection-string", l.connection())
	}
	circle := "Queues:\n- {Name: first}\n- {Name: z, Properties: {ForwardTo: a}}\n" +
		"- {Name: a, Properties: {ForwardTo: b}}\n- {Name: b, Properties: {ForwardTo: c}}\n- {Name: c, Properties: {ForwardTo: a}}\n"
	out, code := apply(circle)
	if code == 0 || !strings.Contains(out, "line 4, /Queues/2: a, b, c are new and forward in a circle") {
		t.Errorf("%d %s", code, out)
	}
	if out, code := apply("Queues:\n- {Name: first}\n"); code != 0 || !strings.Contains(out, "1 created, 0 differ") {
		t.Errorf("something was made: %d %s", code, out)
	}
	if out, code := apply("Queues:\n- {Name: a}\n"); code != 0 {
		t.Fatal(out)
	}
	out, code = apply(circle)
	if code != exit.Conflict || !strings.Contains(out, `ForwardTo of a is "", the file wants "b"`) || !strings.Contains(out, "3 created, 1 differ") {
		t.Errorf("with one that is there: %d %s", code, out)
	}
	l.put(t, "/a", "QueueDescription", "<ForwardTo>b</ForwardTo>", "If-Match", "*") // the circle is closed
	if out, code := apply(circle); code != 0 || !strings.Contains(out, "0 created, 0 differ") {
		t.Errorf("all are there: %d %s", code, out)
	}
}

// RUL-24, B5: queue create warns of a queue that forwards to itself or in a circle, over a topic too.
func TestAQueueThatIsCreatedInACircleIsWarnedOf(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	create := func(want bool, args ...string) {
		t.Helper()
		out, code := execute(t, client.NewQueueCommand(), "", append(args, "--connection-string", l.connection())...)
		if text := "warning: " + args[1] + " forwards to itself or in a circle"; code != 0 || strings.Contains(out, text) != want {
			t.Errorf("%q: %d %s", args, code, out)
		}
	}
	create(false, "create", "plain")
	create(false, "create", "chain", "--forward-to", "plain")
	create(true, "create", "own", "--forward-to", "Own")
	create(true, "create", "dead", "--forward-dead-letters-to", "dead")
	create(false, "create", "before", "--forward-to", "own") // it ends in a circle, and is not in it
	l.put(t, "/t", "TopicDescription", "")
	create(false, "create", "back")
	l.put(t, "/t/Subscriptions/s", "SubscriptionDescription", "<ForwardTo>back</ForwardTo>")
	if out, code := execute(t, client.NewQueueCommand(), "", "delete", "back", "--connection-string", l.connection()); code != 0 {
		t.Fatal(out)
	}
	create(true, "create", "back", "--forward-to", "t") // the subscription still names it (S-209)
}
