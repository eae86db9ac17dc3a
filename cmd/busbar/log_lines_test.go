package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// A line of the log has the names that collectors expect, in one order, and each name once.
func TestALineOfTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		node string
		say  func(log hclog.Logger)
		want string // behind the time
	}{
		"of the node itself": {"", func(log hclog.Logger) { log.Info("starting", "version", "1.2.3") },
			`"level":"info","msg":"starting","component":"node","version":"1.2.3"}`},
		"of a component": {"n1", func(log hclog.Logger) {
			log.Named("mesh").Named("tls").Warn("refused", "reason", errors.New("no\n\"way\""))
		},
			`"level":"warn","msg":"refused","component":"mesh.tls","node":"n1","reason":"no\n\"way\""}`},
		"with values in the order of their names": {"n1", func(log hclog.Logger) { log.With("zone", "a").Error("x", "entity", "q", "tracking_id", "7") },
			`"level":"error","msg":"x","component":"node","node":"n1","entity":"q","tracking_id":"7","zone":"a"}`},
		"with a node that has a name": {"n1", func(log hclog.Logger) { log.Info("link lost", "peer", "id-of-n2") },
			`"level":"info","msg":"link lost","component":"node","node":"n1","peer":"id-of-n2","peer_name":"n2"}`},
		"with a node that nobody knows": {"n1", func(log hclog.Logger) { log.Info("link lost", "peer", "id-of-n3", "peers", 2) },
			`"level":"info","msg":"link lost","component":"node","node":"n1","peer":"id-of-n3","peers":2}`},
		"with names that are taken": {"n1", func(log hclog.Logger) { log.Info("x", "node", "n2", "time", 5, "level", "high") },
			`"level":"info","msg":"x","component":"node","node":"n1","of_level":"high","of_node":"n2","of_time":5}`},
	} {
		var b bytes.Buffer
		l := &logLines{to: &b, node: c.node}
		l.nameBy(func(id string) string { return map[string]string{"id-of-n2": "n2"}[id] })
		c.say(hclog.New(&hclog.LoggerOptions{Name: logName, JSONFormat: true, Output: l}))
		line := b.String()
		at, rest, _ := strings.Cut(line, ",")
		if !strings.HasPrefix(at, `{"time":"20`) || rest != c.want+"\n" {
			t.Errorf("%s: %s", name, line)
		}
		if !json.Valid(b.Bytes()) {
			t.Errorf("%s: no JSON: %s", name, line)
		}
	}
	// What is no entry goes through as it is.
	var b bytes.Buffer
	if n, err := (&logLines{to: &b}).Write([]byte("plain\n")); n != 6 || err != nil || b.String() != "plain\n" {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
}

// Without a terminal a log is lines of JSON, unless it is to be text.
func TestTheFormatOfTheLog(t *testing.T) {
	for format, wantJSON := range map[string]bool{"auto": true, "json": true, "text": false} {
		f, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		log, lines := newLogger(Config{LogFormat: format, LogLevel: "info", NodeName: "n1"}, f)
		lines.nameBy(func(string) string { return "" })
		log.Info("starting")
		text, err := os.ReadFile(f.Name())
		if err != nil || json.Valid(text) != wantJSON || !bytes.Contains(text, []byte("starting")) {
			t.Errorf("%s: %q, %v", format, text, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
