package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cmd/busbar/notify"
)

// The watchdog is answered twice in its period while the node's check passes, and not while it fails or hangs.
func TestTheWatchdogIsAnsweredByAHealthyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said atomic.Int64
		s := &service{send: func(lines ...string) error {
			if strings.Join(lines, " ") == notify.Alive {
				said.Add(1)
			}
			return nil
		}, watchdog: 10 * time.Second, log: hclog.NewNullLogger()}
		healthy, broken, hangs := func(context.Context) error { return nil }, func(context.Context) error { return errors.New("broken") },
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		var check atomic.Value // a func(context.Context) error
		check.Store(healthy)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.watch(ctx, func(ctx context.Context) error { return check.Load().(func(context.Context) error)(ctx) })
		}()
		for _, c := range []struct {
			name  string
			check func(context.Context) error
			want  int64
		}{{"healthy", healthy, 6}, {"broken", broken, 6}, {"healthy again", healthy, 12}, {"hanging", hangs, 12}} {
			check.Store(c.check)
			time.Sleep(30*time.Second + time.Millisecond)
			synctest.Wait()
			if n := said.Load(); n != c.want {
				t.Errorf("%s: answered %d times, want %d", c.name, n, c.want)
			}
		}
		cancel()
		<-done
	})
}

// A process tells systemd when it serves, that it lives, when it reloads and that it stops.
func TestAProcessTellsSystemd(t *testing.T) {
	dir := t.TempDir()
	newAuthority(t, "ours").issue(t, dir, paper{})
	socket := filepath.Join(t.TempDir(), "notify")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	heard := make(chan string, 1000)
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := listener.Read(b)
			if err != nil {
				close(heard)
				return
			}
			heard <- string(b[:n])
		}
	}()
	hear := func(want string) {
		t.Helper()
		for over := time.After(processLimit); ; {
			select {
			case got := <-heard:
				if strings.HasPrefix(got, want) {
					return
				}
				if !strings.HasPrefix(got, notify.Alive) {
					t.Fatalf("heard %q, want %q", got, want)
				}
			case <-over:
				t.Fatalf("never heard %q", want)
			}
		}
	}
	p := startProcess(t, writeConfig(t, reloadFile(dir, "")), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=2000000")
	hear("STATUS=waiting for the cluster\n")
	hear("READY=1\nSTATUS=serving clients\n")
	hear(notify.Alive)
	p.signal(syscall.SIGHUP)
	hear("RELOADING=1\nMONOTONIC_USEC=")
	hear("READY=1\n")
	p.signal(syscall.SIGTERM)
	hear("STOPPING=1\n")
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.log)
	}
}
