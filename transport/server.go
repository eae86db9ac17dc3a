package transport

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/sockets"
	"github.com/busbar-mq/busbar/transport/waist"
)

// Server is the front door of a node: it serves AMQP, WebSocket and HTTP clients on the listeners
// it is given.
type Server struct {
	// Immutable.
	cfg      Config
	broker   Broker
	catalog  Catalog
	rules    Rules // nil if the catalog has none
	policies *auth.Policies
	refusals *refusal.Log
	audit    *audit.Log // nil: none is kept
	log      hclog.Logger
	random   io.Reader          // chance for tags and incarnations; tests fix it
	ctx      context.Context    // ends when Close has drained everything
	cancel   context.CancelFunc // ends ctx
	http     *http.Server

	// Parts that many goroutines use, each with a mutex of its own.
	waist   *waist.Source
	watcher *watcher
	ledger  ledger
	repeats repeats
	places  *httpPlaces // of requests that send and receive over HTTP
	rates   *rates      // nil: no key has a limit
	sockets *sockets.Register
	httpIn  *handoff // sockets that turned out to speak HTTP

	// Counters.
	stats    Stats
	memory   memory
	txnBytes atomic.Int64 // of the open transactions of all connections
	txnMost  transactionLimits
	numbers  atomic.Uint64 // of AMQP connections so far
	doubts   atomic.Int64  // commits that the node asks about after their clients

	wg      sync.WaitGroup // all goroutines but those of workers; Close waits for both
	workers workers        // run what connections do beside their loops
	runners runners        // run loops of connections

	mu        sync.Mutex
	closing   bool
	away      bool               // clients are sent to other nodes
	waits     context.Context    // of HTTP receives
	stopWaits context.CancelFunc // ends waits
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
}

// transactionLimits bound the messages of a transaction, and the bytes of all.
type transactionLimits struct{ messages, bytes atomic.Int64 }

// Stats returns the live counters.
func (s *Server) Stats() *Stats { return &s.stats }

// Sockets returns the register of the open sockets.
func (s *Server) Sockets() *sockets.Register { return s.sockets }

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// enter counts a goroutine that Close waits for, or reports that the server is closing.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.wg.Add(1)
	return true
}

// register adds an AMQP connection, or reports that the server is closing.
func (s *Server) register(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.conns[c], c.turnedAway = struct{}{}, s.away
	s.stats.Connections.Add(1)
	return true
}

func (s *Server) unregister(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.stats.Connections.Add(-1)
}

// draw fills b with chance; the system's never fails.
func (s *Server) draw(b []byte) {
	if _, err := io.ReadFull(s.random, b); err != nil {
		panic("transport: no chance: " + err.Error())
	}
}

func (s *Server) randomToken() (t fsm.LockToken) {
	s.draw(t[:])
	return t
}
