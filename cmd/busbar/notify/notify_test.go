package notify

import (
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func environment(m map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { text, ok := m[name]; return text, ok }
}

// Packets come whole at a socket of a path and at one of the abstract namespace.
func TestPacketsArrive(t *testing.T) {
	names := []string{filepath.Join(t.TempDir(), "notify")}
	if runtime.GOOS == "linux" {
		names = append(names, "@busbar-test-"+strings.ReplaceAll(filepath.Base(t.TempDir()), "/", "")+t.Name())
	}
	for _, name := range names {
		listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		s, err := Open(environment(map[string]string{"NOTIFY_SOCKET": name}), 1)
		if err != nil || s.Watchdog() != 0 {
			t.Fatalf("%s: %v, %v", name, s, err)
		}
		if err := s.Send(Ready, Status("two\nlines")); err != nil {
			t.Fatal(err)
		}
		if err := s.Send(Reloading()...); err != nil {
			t.Fatal(err)
		}
		read := func() string {
			b := make([]byte, 1000)
			n, err := listener.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			return string(b[:n])
		}
		if got := read(); got != "READY=1\nSTATUS=two lines\n" {
			t.Errorf("%s: %q", name, got)
		}
		got := read()
		if !strings.HasPrefix(got, "RELOADING=1\n") || strings.Contains(got, "MONOTONIC_USEC=") != (runtime.GOOS == "linux") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestTheEnvironmentIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		env      map[string]string
		listens  bool
		watchdog time.Duration
		fails    bool
	}{
		"nothing":                    {nil, false, 0, false},
		"an empty name":              {map[string]string{"NOTIFY_SOCKET": ""}, false, 0, false},
		"a socket":                   {map[string]string{"NOTIFY_SOCKET": "/run/n"}, true, 0, false},
		"an address of another kind": {map[string]string{"NOTIFY_SOCKET": "vsock:2:1"}, false, 0, true},
		"a watchdog":                 {map[string]string{"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "3000000"}, true, 3 * time.Second, false},
		"a watchdog of this process": {map[string]string{"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}, true, 3 * time.Second, false},
		"one of another process":     {map[string]string{"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, true, 0, false},
		"no number":                  {map[string]string{"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "soon"}, false, 0, true},
		"no time":                    {map[string]string{"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "0"}, false, 0, true},
	} {
		s, err := Open(environment(c.env), 7)
		if (s != nil) != c.listens || s.Watchdog() != c.watchdog || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v, %v", name, s, s.Watchdog(), err)
		}
	}
	if err := (*Socket)(nil).Send(Ready); err != nil {
		t.Errorf("without a manager: %v", err)
	}
	gone, err := Open(environment(map[string]string{"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "gone")}), 1)
	if err != nil || gone.Send(Ready) == nil {
		t.Errorf("a socket that is gone is no error: %v", err)
	}
}
