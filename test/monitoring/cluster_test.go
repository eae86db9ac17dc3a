package monitoring

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// node is a process of the broker. The package test/cluster is not used, because its module and Prometheus want
// versions of one library that do not go together.
type node struct {
	name, amqp, ops, peer, gossip string
	process                       *exec.Cmd
}

// readyLimit bounds the wait for a cluster that starts.
const readyLimit = time.Minute

// binary is the program under test.
func binary(t *testing.T) string {
	t.Helper()
	if b := os.Getenv("BUSBAR_BINARY"); b != "" {
		return b
	}
	b, err := filepath.Abs(filepath.Join(root, "bin/busbar"))
	if err == nil {
		_, err = os.Stat(b)
	}
	if err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	return b
}

// freePort returns a port of loopback that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startCluster runs three nodes on loopback until the test ends, and returns when all of them are ready.
func startCluster(t *testing.T) []*node {
	t.Helper()
	nodes, dir := []*node{}, t.TempDir()
	for i := range 3 {
		nodes = append(nodes, &node{name: fmt.Sprintf("n%d", i+1), amqp: freePort(t), ops: freePort(t), peer: freePort(t),
			gossip: freePort(t)})
	}
	for _, n := range nodes {
		args := []string{"serve", "--dev", "--data-dir", filepath.Join(dir, n.name), "--node-id", n.name, "--amqp-listen", n.amqp,
			"--tls-listen", "127.0.0.1:0", "--ops-listen", n.ops, "--peer-listen", n.peer, "--gossip-listen", n.gossip,
			"--advertise", "127.0.0.1", "--bootstrap-expect", "3", "--dev-ca-dir", filepath.Join(dir, "tls"), "--log-level", "error"}
		for _, other := range nodes {
			if other != n {
				args = append(args, "--join", other.gossip)
			}
		}
		n.process = exec.Command(binary(t), args...)
		n.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := n.process.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.kill)
	}
	ctx, cancel := context.WithTimeout(t.Context(), readyLimit)
	defer cancel()
	for _, n := range nodes {
		for n.get(ctx, "/readyz") != nil {
			if ctx.Err() != nil {
				t.Fatalf("%s is not ready after %v", n.name, readyLimit)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nodes
}

// kill ends the process at once.
func (n *node) kill() {
	if n.process.ProcessState == nil {
		_ = n.process.Process.Kill()
		_ = n.process.Wait()
	}
}

// get asks the operations port, and says whether it was content.
func (n *node) get(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.ops+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// busbar runs a command of the program at a node, and returns its exit code.
func (n *node) busbar(t *testing.T, args ...string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), args...)
	cmd.Env = append(os.Environ(), "SERVICEBUS_CONNECTION_STRING=Endpoint=sb://"+n.amqp+
		";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil {
		t.Logf("busbar %s: %d: %s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), out)
	}
	return cmd.ProcessState.ExitCode()
}

// must is busbar for a command that has to succeed.
func (n *node) must(t *testing.T, args ...string) {
	t.Helper()
	if code := n.busbar(t, args...); code != 0 {
		t.Fatalf("busbar %s ended with %d", strings.Join(args, " "), code)
	}
}
