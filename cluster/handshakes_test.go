package cluster

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"
)

// F7: sockets that give way hear why, because a node takes one that hangs up for gone; and whoever does not know the
// protocol loses nothing by TLS, in either direction.
func TestASocketThatGivesWayIsTold(t *testing.T) {
	const places = 8
	for _, withTLS := range []bool{false, true} {
		for _, dials := range []bool{false, true} {
			t.Run(fmt.Sprintf("TLS %t, the flooded node dials %t", withTLS, dials), func(t *testing.T) {
				ca := newAuthority(t)
				other, flooded := duo(t, func(c *Config) {
					c.HelloTimeout, c.MaxHandshakes = time.Hour, places
					if withTLS {
						c.TLS = ca.tls(t)
					}
				})
				var strangers []net.Conn
				for range 10 * places {
					strangers = append(strangers, dialRaw(t, flooded))
				}
				for i, c := range strangers[:9*places] {
					if _, err := readHello(c); !errors.Is(err, errRefused) {
						t.Fatalf("socket %d, which gave way, reads %v, want a refusal", i, err)
					}
				}
				if dials {
					mustCall(t, flooded, "a", "out")
				} else {
					mustCall(t, other, "b", "in")
				}
				for i, c := range strangers[9*places+1:] {
					c.SetReadDeadline(time.Now())
					if _, err := c.Read(make([]byte, 1)); !isTimeout(err) {
						t.Errorf("socket %d, whose place nobody needed, reads %v", i, err)
					}
				}
			})
		}
	}
}

// addrConn is a socket of an address.
type addrConn struct {
	net.Conn
	from string
}

func (c addrConn) RemoteAddr() net.Addr { return textAddr(c.from) }

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

// F7: who has one IPv6 address has all of its network, and must not get a place for each of them.
func TestAHostIsANetworkOfIPv6(t *testing.T) {
	for from, want := range map[string]string{
		"10.0.0.1:5301": "10.0.0.1", "[::ffff:10.0.0.1]:5301": "10.0.0.1", "[2001:db8:1:2:3::9]:1": "2001:db8:1:2::/64",
		"[2001:db8:1:2:4::8]:2": "2001:db8:1:2::/64", "simulated": "simulated",
	} {
		if got := hostOf(addrConn{from: from}); got != want {
			t.Errorf("%s: got %s, want %s", from, got, want)
		}
	}
}

// F7: whoever ends a handshake learns whether the socket gave way meanwhile: it makes no link then.
func TestWhoGaveWayLearnsIt(t *testing.T) {
	cfg := testConfig("a")
	cfg.MaxHandshakes = 1
	a := startNode(t, &book{}, cfg)
	first, second := &meteredConn{Conn: addrConn{from: "10.0.0.1:1"}}, &meteredConn{Conn: addrConn{from: "10.0.0.2:1"}}
	if gaveWay, ok := a.shaking(first, "10.0.0.1"); gaveWay != nil || !ok {
		t.Errorf("the first: %v, %t", gaveWay, ok)
	}
	if gaveWay, ok := a.shaking(second, "10.0.0.2"); gaveWay != first || !ok {
		t.Errorf("the second: %v, %t, want that the first gives way", gaveWay, ok)
	}
	if a.shaken(first) || !a.shaken(second) {
		t.Error("the first still had its place, or the second had none")
	}
}
