package transport

import (
	"context"
	"net/http"
	"strings"

	"github.com/coder/websocket"
)

// websocketPath is where clients tunnel AMQP; .NET adds a slash (G21).
const websocketPath = "/$servicebus/websocket"

// subprotocols are the names under which clients ask for AMQP 1.0 (G21).
func subprotocols() []string { return []string{"amqp", "AMQPWSB10"} }

// withWebSocket serves the tunnel and leaves all other paths to next.
func (s *Server) withWebSocket(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := r.Context().Value(httpConnKey{}).(*httpConn); ok && h.tls != nil {
			r.TLS = h.tls
		}
		if strings.TrimSuffix(r.URL.Path, "/") == websocketPath {
			s.serveWebSocket(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serveWebSocket upgrades and runs an AMQP connection inside. Frames and WebSocket messages are
// unrelated: both directions are streams of bytes. Compression stays off, so no peer can make us
// inflate anything.
func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:    subprotocols(),
		CompressionMode: websocket.CompressionDisabled,
		// Tokens authenticate, never cookies, so a page of another origin gains nothing.
		InsecureSkipVerify: true,
	})
	if err != nil {
		s.log.Debug("WebSocket upgrade", "remote", r.RemoteAddr, "error", err)
		return
	}
	seat := seatOf(r)
	if seat != nil { // from here on, the HTTP server does not tell of the end of the socket
		defer seat.Leave()
	}
	if ws.Subprotocol() == "" {
		_ = ws.Close(websocket.StatusPolicyViolation, "one of the subprotocols amqp and AMQPWSB10 is needed")
		return
	}
	s.stats.WebSockets.Add(1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ws.SetReadLimit(-1) // a stream: the size of a message says nothing; frames are bounded above it
	stream := websocket.NetConn(ctx, ws, websocket.MessageBinary)
	if !s.enter() {
		stream.Close()
		return
	}
	defer s.wg.Done()
	if seat == nil { // a handler in a test has no socket
		if seat = s.admit(stream); seat == nil {
			stream.Close()
			return
		}
		defer seat.Leave()
	}
	s.serveAMQP(stream, seat, protocolWebSocket.under(r.TLS))
}
