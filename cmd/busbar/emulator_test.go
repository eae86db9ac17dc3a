package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// variables is an environment of names and their values by turns.
func variables(more ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(more); i += 2 {
			if more[i] == name {
				return more[i+1], true
			}
		}
		return "", false
	}
}

// `busbar emulator` is `busbar dev` on all addresses, with the file of the official emulator, unless others are given.
func TestTheEmulatorFillsWhatIsMissing(t *testing.T) {
	only := func(path string) func(string) (fs.FileInfo, error) {
		return func(asked string) (fs.FileInfo, error) {
			if asked == path {
				return nil, nil
			}
			return nil, fs.ErrNotExist
		}
	}
	for name, tc := range map[string]struct {
		given map[string][]string
		env   func(string) (string, bool)
		stat  func(string) (fs.FileInfo, error)
		want  string
		fails string
	}{
		"nothing given":     {map[string][]string{}, variables(), only(""), ":5672  :5300 true ", ""},
		"the file":          {map[string][]string{}, variables("CONFIG_PATH", "/c"), only(emulatorEntities), ":5672  :5300 true " + emulatorEntities, ""},
		"another file":      {map[string][]string{}, variables("CONFIG_PATH", "/c"), only("/c"), ":5672  :5300 true /c", ""},
		"a file that lacks": {map[string][]string{}, variables("CONFIG_PATH", "/c"), only("/d"), "", "CONFIG_PATH"},
		"entities given":    {map[string][]string{"entities": {"e"}}, variables("CONFIG_PATH", "/c"), only("/c"), ":5672  :5300 true e", ""},
		"data are kept":     {map[string][]string{"data-dir": {"/d"}}, variables(), only(""), ":5672  :5300  ", ""},
		"data by variable":  {map[string][]string{}, variables("BUSBAR_DATA_DIR", "/d"), only(""), ":5672  :5300  ", ""},
		"addresses given": {map[string][]string{"ops-listen": {"127.0.0.1:0"}, "tls-listen": {":5671"}}, variables("BUSBAR_AMQP_LISTEN", ":1"), only(""),
			" :5671 127.0.0.1:0 true ", ""},
		"port of management": {map[string][]string{}, variables("EMULATOR_HTTP_PORT", "80"), only(""), ":5672  :80 true ", ""},
		"port and address":   {map[string][]string{"ops-listen": {"127.0.0.1:0"}}, variables("EMULATOR_HTTP_PORT", "80"), only(""), ":5672  127.0.0.1:0 true ", ""},
	} {
		err := forEmulator(tc.given, tc.env, tc.stat)
		if tc.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: %v, want %q", name, err, tc.fails)
			}
			continue
		}
		var got []string
		for _, setting := range []string{"amqp-listen", "tls-listen", "ops-listen", "ephemeral", "entities"} {
			got = append(got, strings.Join(tc.given[setting], ","))
		}
		if shown := strings.Join(got, " "); err != nil || shown != tc.want || tc.given["dev"][0] != "true" {
			t.Errorf("%s: %q, %v; want %q", name, shown, err, tc.want)
		}
	}
}

// The program tells tools that it is up when the entities are there, and not before. A tool that asks /health is told the
// same.
func TestTheEmulatorSaysThatItIsUp(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "ports.json")
	p := &processNode{t: t, dir: dir, log: new(logBook), ended: make(chan struct{})}
	p.Cmd = exec.Command(os.Args[0], "emulator", "--amqp-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--ports-file", file) //nolint:gosec // the test itself
	p.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+dir, "CONFIG_PATH="+filepath.Join("testdata", "Config.json"),
		"ACCEPT_EULA=Y", "SQL_SERVER=sql", "MSSQL_SA_PASSWORD=a secret")
	p.Stdout, p.Stderr = p.log, p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.ended) }()
	t.Cleanup(func() { _ = p.Process.Kill(); <-p.ended })
	p.awaitLog(emulatorUp + "\n")
	var ports struct{ Ops int }
	if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &ports) != nil {
		t.Fatal(err)
	}
	p.ops = fmt.Sprintf("127.0.0.1:%d", ports.Ops)
	r, err := http.Get("http://" + p.ops + "/health")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	r.Body.Close()
	if want := `{"status":"healthy","message":"Service is healthy."}`; err != nil || r.StatusCode != http.StatusOK || strings.TrimSpace(string(text)) != want {
		t.Errorf("/health: %d %q %v", r.StatusCode, text, err)
	}
	log := p.log.String()
	if made, up := strings.Index(log, "entities are there"), strings.Index(log, emulatorUp); made < 0 || made > up {
		t.Errorf("the line comes before the entities: %s", log)
	}
	if strings.Count(log, "variables of the official emulator") != 1 || !strings.Contains(log, "SQL_SERVER, MSSQL_SA_PASSWORD, ACCEPT_EULA") ||
		strings.Contains(log, "a secret") || strings.Contains(log, "SQL_WAIT_INTERVAL") {
		t.Errorf("the needless variables are not named in one line: %s", log)
	}
	p.signal(os.Interrupt)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.log)
	}
	left, err := filepath.Glob(filepath.Join(dir, ephemeralPrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// A development node is not healthy for tools before its entities are there.
func TestADevelopmentNodeWaitsForItsEntities(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	if err := (&status{l.node}).Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.entitiesMade = make(chan struct{})
	if err := (&status{l.node}).Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "are being made") {
		t.Errorf("without its entities: %v", err)
	}
	out, done := new(logBook), make(chan struct{})
	go func() { defer close(done); emulatorServes(out)(t.Context(), l.node) }()
	select {
	case <-done:
		t.Errorf("the emulator says without its entities %q", out)
	case <-time.After(100 * time.Millisecond):
	}
	close(l.entitiesMade)
	<-done
	if out.String() != emulatorUp+"\n" {
		t.Errorf("the emulator says with its entities %q", out)
	}
}
