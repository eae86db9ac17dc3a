package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/partition"
)

// An alarm begins when a check has failed for a while, which an election does not take, and is logged at its beginning
// and its end.
func TestAlarmsBeginAndEndWithALine(t *testing.T) {
	var log bytes.Buffer
	var fault error
	a := &alarms{failing: map[string]int{}, log: hclog.New(&hclog.LoggerOptions{Output: &log}),
		look: func() []partition.Check {
			return []partition.Check{{Name: "disk-space", Err: fault}, {Name: "clock"}}
		}}
	steps := func(n int) {
		for range n {
			a.step()
		}
	}
	steps(3)
	fault = errors.New("disk is nearly full")
	steps(alarmPatience - 1)
	if len(a.list()) != 0 || log.Len() != 0 {
		t.Fatalf("too early: %v, %s", a.list(), log.String())
	}
	steps(10)
	if l := a.list(); len(l) != 1 || l[0].Name != "disk-space" || l[0].Reason != "disk is nearly full" {
		t.Errorf("alarms: %+v", l)
	}
	fault = nil
	steps(5)
	if len(a.list()) != 0 {
		t.Errorf("alarms at the end: %+v", a.list())
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "alarm ended") {
		t.Errorf("lines:\n%s", log.String())
	}
	fault = errors.New("again")
	steps(alarmPatience)
	if lines := strings.Count(log.String(), "\n"); lines != 3 {
		t.Errorf("lines:\n%s", log.String())
	}
}
