package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// node is one broker process, its place in the network and its disk.
type node struct {
	*cluster.Node
	number int    // from 1
	ip     string // of its namespace, or loopback
	disk   *disk  // nil: no disk of its own
	sup    *supervisor
	runs   string // the program of its next start, if programs are exchanged

	mu     sync.Mutex
	forget func() error // tells the supervisor that the process has ended
	// expected says that the process may end by itself: it is being killed, or its disk is broken.
	expected bool
	deaths   []string // ends that nobody had expected
}

// newNode makes a node that has no addresses yet.
func newNode(sup *supervisor, number int, ip, dir, log string) *node {
	n := &node{number: number, ip: ip, sup: sup}
	n.Node = &cluster.Node{ID: fmt.Sprintf("n%d", number), Dir: dir, LogFile: log, CutOff: true, Watch: n}
	return n
}

// Started implements cluster.Watcher: the supervisor ends the process if this one dies.
func (n *node) Started(pid int) error {
	began, err := startOf(pid)
	if err != nil {
		return err
	}
	takeBack, err := n.sup.register(undo{Signal: syscall.SIGKILL, Pid: pid, Start: began})
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget, n.expected = takeBack, false
	return nil
}

// Ended implements cluster.Watcher.
func (n *node) Ended(state *os.ProcessState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.expected {
		n.deaths = append(n.deaths, fmt.Sprintf("%s %s ended by itself: %v",
			time.Now().Format("15:04:05.000"), n.ID, state))
	}
}

// expectEnd says that from now on the process may end.
func (n *node) expectEnd() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expected = true
}

// end ends the process with a signal. A process that does not follow within limit is killed.
func (n *node) end(s syscall.Signal, limit time.Duration) error {
	n.expectEnd()
	if n.Pid() == 0 {
		return nil
	}
	if err := n.End(s, limit); err != nil {
		return err
	}
	n.mu.Lock()
	forget := n.forget
	n.mu.Unlock()
	return forget()
}

// state returns the letter of /proc: R, S, D, T, Z.
func (n *node) state() string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.Pid()))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:min(1, len(rest))]
}

// alarming are words of a process that found itself broken.
var alarming = regexp.MustCompile(`(?m)^(panic:|fatal error:|goroutine \d+ \[running\]|WARNING: DATA RACE).*$|invariant`)

// findings returns what the log says that no fault explains.
func (n *node) findings() []string {
	n.mu.Lock()
	out := append([]string(nil), n.deaths...)
	n.mu.Unlock()
	text, err := os.ReadFile(n.LogFile)
	if err != nil {
		return append(out, err.Error())
	}
	const most = 5
	for i, m := range alarming.FindAllIndex(text, most) {
		line := text[m[0]:min(len(text), m[0]+300)]
		out = append(out, fmt.Sprintf("%s log, alarm %d: %s", filepath.Base(n.LogFile), i+1, line))
	}
	return out
}
