package main

import (
	"net"
	"syscall"
	"testing"
)

// Loopback offers segments of 64 KiB. A client with a small receive buffer, as all .NET clients have,
// then waits for the sender's probe timer after each of them.
func TestListenersAgreeToSegmentsOfEthernetOnly(t *testing.T) {
	l, err := listen(t.Context(), "amqp-listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for name, c := range map[string]net.Conn{"client": client, "server": server} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var segment int
		var fault error
		if err := raw.Control(func(fd uintptr) {
			segment, fault = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG)
		}); err != nil || fault != nil {
			t.Fatal(err, fault)
		}
		if segment < 536 || segment > maxSegment {
			t.Errorf("%s sends segments of %d bytes, want 536 to %d", name, segment, maxSegment)
		}
	}
}
