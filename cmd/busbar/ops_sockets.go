package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/busbar-mq/busbar/transport/sockets"
)

// opsListener gives each socket of the operations port its seat in the node's register.
type opsListener struct {
	net.Listener
	register *sockets.Register
}

// seatedConn is a socket of the operations port.
type seatedConn struct {
	net.Conn
	seat *sockets.Seat
	read bool // whether Read has returned bytes; only the goroutine that reads uses it
}

// noAMQP is what the operations port answers to a client of AMQP.
const noAMQP = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" +
	"This is the operations port. Clients of AMQP take the port of amqp-listen, or of tls-listen.\n"

// Read implements net.Conn. A client of AMQP sends a header without a line's end and waits for an answer. The server of
// HTTP would wait for that line's end. So Read answers such a client, and reports the end of the socket to the server.
func (c *seatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.read || n == 0 {
		return n, err
	}
	if c.read = true; bytes.HasPrefix(b[:n], []byte("AMQP")) {
		_, _ = io.WriteString(c.Conn, noAMQP)
		return 0, io.EOF
	}
	return n, err
}

// opsPatience is how long a new socket waits while requests are under way on all others. Further ones wait in the queue
// of the kernel meanwhile.
const opsPatience = time.Second

// Accept implements net.Listener. A socket that finds no room is closed.
func (l *opsListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if seat, _ := l.register.AdmitOperations(c, opsPatience); seat != nil {
			return &seatedConn{Conn: c, seat: seat}, nil
		}
		_ = c.Close()
	}
}

// seatOf returns the seat of a connection of the operations port.
func seatOf(c net.Conn) *sockets.Seat {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if s, ok := c.(*seatedConn); ok {
		return s.seat
	}
	return nil
}

type opsSeatKey struct{}

// seatRequests has the server keep the seats of its sockets. A socket is busy while a handler serves its request and
// at no other time. A client that sends half a request, or half a body that nobody reads, may be closed for the sake
// of others.
func seatRequests(s *http.Server) {
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, opsSeatKey{}, seatOf(c))
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if seat := seatOf(c); seat != nil && (state == http.StateClosed || state == http.StateHijacked) {
			seat.Leave()
		}
	}
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seat, _ := r.Context().Value(opsSeatKey{}).(*sockets.Seat); seat != nil {
			seat.Busy()
			defer seat.Idle()
		}
		next.ServeHTTP(w, r)
	})
}
