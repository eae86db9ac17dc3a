package main

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// through returns a connection through a proxy to an echo, and the path it takes.
func through(t *testing.T) (net.Conn, *path, func() (net.Conn, error)) {
	t.Helper()
	target, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	go func() {
		for {
			c, err := target.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	peer := target.Addr().(*net.TCPAddr).Port
	free, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	gossip := free.Addr().(*net.TCPAddr).Port
	free.Close()
	p, err := newProxy("127.0.0.3", "127.0.0.2", peer, gossip, func(net.Addr) int { return 7 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	dial := func() (net.Conn, error) { return net.Dial("tcp", at("127.0.0.3", peer)) }
	c, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, p.from(7), dial
}

// echoed sends one byte and waits for it to come back.
func echoed(c net.Conn, limit time.Duration) error {
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(limit))
	_, err := c.Read(make([]byte, 1))
	return err
}

const (
	soon = 100 * time.Millisecond // nothing came
	late = 20 * time.Second       // something must have come
)

func TestProxyLetsThrough(t *testing.T) {
	c, _, _ := through(t)
	if err := echoed(c, late); err != nil {
		t.Error(err)
	}
}

func TestProxyHoldsAndLetsGo(t *testing.T) {
	for name, r := range map[string]rules{"to the callee": {HoldForward: true}, "answers": {HoldBack: true}} {
		t.Run(name, func(t *testing.T) {
			c, p, _ := through(t)
			p.set(r)
			if err := echoed(c, soon); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v, want nothing", err)
			}
			if p.affected.Load() == 0 {
				t.Error("it does not know that it held something")
			}
			p.set(rules{})
			_ = c.SetReadDeadline(time.Now().Add(late))
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Errorf("what was held did not come: %v", err)
			}
		})
	}
}

func TestProxyResets(t *testing.T) {
	c, p, dial := through(t)
	if err := echoed(c, late); err != nil {
		t.Fatal(err)
	}
	p.reset()
	if err := echoed(c, late); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v, want a reset", err)
	}
	p.set(rules{RefuseNew: true})
	fresh, err := dial()
	if err == nil {
		err = echoed(fresh, late)
	}
	if err == nil {
		t.Error("a new connection was let through")
	}
}
