package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// undo is how one fault is taken back. It is data, so that another process can do it.
type undo struct {
	// Signal is sent to Pid while that is still the process that began at Start; 0 runs Argv.
	Signal syscall.Signal `json:"signal,omitempty"`
	Pid    int            `json:"pid,omitempty"`
	Start  uint64         `json:"start,omitempty"` // clock ticks since boot, of /proc/PID/stat
	Argv   []string       `json:"argv,omitempty"`
	// Within is when it is done at the latest, in seconds; 0 is not before the runner's death.
	Within float64 `json:"within,omitempty"`
}

// request is one line to the supervisor: an undo to keep, or the number of one that is done.
type request struct {
	ID   int   `json:"id"`
	Undo *undo `json:"undo,omitempty"` // none: forget ID
}

// undoLimit bounds one command of the supervisor.
const undoLimit = 20 * time.Second

func (u *undo) do() error {
	if u.Signal != 0 {
		if start, err := startOf(u.Pid); err != nil || start != u.Start {
			return nil // it has ended; the number may belong to somebody else
		}
		return syscall.Kill(u.Pid, u.Signal)
	}
	ctx, cancel := context.WithTimeout(context.Background(), undoLimit)
	defer cancel()
	if out, err := exec.CommandContext(ctx, u.Argv[0], u.Argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", u.Argv, err, out)
	}
	return nil
}

// startOf returns when a process began, which tells it from a later one of the same number.
func startOf(pid int) (uint64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The name stands in parentheses and may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// keeper is the supervisor's side: what it would have to undo.
type keeper struct {
	mu      sync.Mutex
	pending map[int]*undo
	order   []int
	timers  map[int]*time.Timer
	log     io.Writer
}

// superviseMain is the supervisor process. It ends when its standard input does, which happens when
// the runner ends in whatever way.
func superviseMain(in io.Reader, out, log io.Writer) {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	k := &keeper{pending: map[int]*undo{}, timers: map[int]*time.Timer{}, log: log}
	for s := bufio.NewScanner(in); s.Scan(); {
		var q request
		if err := json.Unmarshal(s.Bytes(), &q); err != nil {
			fmt.Fprintln(log, "supervisor:", err)
			continue
		}
		k.take(q)
		fmt.Fprintln(out, q.ID)
	}
	k.mu.Lock()
	left := slices.Clone(k.order)
	k.mu.Unlock()
	slices.Reverse(left)
	for _, id := range left {
		k.undo(id)
	}
}

func (k *keeper) take(q request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if q.Undo == nil {
		k.forgetLocked(q.ID)
		return
	}
	k.pending[q.ID] = q.Undo
	k.order = append(k.order, q.ID)
	if q.Undo.Within > 0 {
		k.timers[q.ID] = time.AfterFunc(time.Duration(q.Undo.Within*float64(time.Second)), func() { k.undo(q.ID) })
	}
}

func (k *keeper) forgetLocked(id int) {
	if t := k.timers[id]; t != nil {
		t.Stop()
	}
	delete(k.timers, id)
	delete(k.pending, id)
	k.order = slices.DeleteFunc(k.order, func(i int) bool { return i == id })
}

func (k *keeper) undo(id int) {
	k.mu.Lock()
	u := k.pending[id]
	k.forgetLocked(id)
	k.mu.Unlock()
	if u == nil {
		return
	}
	if err := u.do(); err != nil {
		fmt.Fprintln(k.log, "supervisor:", err)
	}
}

// supervisor is the runner's side.
type supervisor struct {
	mu    sync.Mutex
	in    io.WriteCloser
	lines *bufio.Scanner
	next  int
	cmd   *exec.Cmd
}

// startSupervisor runs this binary again with argument supervise, in a session of its own, so that
// what ends the runner does not end it.
func startSupervisor() (*supervisor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), superviseVariable+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &supervisor{in: in, lines: bufio.NewScanner(out), cmd: cmd}, nil
}

func (s *supervisor) tellLocked(q request) error {
	line, err := json.Marshal(q)
	if err != nil {
		return err
	}
	if _, err := s.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	if !s.lines.Scan() {
		return errors.New("the supervisor has ended")
	}
	return nil
}

// register returns when the supervisor knows how to take back what is about to be done. The returned
// function takes it back now.
func (s *supervisor) register(u undo) (takeBack func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	id := s.next
	if err := s.tellLocked(request{ID: id, Undo: &u}); err != nil {
		return nil, err
	}
	return func() error {
		err := u.do()
		return errors.Join(err, s.forget(id))
	}, nil
}

func (s *supervisor) forget(id int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tellLocked(request{ID: id})
}

// close lets the supervisor undo whatever is left, and waits for it.
func (s *supervisor) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.in.Close(), s.cmd.Wait())
}
