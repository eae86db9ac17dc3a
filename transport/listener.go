package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// One port speaks everything (A12). The first bytes of a socket tell TLS, AMQP and HTTP apart.

const (
	tlsHandshakeByte = 0x16 // TLS record type "handshake"
	sniffBytes       = 4    // "AMQP"; every HTTP request line is longer

	// maxHTTPHeaderBytes bounds a request's header. SAS tokens take about 300 bytes.
	maxHTTPHeaderBytes = 64 << 10
	httpHeaderTimeout  = 10 * time.Second
	httpReadTimeout    = time.Minute
	httpIdleTimeout    = 2 * time.Minute
)

// peekedConn is a socket whose first bytes have been read already.
type peekedConn struct {
	net.Conn
	head []byte
}

// Read gives the peeked bytes first.
func (p *peekedConn) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// peek reads the first n bytes of c and puts them back.
func peek(c net.Conn, n int) (*peekedConn, []byte, error) {
	head := make([]byte, n)
	read, err := io.ReadFull(c, head)
	head = head[:read]
	return &peekedConn{Conn: c, head: head}, head, err
}

// sniff finds out what a new socket speaks and serves it. It owns the socket.
func (s *Server) sniff(socket net.Conn, tlsConfig *tls.Config) {
	defer s.graduate(socket)
	log := s.log.With("remote", socket.RemoteAddr())
	if err := socket.SetDeadline(time.Now().Add(s.cfg.HandshakeTimeout)); err != nil {
		socket.Close()
		return
	}
	c, head, err := peek(socket, 1)
	if err != nil {
		s.stats.reject(siteSniff)
		socket.Close()
		return
	}
	isTLS := head[0] == tlsHandshakeByte
	switch {
	case isTLS && tlsConfig == nil:
		s.stats.reject(siteTLSOnPlain)
		log.Warn("a TLS client came to the plain port; is UseDevelopmentEmulator=true missing, " +
			"or the port wrong?")
		socket.Close()
		return
	case !isTLS && tlsConfig != nil:
		s.stats.reject(sitePlainOnTLS)
		log.Warn("a client without TLS came to the TLS port")
		socket.Close()
		return
	}
	var state *tls.ConnectionState
	if isTLS {
		secure := tls.Server(c, tlsConfig)
		if err := secure.HandshakeContext(s.ctx); err != nil {
			s.stats.reject(siteTLSHandshake)
			log.Debug("TLS handshake", "error", err)
			socket.Close()
			return
		}
		cs := secure.ConnectionState()
		state = &cs
		c = &peekedConn{Conn: secure}
	}
	s.dispatch(c, socket, state)
}

// dispatch reads on until AMQP and HTTP can be told apart.
func (s *Server) dispatch(c *peekedConn, socket net.Conn, state *tls.ConnectionState) {
	c, head, err := peek(c, sniffBytes)
	if err != nil {
		s.stats.reject(siteSniff)
		c.Close()
		return
	}
	if bytes.Equal(head, []byte("AMQP")) {
		s.serveAMQP(c, socket)
		return
	}
	s.graduate(socket)
	if err := c.SetDeadline(time.Time{}); err != nil || !s.httpIn.offer(&httpConn{Conn: c, tls: state}) {
		c.Close()
	}
}

// serveAMQP runs one AMQP connection to its end. stranger is the socket that admit knows.
func (s *Server) serveAMQP(c, stranger net.Conn) {
	conn := newConn(s, c)
	if !s.register(conn) {
		c.Close()
		close(conn.done)
		return
	}
	defer s.unregister(conn)
	conn.run(func() { s.graduate(stranger) })
}

// httpConn is a socket that speaks HTTP, with the TLS state that net/http cannot see any more.
type httpConn struct {
	net.Conn
	tls *tls.ConnectionState
}

// handoff is a net.Listener whose sockets come from the sniffer.
type handoff struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

var errHandoffClosed = errors.New("listener closed")

// offer gives c to the HTTP server, or reports that it has closed.
func (h *handoff) offer(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.done:
		return false
	}
}

// Accept implements net.Listener.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, errHandoffClosed
	}
}

// Close implements net.Listener.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener; the sockets come from several addresses.
func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }

type tlsStateKey struct{}

// startHTTP starts the HTTP server behind the sniffer.
func (s *Server) startHTTP(handler http.Handler) {
	if handler == nil {
		handler = http.NotFoundHandler()
	}
	s.httpIn = &handoff{conns: make(chan net.Conn), done: make(chan struct{})}
	s.http = &http.Server{
		Handler:           s.withWebSocket(s.Messages(handler)),
		ReadHeaderTimeout: httpHeaderTimeout,
		ReadTimeout:       httpReadTimeout, // of a request and its body; who takes more says so
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    maxHTTPHeaderBytes,
		ErrorLog:          s.log.StandardLogger(nil),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if h, ok := c.(*httpConn); ok && h.tls != nil {
				return context.WithValue(ctx, tlsStateKey{}, h.tls)
			}
			return ctx
		},
	}
	s.wg.Go(func() {
		if err := s.http.Serve(s.httpIn); err != nil && !errors.Is(err, http.ErrServerClosed) &&
			!errors.Is(err, errHandoffClosed) {
			s.log.Error("HTTP server", "error", err)
		}
	})
}
