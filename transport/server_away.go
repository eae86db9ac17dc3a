package transport

import (
	"context"
	"net/http"
	"time"
)

// SendAway has every client go to another node, because this one leaves the cluster. Each AMQP connection ends in good
// order: what is in flight is answered, sessions are given back, then the close says amqp:connection:forced. New
// connections are closed in the same way, and HTTP requests that send or receive are refused with 503, until
// [Server.TakeBack]. SendAway returns nil when nothing is left that was begun for a client. When ctx ends first, the
// connections are cut off; its error is returned when they are over.
func (s *Server) SendAway(ctx context.Context) error {
	s.mu.Lock()
	s.away = true
	var conns []*conn
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.stopWaits()
	s.mu.Unlock()
	s.log.Info("the clients are sent away, because this node leaves the cluster", "connections", len(conns))
	s.spreadEnds(ctx, conns)
	err := finish(ctx, conns, func() {})
	for err == nil && (s.places.used() > 0 || s.doubts.Load() > 0) {
		select {
		case <-time.After(awayLook):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

// awayLook is how often SendAway looks whether the requests over HTTP, and the questions about commits, have ended.
const awayLook = 50 * time.Millisecond

// TakeBack serves clients again after [Server.SendAway].
func (s *Server) TakeBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away && !s.closing {
		s.away = false
		s.waits, s.stopWaits = context.WithCancel(s.ctx)
		s.log.Info("clients are served again")
	}
}

// leavePause is the longest pause between the ends of two connections.
const leavePause = 250 * time.Millisecond

// spreadEnds asks connections to end, one after the other over the time of LeaveOver. Otherwise
// all clients would be without a connection at once, while their SDKs wait before they connect again. They would come to
// the other nodes at once, too. Half of the time until ctx ends is left for what the last ones are doing.
func (s *Server) spreadEnds(ctx context.Context, conns []*conn) {
	pause := time.Duration(0)
	if s.cfg.LeaveOver != nil && len(conns) > 1 {
		over := s.cfg.LeaveOver()
		if until, bound := ctx.Deadline(); bound {
			over = min(over, time.Until(until)/2)
		}
		pause = min(over/time.Duration(len(conns)-1), leavePause)
	}
	next := time.Now()
	for _, c := range conns {
		if wait := time.Until(next); wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-ctx.Done():
			case <-s.ctx.Done():
			}
			t.Stop()
		}
		select {
		case <-c.done: // its client has gone by itself
		default:
			c.shutdown()
			next = next.Add(pause)
		}
	}
}

// finish waits for connections that were asked to end. When ctx ends first, it cuts them off and calls late. It waits for
// them all the same, and returns the error of ctx.
func finish(ctx context.Context, conns []*conn, late func()) error {
	for i, c := range conns {
		select {
		case <-c.done:
			continue
		case <-ctx.Done():
		}
		for _, c := range conns[i:] {
			c.cut()
		}
		late()
		for _, c := range conns[i:] {
			<-c.done
		}
		return ctx.Err()
	}
	return nil
}

// waiting returns the context of HTTP requests that wait for something. It ends when the clients are sent away, and when
// the server closes.
func (s *Server) waiting() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits
}

// turnsAway returns why a request that sends or receives over HTTP is not served here, nil if it is.
func (s *Server) turnsAway(w http.ResponseWriter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.away {
		return nil
	}
	w.Header().Set("Connection", "close") // the next connection may be one to another node
	return &httpProblem{status: http.StatusServiceUnavailable, subCode: 50004,
		text: "This node leaves the cluster. Send the request to another node."}
}
