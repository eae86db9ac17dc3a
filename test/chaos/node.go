package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The key that every development node accepts.
const (
	keyName = "RootManageSharedAccessKey"
	key     = "SAS_KEY_VALUE"
)

// node is one broker process, its addresses and its disk.
type node struct {
	number int    // from 1
	ip     string // of its namespace, or loopback
	dir    string // data directory
	log    string // file
	amqp   string // host:port
	ops    string // host:port
	argv   []string
	disk   *disk // nil: no disk of its own
	sup    *supervisor

	mu     sync.Mutex // guards what follows, and ip, amqp, ops and argv of a node that moves
	cmd    *exec.Cmd
	done   chan struct{} // closed when cmd has ended
	forget func() error  // tells the supervisor that it has
	// expected says that the process may end by itself: it is being killed, or its disk is broken.
	expected bool
	lives    int
	deaths   []string // ends that nobody had expected
}

// where returns the addresses of the doors for clients and operators.
func (n *node) where() (amqp, ops string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.amqp, n.ops
}

func (n *node) name() string { return fmt.Sprintf("n%d", n.number) }

// start runs the process and does not wait until it serves.
func (n *node) start() error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	// A file, not a pipe: a pipe that nobody reads would stop the broker.
	out, err := os.OpenFile(n.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	fmt.Fprintf(out, "---- start %s\n", time.Now().Format("15:04:05.000"))
	cmd := exec.Command(n.argv[0], n.argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	began, err := startOf(cmd.Process.Pid)
	if err != nil {
		return err
	}
	takeBack, err := n.sup.register(undo{Signal: syscall.SIGKILL, Pid: cmd.Process.Pid, Start: began})
	if err != nil {
		_ = cmd.Process.Kill()
		return err
	}
	done := make(chan struct{})
	n.mu.Lock()
	n.cmd, n.done, n.forget, n.expected = cmd, done, takeBack, false
	n.lives++
	n.mu.Unlock()
	go func() {
		_ = cmd.Wait()
		n.mu.Lock()
		if !n.expected {
			n.deaths = append(n.deaths, fmt.Sprintf("%s %s ended by itself: %v",
				time.Now().Format("15:04:05.000"), n.name(), cmd.ProcessState))
		}
		n.mu.Unlock()
		close(done)
	}()
	return nil
}

// expectEnd says that from now on the process may end.
func (n *node) expectEnd() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expected = true
}

// pid returns the process id, 0 if there is no process.
func (n *node) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return 0
	}
	select {
	case <-n.done:
		return 0
	default:
		return n.cmd.Process.Pid
	}
}

// signal sends a signal to the process; end also waits until it is gone.
func (n *node) signal(s syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return errors.New("no process")
	}
	return n.cmd.Process.Signal(s)
}

// end ends the process with a signal; one that does not follow within limit is killed, and one that
// does not follow then hangs in the kernel.
func (n *node) end(s syscall.Signal, limit time.Duration) error {
	n.expectEnd()
	if n.pid() == 0 {
		return nil
	}
	_ = n.signal(s)
	n.mu.Lock()
	done, forget := n.done, n.forget
	n.mu.Unlock()
	select {
	case <-done:
	case <-time.After(limit):
		_ = n.signal(syscall.SIGKILL)
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			return fmt.Errorf("%s does not end", n.name())
		}
	}
	return forget()
}

// state returns the letter of /proc: R, S, D, T, Z.
func (n *node) state() string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.pid()))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:min(1, len(rest))]
}

// get reads a path of the operations port.
func (n *node) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, ops := n.where()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ops+path, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true // a connection to a node that is cut off would be used again
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s of %s: %s: %s", path, n.name(), res.Status, strings.TrimSpace(string(b)))
	}
	return b, err
}

// logTail is how much of a log an error tells.
const logTail = 300

// awaitReady returns when a durable send can be acknowledged.
func (n *node) awaitReady(ctx context.Context) error {
	for {
		_, err := n.get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		if n.pid() == 0 {
			text, _ := os.ReadFile(n.log)
			return fmt.Errorf("%s ended before it was ready: %s", n.name(), text[max(0, len(text)-logTail):])
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", n.name(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// status is what GET /api/cluster answers, as far as it is used here.
type status struct {
	Node  string `json:"node"`
	Nodes []struct {
		ID    string `json:"id"`
		State string `json:"state"`
	} `json:"nodes"`
	Partitions []struct {
		ID      int      `json:"id"`
		Leader  string   `json:"leader"`
		Term    uint64   `json:"term"`
		Applied uint64   `json:"applied"`
		Failure string   `json:"failure"`
		Voters  []string `json:"voters"`
		Differs []string `json:"differs"`
	} `json:"partitions"`
}

func (n *node) status(ctx context.Context) (s status, err error) {
	b, err := n.get(ctx, "/api/cluster")
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// alarming are words of a process that found itself broken.
var alarming = regexp.MustCompile(`(?m)^(panic:|fatal error:|goroutine \d+ \[running\]|WARNING: DATA RACE).*$|invariant`)

// findings returns what the log says that no fault explains.
func (n *node) findings() []string {
	n.mu.Lock()
	out := append([]string(nil), n.deaths...)
	n.mu.Unlock()
	text, err := os.ReadFile(n.log)
	if err != nil {
		return append(out, err.Error())
	}
	const most = 5
	for i, m := range alarming.FindAllIndex(text, most) {
		line := text[m[0]:min(len(text), m[0]+300)]
		out = append(out, fmt.Sprintf("%s log, alarm %d: %s", filepath.Base(n.log), i+1, line))
	}
	return out
}

// connectionString is that of the plain port, as the official emulator's look.
func (n *node) connectionString() string {
	amqp, _ := n.where()
	return "Endpoint=sb://" + amqp + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + key +
		";UseDevelopmentEmulator=true"
}
