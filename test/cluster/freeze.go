package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

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
