package cluster

import (
	"errors"
	"net"
	"testing"
	"time"
)

// What a dialler makes of how a connection ends before the hello is answered, over real sockets. Only
// who ends it without a byte may be a proxy of a process that has gone.
func TestWhatCountsAsAHangUp(t *testing.T) {
	after := func(t *testing.T, c *net.TCPConn, linger int) {
		t.Helper()
		// The dialler's first bytes come first, as they do with a proxy that has to dial.
		_, _ = c.Read(make([]byte, 1<<10))
		if err := c.SetLinger(linger); err != nil {
			t.Error(err)
		}
		c.Close()
	}
	for name, tt := range map[string]struct {
		end  func(*testing.T, *net.TCPConn)
		want bool
	}{
		"closed":          {func(t *testing.T, c *net.TCPConn) { after(t, c, 1) }, true},
		"reset":           {func(t *testing.T, c *net.TCPConn) { after(t, c, 0) }, true},
		"closed unheard":  {func(_ *testing.T, c *net.TCPConn) { c.Close() }, true},
		"turned away":     {func(_ *testing.T, c *net.TCPConn) { turnAway(c) }, false},
		"a word, then no": {func(t *testing.T, c *net.TCPConn) { _, _ = c.Write([]byte("B")); after(t, c, 1) }, false},
		"silent":          {func(_ *testing.T, c *net.TCPConn) {}, false},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				taken := make(chan *net.TCPConn, 2) // the hello of this build, and that of the build before
				go func() {
					defer close(taken)
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						tt.end(t, c.(*net.TCPConn))
						taken <- c.(*net.TCPConn)
					}
				}()
				cfg := testConfig("a")
				cfg.HelloTimeout = 100 * time.Millisecond
				if secure {
					cfg.TLS = newAuthority(t).tls(t)
				}
				var names book
				m := startNode(t, &names, cfg)
				p, err := m.peer("b")
				if err != nil {
					t.Fatal(err)
				}
				err = m.connect(testContext(t), p, l.Addr().String())
				if err == nil || errors.Is(err, errHungUp) != tt.want {
					t.Errorf("TLS %v: %v; a hang-up: want %v", secure, err, tt.want)
				}
				l.Close()
				for c := range taken {
					c.Close()
				}
			})
		}
	}
}

// A proxy on the same machine is fast enough to reset a connection before it is told to be made.
func TestAResetWhileConnectingIsAHangUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}()
	var names book
	m := startNode(t, &names, testConfig("a"))
	p, err := m.peer("b")
	if err != nil {
		t.Fatal(err)
	}
	for range 500 { // about one in ten is reset so early
		if err := m.connect(testContext(t), p, l.Addr().String()); !errors.Is(err, errHungUp) {
			t.Fatal(err)
		}
	}
}
