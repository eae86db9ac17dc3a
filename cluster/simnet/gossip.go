package simnet

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// Gossip is a memberlist.Transport. Packets to a host that is cut off, killed or slow to take them
// are lost, which memberlist's own mock does not do.
type Gossip struct {
	host    *Host
	port    uint16
	packets chan *memberlist.Packet
	streams chan net.Conn

	mu     sync.Mutex
	closed bool
}

var _ memberlist.Transport = (*Gossip)(nil)

// Gossip opens a gossip port on the host.
func (h *Host) Gossip(port uint16) (*Gossip, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gossips[port] != nil {
		return nil, fmt.Errorf("gossip on %s:%d: %w", h.ip, port, syscall.EADDRINUSE)
	}
	g := &Gossip{
		host: h, port: port, packets: make(chan *memberlist.Packet, 1024), streams: make(chan net.Conn, backlog),
	}
	h.gossips[port], h.dead = g, false
	return g, nil
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (g *Gossip) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.ParseIP(g.host.ip), int(g.port), nil
}

// WriteTo implements memberlist.Transport.
func (g *Gossip) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	to, err := net.ResolveUDPAddr("udp", addr) // an IP address: nothing is asked
	if err != nil {
		return now, err
	}
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed {
		return now, net.ErrClosed
	}
	packet := &memberlist.Packet{
		Buf: append([]byte(nil), b...), From: &net.UDPAddr{IP: net.ParseIP(g.host.ip), Port: int(g.port)},
	}
	ip := to.IP.String()
	deliver := func() {
		if g.host.net.isCut(g.host.ip, ip) {
			return
		}
		target := g.host.net.Host(ip)
		target.mu.Lock()
		other := target.gossips[uint16(to.Port)]
		target.mu.Unlock()
		if other != nil {
			other.take(packet)
		}
	}
	if d := g.host.net.delayOf(g.host.ip, ip); d > 0 {
		time.AfterFunc(d, deliver)
	} else {
		deliver()
	}
	return now, nil
}

func (g *Gossip) take(p *memberlist.Packet) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	p.Timestamp = time.Now()
	select {
	case g.packets <- p:
	default:
	}
}

// PacketCh implements memberlist.Transport.
func (g *Gossip) PacketCh() <-chan *memberlist.Packet { return g.packets }

// DialTimeout implements memberlist.Transport.
func (g *Gossip) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return g.host.Dial(ctx, addr)
}

// StreamCh implements memberlist.Transport.
func (g *Gossip) StreamCh() <-chan net.Conn { return g.streams }

func (g *Gossip) offer(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	select {
	case g.streams <- c:
		return true
	default:
		return false
	}
}

// Shutdown implements memberlist.Transport.
func (g *Gossip) Shutdown() error {
	g.mu.Lock()
	closed := g.closed
	g.closed = true
	g.mu.Unlock()
	if closed {
		return nil
	}
	for {
		select {
		case c := <-g.streams:
			c.Close()
			continue
		default:
		}
		break
	}
	g.host.mu.Lock()
	defer g.host.mu.Unlock()
	if g.host.gossips[g.port] == g {
		delete(g.host.gossips, g.port)
	}
	return nil
}
