package sockets

import (
	"net"
	"time"
)

// AdmitOperations gives a new socket of the operations port its seat. The port has places of its own, so sockets of
// clients never take them. When all are taken, the socket that has been idle longest is closed. It is one of the host with
// the most sockets among those that have an idle one. So a host that floods the port closes its own first. A socket is
// idle until [Seat.Busy], so one that sends no request, or half of one, keeps nobody out.
//
// Without an idle socket AdmitOperations waits for one, as long as patience, because requests are short. Then the reason is
// Full; the new socket stays open and the caller's. One goroutine at a time may call it.
func (r *Register) AdmitOperations(socket net.Conn, patience time.Duration) (*Seat, Reason) {
	s := &Seat{r: r, socket: socket, host: Host(socket), idle: r.operationsIdle, counts: &r.operations}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.operations.all >= r.limits.Operations {
		r.turnedAway++
		if !r.makeWayLocked() && !r.awaitWayLocked(patience) {
			return nil, Full
		}
	}
	r.seats[s] = struct{}{}
	r.operations.add(s.host)
	s.waiting = s.idle.PushBack(s)
	return s, Admitted
}

// makeWayLocked closes an idle socket of the operations port, and reports whether there was one.
func (r *Register) makeWayLocked() bool {
	var victim *Seat
	for e := r.operationsIdle.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*Seat); victim == nil || r.operations.perHost[s.host] > r.operations.perHost[victim.host] {
			victim = s
		}
	}
	if victim == nil {
		return false
	}
	victim.leaveLocked()
	_ = victim.socket.Close() // whoever serves it sees that
	return true
}

// awaitWayLocked waits until there is room, or a socket of the operations port is idle and was closed. It reports
// whether that came within the time.
func (r *Register) awaitWayLocked(patience time.Duration) bool {
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		r.mu.Unlock()
		select {
		case <-r.operationsEased:
			r.mu.Lock()
		case <-over.C:
			r.mu.Lock()
			return false
		}
		if r.operations.all < r.limits.Operations || r.makeWayLocked() {
			return true
		}
	}
}

// easedLocked says that a socket of the operations port is idle or gone.
func (s *Seat) easedLocked() {
	if s.counts != &s.r.operations {
		return
	}
	select {
	case s.r.operationsEased <- struct{}{}:
	default:
	}
}

// TurnedAwayOperations returns how many sockets of the operations port found no room since the start, or were closed for
// another one.
func (r *Register) TurnedAwayOperations() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turnedAway
}

// UsedOperations returns how many sockets of the operations port are open.
func (r *Register) UsedOperations() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.operations.all
}
