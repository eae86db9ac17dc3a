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

	"github.com/busbar-mq/busbar/transport/sockets"
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

// sniff finds out what a new socket speaks and serves it. It owns the socket and its seat.
func (s *Server) sniff(socket net.Conn, seat *sockets.Seat, tlsConfig *tls.Config) {
	handed := false // the HTTP server has the socket, and gives the seat back
	defer func() {
		if !handed {
			seat.Leave()
		}
	}()
	log := s.log.With("remote", socket.RemoteAddr().String())
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
	handed = s.dispatch(c, seat, state)
}

// dispatch reads on until AMQP and HTTP can be told apart. It reports whether the HTTP server has the socket.
func (s *Server) dispatch(c *peekedConn, seat *sockets.Seat, state *tls.ConnectionState) bool {
	c, head, err := peek(c, sniffBytes)
	if err != nil {
		s.stats.reject(siteSniff)
		c.Close()
		return false
	}
	if bytes.Equal(head, []byte("AMQP")) {
		s.serveAMQP(c, seat, protocolAMQP.under(state))
		return false
	}
	h := &httpConn{Conn: c, tls: state, seat: seat}
	h.patience = time.AfterFunc(s.cfg.AuthTimeout, func() {
		if seat.Stranger() {
			c.Close()
		}
	})
	if err := c.SetDeadline(time.Time{}); err != nil || !s.httpIn.offer(h) {
		h.patience.Stop()
		c.Close()
		return false
	}
	return true
}

// serveAMQP runs one AMQP connection to its end.
func (s *Server) serveAMQP(c net.Conn, seat *sockets.Seat, by protocol) {
	conn := newConn(s, c, by)
	if !s.register(conn) {
		c.Close()
		close(conn.done)
		return
	}
	defer s.unregister(conn)
	defer conn.goesUncounted()
	conn.run(seat.Known)
}

// httpConn is a socket that speaks HTTP, with the TLS state that net/http cannot see any more.
type httpConn struct {
	net.Conn
	tls      *tls.ConnectionState
	seat     *sockets.Seat
	patience *time.Timer // closes the socket if no valid token comes
}

// httpState keeps the seat of a socket that speaks HTTP. A socket that becomes a WebSocket keeps its seat, and its AMQP
// connection has time-outs of its own.
func (s *Server) httpState(c net.Conn, state http.ConnState) {
	h, ok := c.(*httpConn)
	if !ok {
		return
	}
	switch state {
	case http.StateActive:
		h.seat.Busy()
	case http.StateIdle:
		h.seat.Idle()
	case http.StateClosed:
		h.patience.Stop()
		h.seat.Leave()
	case http.StateHijacked:
		h.patience.Stop()
	}
}

// endsBehindChunks ends the connection behind a request whose body comes in chunks. Such a request may have had a
// length as well, which net/http drops. A proxy that believed the length would take the next request for a part of
// the body. So RFC 9112 section 6.1 demands that the connection ends.
func endsBehindChunks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// seatOf returns the seat of the socket that a request came over, nil if it came over none of ours.
func seatOf(r *http.Request) *sockets.Seat {
	if h, ok := r.Context().Value(httpConnKey{}).(*httpConn); ok {
		return h.seat
	}
	return nil
}

// Known notes that the token of a request was accepted: its socket is no stranger's from now on, however long the answer
// takes. A request that came over no socket of a [Server] has no seat, and nothing is noted.
func Known(r *http.Request) {
	if seat := seatOf(r); seat != nil {
		seat.Known()
	}
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

type httpConnKey struct{}

// startHTTP starts the HTTP server behind the sniffer.
func (s *Server) startHTTP(handler http.Handler) {
	if handler == nil {
		handler = http.NotFoundHandler()
	}
	handler = s.withWebSocket(s.Messages(handler))
	if s.cfg.Guard != nil {
		handler = s.cfg.Guard(handler)
	}
	s.httpIn = &handoff{conns: make(chan net.Conn), done: make(chan struct{})}
	s.http = &http.Server{
		Handler:           endsBehindChunks(handler),
		ReadHeaderTimeout: httpHeaderTimeout,
		ReadTimeout:       httpReadTimeout, // of a request and its body; who takes more says so
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    maxHTTPHeaderBytes,
		ErrorLog:          s.log.StandardLogger(nil),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if h, ok := c.(*httpConn); ok {
				return context.WithValue(ctx, httpConnKey{}, h)
			}
			return ctx
		},
		ConnState: s.httpState,
	}
	s.wg.Go(func() {
		if err := s.http.Serve(s.httpIn); err != nil && !errors.Is(err, http.ErrServerClosed) &&
			!errors.Is(err, errHandoffClosed) {
			s.log.Error("HTTP server", "error", err)
		}
	})
}
