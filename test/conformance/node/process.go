package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The key that every development node accepts.
const (
	KeyName = "RootManageSharedAccessKey"
	Key     = "SAS_KEY_VALUE"
)

// readyLimit bounds the wait for a node that starts; a healthy one takes a fraction of it.
const readyLimit = 60 * time.Second

// Node is one broker process and what is needed to start it again.
type Node struct {
	ID   string
	Dir  string
	AMQP string // host:port, plain
	TLS  string // host:port
	Ops  string // host:port
	CA   string // file

	// Peer and Gossip are the ports for other nodes, host:port; empty if StartSingle started the node.
	Peer, Gossip string

	args []string
	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// Binary finds bin/busbar above the working directory, or where BUSBAR_BINARY says.
func Binary() (string, error) {
	if b := os.Getenv("BUSBAR_BINARY"); b != "" {
		return b, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		b := filepath.Join(dir, "bin", "busbar")
		if info, err := os.Stat(b); err == nil && info.Mode().IsRegular() {
			return b, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("bin/busbar not found: run make build")
		}
		dir = parent
	}
}

// StartSingle starts one development node on ports of its own choice, with its data below dir.
func StartSingle(ctx context.Context, dir string, extra ...string) (*Node, error) {
	n := &Node{ID: "n1", Dir: filepath.Join(dir, "n1")}
	n.args = append([]string{"serve", "--dev", "--data-dir", n.Dir, "--amqp-listen", "127.0.0.1:0",
		"--tls-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, extra...)
	n.CA = filepath.Join(n.Dir, "tls", "ca.pem")
	if err := n.Start(); err != nil {
		return nil, err
	}
	if err := n.WaitReady(ctx); err != nil {
		n.Kill()
		return nil, err
	}
	return n, nil
}

// Start runs the process; it does not wait until it is ready.
func (n *Node) Start() error {
	bin, err := Binary()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.Dir, 0o755); err != nil {
		return err
	}
	// A file, not a pipe: a pipe that nobody reads would stop the broker.
	out, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	_ = os.Remove(filepath.Join(n.Dir, "ports.json")) // of an earlier life
	cmd := exec.Command(bin, n.args...)
	cmd.Stdout, cmd.Stderr = out, out
	// If the test is killed, the broker goes with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	n.mu.Lock()
	n.cmd, n.done = cmd, done
	n.mu.Unlock()
	return nil
}

func (n *Node) logFile() string { return filepath.Join(filepath.Dir(n.Dir), n.ID+".log") }

// Log returns the last bytes that the process printed.
func (n *Node) Log(limit int) string {
	b, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-limit):])
}

func (n *Node) running() (*exec.Cmd, chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd, n.done
}

// Pid returns the process id, 0 if the node is not running.
func (n *Node) Pid() int {
	cmd, done := n.running()
	if cmd == nil {
		return 0
	}
	select {
	case <-done:
		return 0
	default:
		return cmd.Process.Pid
	}
}

// Kill ends the process as a crash does (SIGKILL) and waits until it is gone.
func (n *Node) Kill() { n.end(syscall.SIGKILL) }

// Stop asks the process to end in good order (SIGTERM) and waits until it is gone.
func (n *Node) Stop() { n.end(syscall.SIGTERM) }

// Freeze stops the process (SIGSTOP) and returns when each of its threads stands still: until then it may still answer.
func (n *Node) Freeze() error {
	pid := n.Pid()
	if pid == 0 {
		return fmt.Errorf("%s does not run", n.ID)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if still(pid) {
			return nil
		}
	}
	return fmt.Errorf("process %d still runs 10 s after SIGSTOP", pid)
}

// still reports whether no thread of a process runs.
func still(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, file := range threads {
		b, err := os.ReadFile(file)
		_, rest, found := strings.Cut(string(b), ") ") // proc(5): the state is behind the name
		if err == nil && (!found || rest[0] != 'T') {
			return false
		}
	}
	return len(threads) > 0
}

// Thaw lets a frozen process go on (SIGCONT).
func (n *Node) Thaw() error {
	pid := n.Pid()
	if pid == 0 {
		return fmt.Errorf("%s does not run", n.ID)
	}
	return syscall.Kill(pid, syscall.SIGCONT)
}

func (n *Node) end(sig syscall.Signal) {
	cmd, done := n.running()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(sig)
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		<-done
	}
}

// WaitReady returns when /readyz answers 200: a durable send can be acknowledged.
func (n *Node) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	_, done := n.running()
	var last error
	for {
		if last = n.ready(ctx); last == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("%s ended before it was ready: %s", n.ID, n.Log(2000))
		case <-ctx.Done():
			return fmt.Errorf("%s not ready: %w; it printed: %s", n.ID, last, n.Log(2000))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (n *Node) ready(ctx context.Context) error {
	if err := n.readPorts(); err != nil {
		return err
	}
	_, err := n.Get(ctx, "/readyz")
	return err
}

// readPorts learns the ports that a node with port 0 has chosen.
func (n *Node) readPorts() error {
	if n.Ops != "" {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(n.Dir, "ports.json"))
	if err != nil {
		return err
	}
	var ports struct {
		AMQP int `json:"amqp"`
		TLS  int `json:"tls"`
		Ops  int `json:"ops"`
	}
	if err := json.Unmarshal(b, &ports); err != nil {
		return err
	}
	if ports.AMQP == 0 || ports.TLS == 0 || ports.Ops == 0 {
		return fmt.Errorf("ports.json lacks a port: %s", b)
	}
	at := func(p int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p)) }
	n.AMQP, n.TLS, n.Ops = at(ports.AMQP), at(ports.TLS), at(ports.Ops)
	return nil
}

// Get reads a path of the operations port.
func (n *Node) Get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Ops+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return b, fmt.Errorf("GET %s: %s: %s", path, res.Status, strings.TrimSpace(string(b)))
	}
	return b, nil
}

// Metric reads one value without labels from /metrics.
func (n *Node) Metric(ctx context.Context, name string) (float64, error) {
	b, err := n.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return 0, fmt.Errorf("metric %s not found", name)
}

// RSS returns the resident memory of the process in bytes.
func (n *Node) RSS() (int64, error) { return n.memory("VmRSS:") }

// Peak returns the largest resident memory of the process in bytes since it began or ResetPeak was called.
func (n *Node) Peak() (int64, error) { return n.memory("VmHWM:") }

// ResetPeak has the kernel count Peak from now on; Linux only.
func (n *Node) ResetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", n.Pid()), []byte("5"), 0o600)
}

// memory reads one line of what the kernel says about the process, in bytes.
func (n *Node) memory(name string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Pid()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%s not found", name)
}

// Plain returns the connection string for the plain port, as the official emulator's look.
func (n *Node) Plain() string {
	return fmt.Sprintf("Endpoint=sb://%s;SharedAccessKeyName=%s;SharedAccessKey=%s;"+
		"UseDevelopmentEmulator=true", localhost(n.AMQP), KeyName, Key)
}

// Secure returns the connection string for the TLS port.
func (n *Node) Secure() string {
	return fmt.Sprintf("Endpoint=sb://%s/;SharedAccessKeyName=%s;SharedAccessKey=%s",
		localhost(n.TLS), KeyName, Key)
}

func localhost(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return net.JoinHostPort("localhost", port)
}
