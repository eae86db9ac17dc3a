package sink

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// Sink is where lines go.
type Sink interface {
	// Write writes a line, which ends in a line feed. action and refused are of its event.
	Write(at time.Time, action string, refused bool, line []byte) error
	// Reopen opens anew what somebody may have moved away.
	Reopen() error
	Close() error
}

const (
	// stdout is the setting for standard output.
	stdout = "-"
	// syslogPrefix begins the setting for syslog. Alone it is the socket of this host.
	syslogPrefix = "syslog:"
)

// localSockets are where the syslog of a host listens, the first that is there.
var localSockets = []string{"/dev/log", "/var/run/syslog", "/var/run/log"}

// Check says what is wrong with a setting, without opening anything.
func Check(setting string) error {
	rest, ok := strings.CutPrefix(setting, syslogPrefix)
	if !ok {
		return nil // every text is the name of a file
	}
	_, _, err := syslogAddress(rest)
	return err
}

// Open opens what a setting names. host is the name of this host in lines of syslog.
func Open(setting, host string) (Sink, error) {
	if setting == stdout {
		return stream{os.Stdout}, nil
	}
	rest, ok := strings.CutPrefix(setting, syslogPrefix)
	if !ok {
		return openFile(setting)
	}
	network, address, err := syslogAddress(rest)
	if err != nil {
		return nil, err
	}
	return openSyslog(network, address, host), nil
}

// syslogAddress reads what stands behind the prefix. A network without an address is the socket of this host.
func syslogAddress(text string) (network, address string, err error) {
	if text == "" {
		return "", "", nil
	}
	network, address, ok := strings.Cut(text, "://")
	if !ok {
		return "", "", errors.New("want syslog:, syslog:udp://HOST:PORT, syslog:tcp://HOST:PORT or syslog:unix:///PATH")
	}
	switch network {
	case "udp", "tcp":
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return "", "", fmt.Errorf("%q is no HOST:PORT", address)
		}
		return network, address, nil
	case "unix":
		if !strings.HasPrefix(address, "/") {
			return "", "", fmt.Errorf("%q is no path of a socket: it begins with a slash", address)
		}
		return "unixgram", address, nil
	}
	return "", "", fmt.Errorf("syslog over %q: want udp, tcp or unix", network)
}

// stream is standard output.
type stream struct{ out *os.File }

func (s stream) Write(_ time.Time, _ string, _ bool, line []byte) error {
	_, err := s.out.Write(line)
	return err
}

func (stream) Reopen() error { return nil }

func (stream) Close() error { return nil }
