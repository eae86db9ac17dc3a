package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
			_, notes, err := readEntities(file)
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
