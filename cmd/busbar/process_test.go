package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asCommand is the variable that makes the binary of the tests the command itself.
const asCommand = "BUSBAR_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(withoutUser(m.Run))
}

// withoutUser runs tests without the brokers that the user of this machine has named.
func withoutUser(tests func() int) int {
	for _, name := range []string{"SERVICEBUS_CONNECTION_STRING", "BUSBAR_OPS", "BUSBAR_CONTEXT"} {
		_ = os.Unsetenv(name)
	}
	dir, err := os.MkdirTemp("", "busbar-user-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	_ = os.Setenv("XDG_CONFIG_HOME", dir)
	return tests()
}

// processNode is a node in a process of its own.
type processNode struct {
	*exec.Cmd
	t      *testing.T
	dir    string
	log    *logBook
	ended  chan struct{}
	ops    string
	secure string // host:port over TLS, if it has such a port
}

// startProcess runs serve with a configuration file and more variables, and returns when the node is ready.
func startProcess(t *testing.T, file string, env ...string) *processNode {
	t.Helper()
	dir := t.TempDir()
	p := &processNode{t: t, dir: dir, log: new(logBook), ended: make(chan struct{})}
	p.Cmd = exec.Command(os.Args[0], "serve", "--config", file, "--data-dir", dir) //nolint:gosec // the test itself
	p.Env = append(append(os.Environ(), asCommand+"=1"), env...)
	p.Stdout, p.Stderr = p.log, p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.ended) }()
	t.Cleanup(func() { _ = p.Process.Kill(); <-p.ended })
	var ports struct{ TLS, Ops int }
	p.await("its ports", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "ports.json"))
		return err == nil && json.Unmarshal(text, &ports) == nil
	})
	p.ops, p.secure = fmt.Sprintf("127.0.0.1:%d", ports.Ops), fmt.Sprintf("127.0.0.1:%d", ports.TLS)
	p.await("ready", func() bool {
		r, err := http.Get("http://" + p.ops + "/readyz")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return p
}

// processLimit bounds each wait for a process; a healthy one takes a fraction of it.
const processLimit = 2 * time.Minute

// await waits until something of the process is so. It fails when the process ends.
func (p *processNode) await(what string, is func() bool) {
	p.t.Helper()
	for over := time.After(processLimit); !is(); {
		select {
		case <-p.ended:
			p.t.Fatalf("the process ended before %s: %s", what, p.log)
		case <-over:
			p.t.Fatalf("no %s: %s", what, p.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (p *processNode) awaitLog(text string) {
	p.t.Helper()
	p.await(text, func() bool { return strings.Contains(p.log.String(), text) })
}

func (p *processNode) signal(s os.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// code waits for the end of the process and returns its exit code.
func (p *processNode) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(processLimit):
		p.t.Fatal("the process does not end")
	}
	return p.ProcessState.ExitCode()
}
