package transport

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/sockets"
	"github.com/busbar-mq/busbar/transport/waist"
)

// Deps are what the front end needs of other rooms, and stays theirs.
type Deps struct {
	Broker   Broker
	Catalog  Catalog // may implement [Changes] and [Rules]
	Policies *auth.Policies
	Refusals *refusal.Log // notes what clients are refused
	Audit    *audit.Log   // notes who changed a rule, and who was refused for the want of a right; nil for nobody
	Handler  http.Handler // serves the HTTP requests of the shared ports that are not for messages; nil for none
}

// New returns a server that waits for [Server.Serve]. [Server.Close] must be called.
func New(cfg Config, deps Deps, log hclog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Broker == nil || deps.Catalog == nil || deps.Policies == nil || deps.Refusals == nil || log == nil {
		return nil, errors.New("transport: broker, catalog, policies, refusals and logger are needed")
	}
	s := &Server{
		cfg: cfg, broker: deps.Broker, catalog: deps.Catalog, policies: deps.Policies, refusals: deps.Refusals, audit: deps.Audit, log: log,
		listeners: map[net.Listener]struct{}{},
		conns:     map[*conn]struct{}{},
		sockets:   sockets.New(sockets.Limits{}),
		rates:     newRates(KeyRate{}, time.Now),
		random:    rand.Reader,

		places: newHTTPPlaces(cfg.MaxHTTPRequests),
	}
	if err := s.SetLimits(cfg); err != nil {
		return nil, err
	}
	s.rules, _ = deps.Catalog.(Rules)
	s.waist = waist.New(waist.Config{Broker: deps.Broker, Log: log, Incarnation: cfg.Incarnation, Draw: s.draw,
		ProposeTimeout: cfg.ProposeTimeout})
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.runners.run, s.runners.most = s.workers.run, runtime.NumCPU()
	s.waits, s.stopWaits = context.WithCancel(s.ctx)
	s.watcher = newWatcher(s)
	s.startHTTP(deps.Handler)
	s.wg.Go(s.watcher.run)
	s.wg.Go(func() { s.waist.Run(s.ctx) })
	return s, nil
}

// SetLimits takes the limits of a configuration that may change while the server runs. They are those of sockets, of keys,
// of bytes held for clients, and of transactions; what else it says is left alone. Sockets that are open stay.
func (s *Server) SetLimits(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	s.sockets.SetLimits(sockets.Limits{Total: cfg.MaxConnections, PerHost: cfg.MaxConnectionsPerHost,
		Strangers: cfg.MaxHandshakes, StrangersPerHost: cfg.MaxHandshakesPerHost, Operations: cfg.MaxOperations})
	s.rates.set(cfg.KeyRate)
	s.memory.limit.Store(int64(cfg.MaxClientBytes))
	s.txnMost.messages.Store(int64(cfg.MaxTransactionMessages))
	s.txnMost.bytes.Store(int64(cfg.MaxTransactionBytes))
	return nil
}

// Serve accepts clients from l until Close; it returns nil then. With a TLS configuration every
// client must start with a handshake, without one a TLS hello is logged and closed.
func (s *Server) Serve(l net.Listener, tlsConfig *tls.Config) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		l.Close()
		return nil
	}
	s.listeners[l] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	if tlsConfig != nil {
		tlsConfig = tlsConfig.Clone()
		// AMQP clients offer no ALPN, and HTTP/2 would need another server behind the sniffer.
		tlsConfig.NextProtos = nil
		tlsConfig.MinVersion = max(tlsConfig.MinVersion, tls.VersionTLS12)
	}
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		if err != nil {
			if s.isClosing() || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// Out of descriptors, most likely: others may end meanwhile.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("accept", "error", err, "retry_in", pause)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
				return nil
			}
			continue
		}
		pause = 0
		s.stats.Accepted.Add(1)
		seat := s.admit(c)
		if seat == nil {
			c.Close()
			continue
		}
		s.wg.Go(func() { s.sniff(c, seat, tlsConfig) })
	}
}

