package main

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// stopTrial is an ending whose signals a test sends.
type stopTrial struct {
	signals chan os.Signal
	hangups chan struct{}
	done    chan struct{}
	stopped int
	code    int // of the exit; -1 before it
}

func newStopTrial() *stopTrial {
	s := &stopTrial{signals: make(chan os.Signal, 4), hangups: make(chan struct{}, 1), done: make(chan struct{}), code: -1}
	e := &ending{signals: s.signals, stop: func() { s.stopped++ }, reload: s.hangups, exit: func(code int) { s.code = code },
		log: hclog.NewNullLogger()}
	go e.run(s.done)
	return s
}

func (s *stopTrial) send(signals ...os.Signal) {
	for _, one := range signals {
		s.signals <- one
		synctest.Wait()
	}
}

// The first signal stops in order, the second one ends the process, and so does a stop that hangs.
func TestASecondSignalEndsTheProcess(t *testing.T) {
	for name, c := range map[string]struct {
		signals []os.Signal
		wait    time.Duration
		stopped int
		code    int
	}{
		"one signal":                       {[]os.Signal{syscall.SIGTERM}, stopBound - 1, 1, -1},
		"a second one":                     {[]os.Signal{syscall.SIGTERM, syscall.SIGTERM}, 0, 1, exit.CutOff},
		"a second one of another kind":     {[]os.Signal{syscall.SIGTERM, os.Interrupt}, 0, 1, exit.CutOff},
		"a stop that hangs":                {[]os.Signal{os.Interrupt}, stopBound, 1, exit.CutOff},
		"a hangup ends nothing":            {[]os.Signal{syscall.SIGHUP, syscall.SIGHUP}, time.Hour, 0, -1},
		"a hangup is no second signal":     {[]os.Signal{syscall.SIGTERM, syscall.SIGHUP}, stopBound - 1, 1, -1},
		"a hangup does not put off an end": {[]os.Signal{syscall.SIGTERM, syscall.SIGHUP}, stopBound, 1, exit.CutOff},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStopTrial()
				s.send(c.signals...)
				time.Sleep(c.wait)
				synctest.Wait()
				if s.stopped != c.stopped || s.code != c.code {
					t.Errorf("stopped %d times, exit %d, want %d and %d", s.stopped, s.code, c.stopped, c.code)
				}
				close(s.done)
			})
		})
	}
}

// Hangups that come while a reload is to come ask for nothing more.
func TestAHangupAsksForAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStopTrial()
		s.send(syscall.SIGHUP, syscall.SIGHUP)
		<-s.hangups
		select {
		case <-s.hangups:
			t.Error("a second reload is asked for")
		default:
		}
		s.send(syscall.SIGTERM, syscall.SIGHUP)
		select {
		case <-s.hangups:
			t.Error("a node that stops reads its configuration again")
		default:
		}
		close(s.done)
	})
}
