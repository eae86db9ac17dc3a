package sockets

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
)

// fakeConn is a socket of a host.
type fakeConn struct {
	net.Conn
	from   net.Addr
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr { return c.from }

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

func from(host string) *fakeConn {
	return &fakeConn{from: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(host), 4000))}
}

func mustAdmit(t *testing.T, r *Register, c net.Conn) *Seat {
	t.Helper()
	s, reason := r.Admit(c)
	if s == nil || reason != Admitted {
		t.Fatalf("no room: %d", reason)
	}
	return s
}

func TestEachLimitHolds(t *testing.T) {
	r := New(Limits{Total: 5, PerHost: 3, Strangers: 4, StrangersPerHost: 2})
	a1, a2 := mustAdmit(t, r, from("10.0.0.1")), mustAdmit(t, r, from("10.0.0.1"))
	refused := func(host string, want Reason) {
		t.Helper()
		c := from(host)
		if s, reason := r.Admit(c); s != nil || reason != want || c.closed {
			t.Errorf("a socket of %s: %v, reason %d, want %d; closed %t", host, s, reason, want, c.closed)
		}
	}
	refused("10.0.0.1", FullStrangers)
	a1.Known()
	a1.Known()
	a3 := mustAdmit(t, r, from("10.0.0.1"))
	a2.Known()
	refused("10.0.0.1", Full)
	b1, b2 := mustAdmit(t, r, from("10.0.0.2")), mustAdmit(t, r, from("10.0.0.2"))
	refused("10.0.0.3", Full)
	if total, strangers := r.Used(); total != 5 || strangers != 3 {
		t.Errorf("%d sockets, %d strangers", total, strangers)
	}
	b1.Leave()
	b1.Leave()
	b1.Known()
	b1.Idle()
	mustAdmit(t, r, from("10.0.0.3")).Leave()
	for _, s := range []*Seat{a1, a2, a3, b2} {
		s.Leave()
	}
	if total, strangers := r.Used(); total != 0 || strangers != 0 || len(r.total.perHost)+len(r.strange.perHost)+len(r.seats) != 0 {
		t.Errorf("%d sockets, %d strangers, %v, %v, %v are left", total, strangers, r.total, r.strange, r.seats)
	}
	r.Close()
	refused("10.0.0.1", Closed)
}

// F1: an idle HTTP connection makes room for another socket, the one that has been idle longest first, and one of the
// same host if that host has too many.
func TestIdleSocketsMakeRoom(t *testing.T) {
	r := New(Limits{Total: 4, PerHost: 2, Strangers: 4, StrangersPerHost: 4})
	a, b, c, d := from("10.0.0.1"), from("10.0.0.2"), from("10.0.0.3"), from("10.0.0.3")
	sa, sb, sc, sd := mustAdmit(t, r, a), mustAdmit(t, r, b), mustAdmit(t, r, c), mustAdmit(t, r, d)
	for _, s := range []*Seat{sa, sb, sc, sd} {
		s.Known()
		s.Idle()
		s.Idle()
	}
	sa.Busy()
	mustAdmit(t, r, from("10.0.0.3")) // its host is full: c goes, though b has been idle longer
	if !c.closed || a.closed || b.closed || d.closed {
		t.Errorf("closed: %t %t %t %t, want the third alone", a.closed, b.closed, c.closed, d.closed)
	}
	mustAdmit(t, r, from("10.0.0.4")) // the node is full: b is idle longest
	mustAdmit(t, r, from("10.0.0.5")) // and d after it
	if !b.closed || !d.closed || a.closed {
		t.Errorf("closed: %t %t %t %t, want all but the first", a.closed, b.closed, c.closed, d.closed)
	}
	if s, reason := r.Admit(from("10.0.0.6")); s != nil || reason != Full {
		t.Errorf("without an idle socket: %v, %d", s, reason)
	}
	sa.Idle()
	mustAdmit(t, r, from("10.0.0.6"))
	if !a.closed {
		t.Error("a socket that is idle again stays")
	}
}

func TestAHostIsAnAddressOrANetwork(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "2001:db8:1:2:3::9": "2001:db8:1:2::/64", "::1": "::/64",
	} {
		if got := Host(from(text)); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if got := Host(near); got != "pipe" {
		t.Errorf("a pipe: %s", got)
	}
}

// The counts are those of the seats, whatever is done in whatever order.
func TestCountsAreThoseOfTheSeats(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(1, seed))
		r := New(Limits{Total: 20, PerHost: 8, Strangers: 10, StrangersPerHost: 5})
		conns := map[*Seat]*fakeConn{}
		hosts := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1"}
		for range 2_000 {
			for s, c := range conns { // what was evicted
				if c.closed {
					delete(conns, s)
				}
			}
			var any *Seat
			for s := range conns {
				any = s
				break
			}
			switch n := rng.IntN(10); {
			case n < 4 || any == nil:
				c := from(hosts[rng.IntN(len(hosts))])
				if s, _ := r.Admit(c); s != nil {
					conns[s] = c
				}
			case n < 6:
				any.Known()
			case n < 8:
				any.Idle()
			case n < 9:
				any.Busy()
			default:
				any.Leave()
				delete(conns, any)
			}
			open, strangers := 0, 0
			perHost := map[string]int{}
			for s, c := range conns {
				if c.closed {
					continue
				}
				open++
				perHost[s.host]++
				if s.Stranger() {
					strangers++
				}
			}
			total, strange := r.Used()
			if total != open || strange != strangers || total > 20 || strange > 10 {
				t.Fatalf("seed %d: %d sockets and %d strangers, counted %d and %d", seed, open, strangers, total, strange)
			}
			for host, n := range perHost {
				if n > 8 || r.total.perHost[host] != n {
					t.Fatalf("seed %d: %d of %s, counted %d", seed, n, host, r.total.perHost[host])
				}
			}
		}
	}
}
