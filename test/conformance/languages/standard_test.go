package languages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
)

// standard is an address of loopback with the ports that Azure has, for versions of libraries that
// connect to no others. What comes in at one of them goes on to the TLS port of a node.
type standard struct {
	ip        net.IP
	listeners []net.Listener
	open      sync.WaitGroup
	mu        sync.Mutex
	conns     map[net.Conn]bool // nil once it is closed
}

// listenStandard listens at ports of an address of 127.0.0.0/8 where nobody else does.
func listenStandard(t *testing.T, ports []string) *standard {
	t.Helper()
	var last error
	for range 20 {
		s := &standard{conns: map[net.Conn]bool{},
			ip: net.IPv4(127, byte(1+rand.IntN(254)), byte(rand.IntN(256)), byte(1+rand.IntN(254)))}
		if last = s.listen(ports); last == nil {
			t.Cleanup(s.close)
			return s
		}
		s.close()
	}
	t.Fatalf("%v: an old library connects to this port only; run as root, or set the sysctl "+
		"net.ipv4.ip_unprivileged_port_start to 443", last)
	return nil
}

// segment is the largest TCP segment of a connection, in bytes, as with the broker's own listeners on loopback.
// The asyncio client of Python writes TCP_MAXSEG as it read it, and Linux refuses what is above 32,767.
const segment = 1460

func (s *standard) listen(ports []string) error {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if fault := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, segment)
		}); fault != nil {
			return fault
		}
		return err
	}}
	for _, p := range ports {
		l, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(s.ip.String(), p))
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
	}
	return nil
}

// forward carries every connection to the node at addr from now on.
func (s *standard) forward(addr string) {
	for _, l := range s.listeners {
		s.open.Go(func() {
			for {
				near, err := l.Accept()
				if err != nil {
					return
				}
				s.open.Go(func() { s.carry(near, addr) })
			}
		})
	}
}

func (s *standard) carry(near net.Conn, addr string) {
	defer s.forget(near)
	if !s.keep(near) {
		return
	}
	far, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer s.forget(far)
	if !s.keep(far) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, err := io.Copy(way[0], way[1])
			if errors.Is(err, io.EOF) || err == nil {
				_ = way[0].(*net.TCPConn).CloseWrite()
				return
			}
			near.Close()
			far.Close()
		})
	}
	both.Wait()
}

// keep remembers a connection until forget, and reports false when it is too late for that.
func (s *standard) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.conns[c] = true
	return true
}

func (s *standard) forget(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	c.Close()
}

func (s *standard) close() {
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	for _, l := range s.listeners {
		l.Close()
	}
	s.open.Wait()
}

// connectionString is like the one that Azure hands out: without a port.
func (s *standard) connectionString(name, key string) string {
	return fmt.Sprintf("Endpoint=sb://%s/;SharedAccessKeyName=%s;SharedAccessKey=%s", s.ip, name, key)
}
