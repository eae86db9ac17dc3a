package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// Network makes and takes connections. TCP is one, the in-memory network of simnet the other.
type Network interface {
	Listen(ctx context.Context, addr string) (net.Listener, error)
	// Dial connects until ctx ends. An error that wraps syscall.ECONNREFUSED says that nobody listens
	// there: the process is gone (A17).
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// tcp is the real network. Keepalives of the kernel are off, because those of the mesh are faster. They also
// see a stopped peer whose kernel still answers.
type tcp struct{}

func (tcp) Listen(ctx context.Context, addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1}
	return lc.Listen(ctx, "tcp", addr)
}

func (tcp) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	return d.DialContext(ctx, "tcp", addr)
}

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// isEnd reports whether the other end has closed the connection.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// meteredConn bounds every write in time and counts the bytes that arrive. It stands below TLS, so any byte
// counts as a sign of life, also in the middle of a large frame.
type meteredConn struct {
	net.Conn
	writeTimeout time.Duration
	received     atomic.Uint64 // bytes
	sent         atomic.Uint64 // bytes
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(uint64(n))
	return n, err
}

func (c *meteredConn) Write(p []byte) (int, error) {
	if err := c.allowWrite(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	c.sent.Add(uint64(n))
	return n, err
}

func (c *meteredConn) allowWrite() error {
	return c.Conn.SetWriteDeadline(time.Now().Add(c.writeTimeout))
}
