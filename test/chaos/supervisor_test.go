package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// begin starts a process that lasts.
func begin(t *testing.T) (*exec.Cmd, uint64) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	start, err := startOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, start
}

func TestSupervisorUndoesWhatIsLeft(t *testing.T) {
	s, err := startSupervisor()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	left, done := filepath.Join(dir, "left"), filepath.Join(dir, "done")
	paused, start := begin(t)
	reused, other := begin(t)
	if err := paused.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, u := range []undo{
		{Argv: []string{"cp", "/dev/null", left}},
		{Signal: syscall.SIGKILL, Pid: paused.Process.Pid, Start: start},
		{Signal: syscall.SIGKILL, Pid: reused.Process.Pid, Start: other + 1}, // another process of that number
	} {
		if _, err := s.register(u); err != nil {
			t.Fatal(err)
		}
	}
	takeBack, err := s.register(undo{Argv: []string{"mkdir", done}})
	if err != nil {
		t.Fatal(err)
	}
	if err := takeBack(); err != nil { // a second mkdir would fail, and close with it
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("what was left was not undone: %v", err)
	}
	if err := paused.Wait(); err == nil {
		t.Error("the paused process was not ended")
	}
	if _, err := startOf(reused.Process.Pid); err != nil {
		t.Error("a process was ended that only has the number of the registered one")
	}
}

func TestSupervisorUndoesInTime(t *testing.T) {
	s := supervised(t)
	cmd, start := begin(t)
	_, err := s.register(undo{Signal: syscall.SIGKILL, Pid: cmd.Process.Pid, Start: start, Within: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the time was over and nothing was undone")
	}
}
