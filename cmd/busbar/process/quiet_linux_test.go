package process

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// One thread is found, and always the same; it is not the one that asks, and it gets its slack where
// the system lets us.
func TestTheMonitorThreadIsFound(t *testing.T) {
	first, err := findMonitor()
	if errors.Is(err, errNoMonitor) {
		t.Skip("this machine is too busy to tell the threads apart")
	}
	if err != nil {
		t.Fatal(err)
	}
	again, err := findMonitor()
	if err != nil && !errors.Is(err, errNoMonitor) || err == nil && again != first {
		t.Errorf("thread %d, then %d (%v)", first, again, err)
	}
	if first == os.Getpid() {
		t.Error("the main thread was taken for the monitor")
	}
	before, err := os.ReadFile(slackFile(first))
	if err != nil {
		t.Skip("the system does not tell: ", err)
	}
	err = setSlack(first, 2*time.Millisecond)
	if errors.Is(err, syscall.EPERM) {
		t.Skip("no CAP_SYS_NICE")
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(slackFile(first))
	if got := strings.TrimSpace(string(text)); err != nil || got != "2000000" {
		t.Errorf("slack %s, %v, want 2000000", got, err)
	}
	ns, err := strconv.Atoi(strings.TrimSpace(string(before)))
	if err != nil {
		t.Fatal(err)
	}
	if err := setSlack(first, time.Duration(ns)); err != nil {
		t.Error(err)
	}
}

func TestNoOtherThreadIsTouched(t *testing.T) {
	if err := setSlack(1<<30, monitorSlack); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a thread that is not there: %v", err)
	}
	startThreads(spareThreads) // returns when all have run
}
