package sockets

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// Limits bound the sockets of one [Register]. Each is at least 1.
type Limits struct {
	Total            int // sockets of all kinds
	PerHost          int // of those, the sockets of one remote address
	Strangers        int // sockets without a valid token
	StrangersPerHost int // of those, the sockets of one remote address
	Operations       int // sockets of the operations port; they do not count in Total
}

// Reason is why a socket finds no room.
type Reason uint8

// The reasons.
const (
	Admitted      Reason = iota
	Full                 // Limits.Total or Limits.PerHost is reached
	FullStrangers        // Limits.Strangers or Limits.StrangersPerHost is reached
	Closed               // the register takes no more
)

// Register holds a [Seat] for every open socket. It is safe for concurrent use.
type Register struct {
	mu      sync.Mutex
	limits  Limits
	closed  bool
	total   count
	strange count
	seats   map[*Seat]struct{}
	idle    *list.List // of *Seat, the one that has been idle longest first

	operations     count
	operationsIdle *list.List // the same of the operations port
	turnedAway     uint64     // sockets of the operations port that found no room, or were closed for another one

	operationsEased chan struct{} // a socket of the operations port became idle or left; capacity 1
}

// count counts sockets, all and by host.
type count struct {
	all     int
	perHost map[string]int
}

func (c *count) add(host string) {
	c.all++
	c.perHost[host]++
}

func (c *count) drop(host string) {
	c.all--
	if c.perHost[host]--; c.perHost[host] <= 0 {
		delete(c.perHost, host)
	}
}

// Seat is the place of one socket. Its methods may be called from anywhere, in any order and again.
type Seat struct {
	r      *Register
	socket net.Conn
	host   string
	idle   *list.List // of the register, for sockets of this kind
	counts *count     // of the register, for sockets of this kind

	// The register's mutex guards these.
	stranger bool
	gone     bool
	waiting  *list.Element // in idle, nil if the socket is not idle
}

// New returns an empty register.
func New(limits Limits) *Register {
	return &Register{limits: limits, total: count{perHost: map[string]int{}}, strange: count{perHost: map[string]int{}},
		seats: map[*Seat]struct{}{}, idle: list.New(),
		operations: count{perHost: map[string]int{}}, operationsIdle: list.New(), operationsEased: make(chan struct{}, 1)}
}

// Admit gives a new socket its seat, as a stranger. When there is no room it closes the socket that has been idle
// longest, one of the same host if that host has too many. Without such a socket it returns the reason and no seat;
// the new socket stays open and the caller's.
func (r *Register) Admit(socket net.Conn) (*Seat, Reason) {
	s := &Seat{r: r, socket: socket, host: Host(socket), idle: r.idle, counts: &r.total, stranger: true}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil, Closed
	case r.total.perHost[s.host] >= r.limits.PerHost && !r.evictLocked(func(o *Seat) bool { return o.host == s.host }),
		r.total.all >= r.limits.Total && !r.evictLocked(func(*Seat) bool { return true }):
		return nil, Full
	case r.strange.perHost[s.host] >= r.limits.StrangersPerHost &&
		!r.evictLocked(func(o *Seat) bool { return o.stranger && o.host == s.host }),
		r.strange.all >= r.limits.Strangers && !r.evictLocked(func(o *Seat) bool { return o.stranger }):
		return nil, FullStrangers
	}
	r.seats[s] = struct{}{}
	r.total.add(s.host)
	r.strange.add(s.host)
	return s, Admitted
}

// evictLocked closes the socket that has been idle longest among those that fit, and reports whether there was one.
func (r *Register) evictLocked(fits func(*Seat) bool) bool {
	for e := r.idle.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*Seat); fits(s) {
			s.leaveLocked()
			_ = s.socket.Close() // whoever serves it sees that
			return true
		}
	}
	return false
}

// Known says that the socket has shown a valid token.
func (s *Seat) Known() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.knownLocked()
}

func (s *Seat) knownLocked() {
	if s.stranger && !s.gone {
		s.stranger = false
		s.r.strange.drop(s.host)
	}
}

// Stranger reports whether the socket is open and has not shown a valid token.
func (s *Seat) Stranger() bool {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.stranger && !s.gone
}

// Idle says that nothing is under way on the socket: it may be closed for the sake of another.
func (s *Seat) Idle() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.waiting == nil && !s.gone {
		s.waiting = s.idle.PushBack(s)
		s.easedLocked()
	}
}

// Busy takes Idle back.
func (s *Seat) Busy() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.busyLocked()
}

func (s *Seat) busyLocked() {
	if s.waiting != nil {
		s.idle.Remove(s.waiting)
		s.waiting = nil
	}
}

// Leave gives the seat back: the socket is closed, or will be at once.
func (s *Seat) Leave() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.leaveLocked()
}

func (s *Seat) leaveLocked() {
	if s.gone {
		return
	}
	s.busyLocked()
	s.knownLocked()
	s.gone = true
	s.counts.drop(s.host)
	delete(s.r.seats, s)
	s.easedLocked()
}

// Close takes no more sockets, and closes those of strangers.
func (r *Register) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for s := range r.seats {
		if s.stranger {
			_ = s.socket.Close() // whoever serves it gives the seat back
		}
	}
}

// Limits returns the limits of the register.
func (r *Register) Limits() Limits {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limits
}

// SetLimits changes the limits. Sockets that are open stay; new ones find the limits as they are then.
func (r *Register) SetLimits(limits Limits) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limits = limits
}

// Used returns how many sockets are open, and how many of them are strangers.
func (r *Register) Used() (total, strangers int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total.all, r.strange.all
}

// ipv6Host is how many bits of an IPv6 address are a host's: who has one address has all of its network.
const ipv6Host = 64

// Host returns the address of the peer without its port; for IPv6 that of its network of 64 bits.
func Host(c net.Conn) string {
	if c.RemoteAddr() == nil {
		return ""
	}
	text := c.RemoteAddr().String()
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return text
	}
	addr := at.Addr().Unmap()
	if addr.Is6() {
		if network, err := addr.Prefix(ipv6Host); err == nil {
			return network.String()
		}
	}
	return addr.String()
}