// admit gives a new socket its seat, or nil if there is no room.
func (s *Server) admit(c net.Conn) *sockets.Seat {
	seat, reason := s.sockets.Admit(c)
	switch reason {
	case sockets.Full:
		s.stats.reject(siteConnections)
	case sockets.FullStrangers:
		s.stats.reject(siteHandshakes)
	}
	return seat
}

// Propose makes one command durable for a caller that is no AMQP client, and returns what it did.
// It retries by itself until ctx ends; an error means that the command may or may not have been done.
// Errors are those of [Broker.Propose].
func (s *Server) Propose(ctx context.Context, k fsm.Key, c fsm.Command) (fsm.Outcome, error) {
	return s.waist.ProposeOnce(ctx, k, c)
}

// Query reads the state as of now; errors are those of [Broker.Query].
func (s *Server) Query(ctx context.Context, k fsm.Key, q fsm.Query) (fsm.Answer, error) {
	return s.broker.Query(ctx, k, q)
}

// Holder names who took a lock (S-272).
type Holder = waist.Holder

// Holder tells who took a lock, given the request that took it; nothing if that was not a link of this
// node, or one that ended long ago.
func (s *Server) Holder(by fsm.RequestID) Holder { return s.waist.Holders().Of(by) }

// Close stops accepting, answers what is in flight, tells the clients to go elsewhere (amqp:connection:forced), and
// gives their sessions back. The connections end one after the other, over the time of LeaveOver. It returns when every goroutine of the server has ended. When ctx ends first, the rest
// is cut off; its error is returned.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	already := s.closing
	s.closing = true
	var conns []*conn
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.stopWaits()
	s.mu.Unlock()
	if already {
		s.wg.Wait()
		return nil
	}
	s.spreadEnds(ctx, conns)
	s.sockets.Close()
	s.endRequests(ctx)
	err := finish(ctx, conns, s.cancel)
	s.waist.Flush(ctx)
	s.cancel()
	s.wg.Wait()
	s.workers.close()
	return err
}

// endRequests lets the requests over HTTP end. It takes half of the time until ctx ends: whoever closes the server needs the
// rest.
func (s *Server) endRequests(ctx context.Context) {
	if until, bound := ctx.Deadline(); bound {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(until)/2)
		defer cancel()
	}
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // what did not end in time is cut off
	}
	_ = s.httpIn.Close() // nothing waits there any more
}

// KeyUse returns how many messages and bytes the keys that have sent most have sent above their rate. Each falls by the
// rate every second.
func (s *Server) KeyUse() (messages, bytes int) { return s.rates.used() }

// Outcome tells what became of a transaction of a client of this node: committed, aborted, or unknown. It is unknown
// if it is not remembered or nobody can tell; open and committing, too. It is remembered for ten minutes, unless very
// many ended meanwhile (S-243).
func (s *Server) Outcome(id []byte) string {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	v := s.ledger.all[string(id)]
	if v == nil || v.Ended != nil && time.Since(*v.Ended) > ledgerTime {
		return TransactionUnknown
	}
	return v.State
}

// Transactions lists those of this node's clients that use an entity and are not over, the oldest first. With ended
// it lists those too that ended in the last ten minutes (S-273).
func (s *Server) Transactions(entity string, ended bool) []TransactionView {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	list := []TransactionView{}
	for _, v := range s.ledger.all { // order-free: sorted below
		over := v.Ended != nil && (!ended || time.Since(*v.Ended) > ledgerTime)
		uses := slices.ContainsFunc(v.Entities, func(name string) bool { return strings.EqualFold(name, entity) })
		if !over && uses {
			again := *v
			again.Entities = slices.Clone(v.Entities)
			list = append(list, again)
		}
	}
	slices.SortFunc(list, func(a, b TransactionView) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list[:min(len(list), maxTransactionViews)]
}
