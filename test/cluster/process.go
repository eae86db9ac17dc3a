package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Node is one broker process and what is needed to start it again. The addresses are written before the process starts,
// or by Move; a reader beside Move asks Doors.
type Node struct {
	ID   string
	Dir  string
	AMQP string // host:port, plain
	TLS  string // host:port
	Ops  string // host:port
	CA   string // file; "" if the node has an authority of its own

	// Peer and Gossip are the ports for other nodes, host:port; empty if StartSingle started the node.
	Peer, Gossip string

	// LogFile is where the process prints; "" is ID.log beside Dir.
	LogFile string
	// CutOff says that the network may be broken: a question to the operations port takes cutOffLimit at most, over a
	// connection of its own. A connection that was cut would be used again.
	CutOff bool
	// Watch is told of each life. nil: the kernel ends the process together with this one.
	Watch Watcher

	mu      sync.Mutex // guards what follows, and the addresses of a node that moves
	program []string   // what Start runs; empty: Binary
	args    []string
	cmd     *exec.Cmd
	done    chan struct{} // closed when cmd has ended
}

// Watcher is told of the lives of a process. It has to end the process if this one dies.
type Watcher interface {
	// Started is called before Start returns. With an error the process is killed, and Start fails.
	Started(pid int) error
	// Ended is called when the process has ended, before Pid says so.
	Ended(state *os.ProcessState)
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

// Command has Start run another program than Binary, such as one that enters a namespace before.
func (n *Node) Command(program []string, args ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.program, n.args = program, args
}

// Program has the next Start run another program with the same flags.
func (n *Node) Program(program ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.program = program
}

func (n *Node) command() (*exec.Cmd, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	program := n.program
	if len(program) == 0 {
		bin, err := Binary()
		if err != nil {
			return nil, err
		}
		program = []string{bin}
	}
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Args = append(cmd.Args, n.args...)
	return cmd, nil
}

// Start runs the process; it does not wait until it is ready.
func (n *Node) Start() error {
	cmd, err := n.command()
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
	fmt.Fprintf(out, "---- start %s\n", time.Now().Format("15:04:05.000"))
	_ = os.Remove(filepath.Join(n.Dir, "ports.json")) // of an earlier life
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if n.Watch != nil { // a group of its own: what a terminal sends does not reach it
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if n.Watch != nil {
		if err := n.Watch.Started(cmd.Process.Pid); err != nil {
			_ = cmd.Process.Kill()
			return errors.Join(err, cmd.Wait())
		}
	}
	done := make(chan struct{})
	n.mu.Lock()
	n.cmd, n.done = cmd, done
	n.mu.Unlock()
	go func() {
		_ = cmd.Wait()
		if n.Watch != nil {
			n.Watch.Ended(cmd.ProcessState)
		}
		close(done)
	}()
	return nil
}

func (n *Node) logFile() string {
	if n.LogFile != "" {
		return n.LogFile
	}
	return filepath.Join(filepath.Dir(n.Dir), n.ID+".log")
}

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

// Done is closed when the process has ended. It is nil if there never was one.
func (n *Node) Done() <-chan struct{} {
	_, done := n.running()
	return done
}

// Signal sends a signal to the process and waits for nothing.
func (n *Node) Signal(sig syscall.Signal) error {
	cmd, _ := n.running()
	if cmd == nil {
		return fmt.Errorf("%s has no process", n.ID)
	}
	return cmd.Process.Signal(sig)
}

// endLimit is how long a process may take to follow a signal, killLimit how long after SIGKILL. A process that takes longer
// hangs in the kernel.
const endLimit, killLimit = 20 * time.Second, 10 * time.Second

// Kill ends the process as a crash does (SIGKILL) and waits until it is gone.
func (n *Node) Kill() { _ = n.End(syscall.SIGKILL, endLimit) }

// Stop asks the process to end in good order (SIGTERM) and waits until it is gone.
func (n *Node) Stop() { _ = n.End(syscall.SIGTERM, endLimit) }

// End sends a signal to the process and waits until it is gone. A process that has not gone after limit is killed. It
// is an error if that does not help.
func (n *Node) End(sig syscall.Signal, limit time.Duration) error {
	cmd, done := n.running()
	if cmd == nil {
		return nil
	}
	_ = cmd.Process.Signal(sig)
	select {
	case <-done:
		return nil
	case <-time.After(limit):
	}
	_ = cmd.Process.Kill()
	select {
	case <-done:
		return nil
	case <-time.After(killLimit):
		return fmt.Errorf("%s does not end", n.ID)
	}
}
