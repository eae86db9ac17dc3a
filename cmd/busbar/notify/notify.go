package notify

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// The states that systemd knows.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	Alive    = "WATCHDOG=1"
)

// Status is the line that systemctl shows of the service.
func Status(text string) string { return "STATUS=" + strings.ReplaceAll(text, "\n", " ") }

// Reloading begins a reload; [Ready] ends it. It says when it began, on the clock of the manager.
func Reloading() []string {
	lines := []string{"RELOADING=1"}
	if now, ok := monotonic(); ok {
		lines = append(lines, "MONOTONIC_USEC="+strconv.FormatInt(now.Microseconds(), 10))
	}
	return lines
}

// Socket is where the manager listens. A nil one is of a process that no manager has started.
type Socket struct {
	address  *net.UnixAddr
	watchdog time.Duration
}

// Open reads what the manager has put into the environment of the process pid. It returns nil if nobody listens.
func Open(getenv func(string) (string, bool), pid int) (*Socket, error) {
	name, ok := getenv("NOTIFY_SOCKET")
	if !ok || name == "" {
		return nil, nil
	}
	if name[0] != '/' && name[0] != '@' { // a path, or a name in the abstract namespace
		return nil, fmt.Errorf("NOTIFY_SOCKET is %q, want a path or a name that begins with @", name)
	}
	s := &Socket{address: &net.UnixAddr{Name: name, Net: "unixgram"}}
	text, ok := getenv("WATCHDOG_USEC")
	if of, given := getenv("WATCHDOG_PID"); !ok || given && of != strconv.Itoa(pid) {
		return s, nil
	}
	period, err := strconv.ParseInt(text, 10, 64)
	if err != nil || period <= 0 || period > int64(24*time.Hour/time.Microsecond) {
		return nil, fmt.Errorf("WATCHDOG_USEC is %q, want a number of microseconds of a day at most", text)
	}
	s.watchdog = time.Duration(period) * time.Microsecond
	return s, nil
}

// Watchdog is how long the manager waits for [Alive]; 0 if it does not.
func (s *Socket) Watchdog() time.Duration {
	if s == nil {
		return 0
	}
	return s.watchdog
}

// sendTimeout bounds a send: the socket's queue is full while the manager hangs.
const sendTimeout = time.Second

// Send sends lines in one packet.
func (s *Socket) Send(lines ...string) (err error) {
	if s == nil {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, s.address)
	if err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	if _, err := c.Write([]byte(strings.Join(lines, "\n") + "\n")); err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	return nil
}
