package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	begun   chan struct{} // closed when the node stops by itself
	stopped int
	code    int // of the exit; -1 before it
}

func newStopTrial() *stopTrial {
	s := &stopTrial{signals: make(chan os.Signal, 4), hangups: make(chan struct{}, 1), done: make(chan struct{}),
		begun: make(chan struct{}), code: -1}
	e := &ending{signals: s.signals, stop: func() { s.stopped++ }, begun: s.begun, reload: s.hangups,
		exit: func(code int) { s.code = code }, log: hclog.NewNullLogger()}
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

// A node that stops because it has failed ends in time, too, and the signal that comes meanwhile is the first one.
func TestAFailedNodeThatHangsEnds(t *testing.T) {
	for name, c := range map[string]struct {
		signals []os.Signal
		wait    time.Duration
		stopped int
		code    int
	}{
		"in time":                   {nil, stopBound - 1, 0, -1},
		"it hangs":                  {nil, stopBound, 0, exit.CutOff},
		"a signal meanwhile":        {[]os.Signal{syscall.SIGTERM}, stopBound - 1, 1, -1},
		"a signal puts nothing off": {[]os.Signal{syscall.SIGTERM}, stopBound, 1, exit.CutOff},
		"two signals meanwhile":     {[]os.Signal{syscall.SIGTERM, syscall.SIGTERM}, 0, 1, exit.CutOff},
		"a hangup asks for nothing": {[]os.Signal{syscall.SIGHUP}, stopBound, 0, exit.CutOff},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStopTrial()
				close(s.begun)
				synctest.Wait()
				s.send(c.signals...)
				time.Sleep(c.wait)
				synctest.Wait()
				if s.stopped != c.stopped || s.code != c.code || len(s.hangups) != 0 {
					t.Errorf("stopped %d times, exit %d, %d hangups, want %d and %d", s.stopped, s.code, len(s.hangups), c.stopped, c.code)
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

// A node that a program has started stops in good order with the pipe that the program held, and lives as long as the pipe.
func TestANodeStopsWithItsStandardInput(t *testing.T) {
	dir := t.TempDir()
	p := &processNode{t: t, dir: dir, log: new(logBook), ended: make(chan struct{})}
	p.Cmd = exec.Command(os.Args[0], "serve", "--dev", "--ephemeral", "--stop-with-stdin", "--amqp-listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0",
		"--ops-listen", "127.0.0.1:0", "--ports-file", filepath.Join(dir, "ports.json")) //nolint:gosec // the test itself
	p.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+dir)
	p.Stdout, p.Stderr = p.log, p.log
	pipe, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.ended) }()
	t.Cleanup(func() { _ = p.Process.Kill(); <-p.ended })
	p.awaitLog("is ready after")
	if _, err := pipe.Write([]byte("what is written here means nothing\n")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
		t.Fatalf("the node ended before its input: %s", p.log)
	case <-time.After(100 * time.Millisecond):
	}
	pipe.Close()
	if code := p.code(); code != 0 || !strings.Contains(p.log.String(), "end of standard input") {
		t.Errorf("exit code %d: %s", code, p.log)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ephemeralPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
