//go:build unix

package sink

import (
	"bytes"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe keeps whoever opens it until somebody reads, so a node does not start with one.
func TestAPipeIsNoFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(name, "h"); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("%v", err)
	}
}

// The log drops a line of this error, and tries again after any other.
func TestALineIsTooLongForADatagram(t *testing.T) {
	in, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	s := open(t, "syslog:udp://"+in.LocalAddr().String())
	if err := s.Write(at, "a", false, bytes.Repeat([]byte("x"), 1<<16)); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("%v", err)
	}
	write(t, s, "a line")
}
