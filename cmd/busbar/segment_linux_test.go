package main

import (
	"net"
	"syscall"
	"testing"
)

// ethernetSegment is the largest TCP segment of an Ethernet frame, in bytes.
const ethernetSegment = 1460

// segmentsOf returns the largest segments of both ends of a connection over loopback to a listener.
func segmentsOf(t *testing.T, address string) map[string]int {
	t.Helper()
	l, err := listen(t.Context(), "amqp-listen", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", net.JoinHostPort("localhost", portOf(l.Addr().String())))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	segments := map[string]int{}
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
		segments[name] = segment
	}
	return segments
}

// N3: loopback offers segments of 64 KiB. A client with a small receive buffer, as all .NET clients have, then waits for
// the sender's probe timer after each of them. A listener on a loopback address agrees to small ones.
func TestListenersOnLoopbackAgreeToSegmentsOfEthernetOnly(t *testing.T) {
	for name, segment := range segmentsOf(t, "127.0.0.1:0") {
		if segment < 536 || segment > ethernetSegment {
			t.Errorf("%s sends segments of %d bytes, want 536 to %d", name, segment, ethernetSegment)
		}
	}
}

// A listener for other machines leaves the segments to the network.
func TestOtherListenersLeaveSegmentsAlone(t *testing.T) {
	for name, segment := range segmentsOf(t, ":0") {
		if segment <= ethernetSegment {
			t.Errorf("%s sends segments of %d bytes, over loopback there are larger ones", name, segment)
		}
	}
}
