package sink

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

var at = time.Date(2026, 11, 25, 6, 7, 8, 9000, time.UTC)

func write(t *testing.T, s Sink, line string) {
	t.Helper()
	if err := s.Write(at, "entity.create", false, []byte(line+"\n")); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, setting string) Sink {
	t.Helper()
	s, err := Open(setting, "host one")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func content(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A file that logrotate moves away goes on under its name after a reopen, and nobody else may read it.
func TestAFileIsRotated(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	s := open(t, name)
	write(t, s, "one")
	if st, err := os.Stat(name); err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", st, err)
	}
	if runtime.GOOS == "windows" {
		return // an open file is not moved there
	}
	if err := os.Rename(name, name+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, s, "two")
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	write(t, s, "three")
	if old, now := content(t, name+".1"), content(t, name); old != "one\ntwo\n" || now != "three\n" {
		t.Errorf("moved %q, new %q", old, now)
	}
	if err := os.RemoveAll(filepath.Dir(name)); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(); err == nil {
		t.Error("a directory that is gone is no error")
	}
	write(t, s, "four") // to the file that is open
}

// A disk that is full leaves no torn line behind.
func TestAFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no device that is full")
	}
	s := open(t, "/dev/full")
	if err := s.Write(at, "a", false, []byte("x\n")); err == nil {
		t.Error("a full disk is no error")
	}
	f := &file{name: filepath.Join(t.TempDir(), "a")}
	if err := f.Reopen(); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write(t, f, "one")
	if _, err := f.out.WriteString("tw"); err != nil {
		t.Fatal(err)
	}
	if err := f.cut(2); err != nil {
		t.Fatal(err)
	}
	f.torn = true
	write(t, f, "three")
	if text := content(t, f.name); text != "one\n\nthree\n" {
		t.Errorf("%q", text)
	}
}

var message = regexp.MustCompile(`^<8([45])>1 2026-11-25T06:07:08\.000009Z host_one busbar \d+ entity\.create - \{"a":1\}$`)

func TestSyslogOverUDP(t *testing.T) {
	in, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	received(t, in, open(t, "syslog:udp://"+in.LocalAddr().String()))
}

func TestSyslogOverASocket(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s")
	in, err := net.ListenPacket("unixgram", name)
	if err != nil {
		t.Skip("no sockets of datagrams: ", err)
	}
	defer in.Close()
	received(t, in, open(t, "syslog:unix://"+name))
}

func received(t *testing.T, in net.PacketConn, s Sink) {
	t.Helper()
	for _, refused := range []bool{false, true} {
		if err := s.Write(at, "entity.create", refused, []byte("{\"a\":1}\n")); err != nil {
			t.Fatal(err)
		}
		if err := in.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		datagram := make([]byte, 4096)
		n, _, err := in.ReadFrom(datagram)
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{false: "5", true: "4"}[refused] // 10*8 + the severity
		if got := message.FindSubmatch(datagram[:n]); got == nil || string(got[1]) != want {
			t.Errorf("%q", datagram[:n])
		}
	}
}

// Over TCP each message has its length before it, and a connection that breaks is opened anew.
func TestSyslogOverTCP(t *testing.T) {
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	s := open(t, "syslog:tcp://"+in.Addr().String())
	for range 2 {
		for range 2 {
			if err := s.Write(at, "entity.create", false, []byte("{\"a\":1}\n")); err != nil {
				t.Fatal(err)
			}
		}
		c, err := in.Accept()
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(c)
		for range 2 {
			var n int
			if _, err := fmt.Fscanf(r, "%d ", &n); err != nil {
				t.Fatal(err)
			}
			text := make([]byte, n)
			if _, err := io.ReadFull(r, text); err != nil || !message.Match(text) {
				t.Errorf("%v: %q", err, text)
			}
		}
		c.Close()
		if err := s.Reopen(); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	if err := s.Write(at, "a", false, []byte("x\n")); err == nil {
		t.Error("a syslog that is away is no error")
	}
}

func TestSettings(t *testing.T) {
	for setting, fault := range map[string]string{
		"": "", "-": "", "/var/log/a": "", "syslog:": "", "syslog:udp://h:514": "", "syslog:tcp://[::1]:601": "", "syslog:unix:///run/log": "",
		"syslog:udp": "want syslog:", "syslog:tls://h:1": "want udp, tcp or unix", "syslog:udp://h": "no HOST:PORT", "syslog:unix://run": "begins with a slash",
	} {
		err := Check(setting)
		if fault == "" && err != nil || fault != "" && (err == nil || !strings.Contains(err.Error(), fault)) {
			t.Errorf("%q: %v", setting, err)
		}
	}
}
