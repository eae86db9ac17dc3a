package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/busbar-mq/busbar/fsm"
)

// Config is all that the room is told from outside. Start from [Defaults]; zero bounds are refused,
// zero never means unlimited.
type Config struct {
	// ClusterName keeps two clusters on one network apart: it is in every hello and every gossip
	// packet. 1 to 64 bytes.
	ClusterName string
	// Node is this data directory's UUID, Incarnation the random number of this process (A15, RUL-19).
	Node        fsm.NodeID
	Incarnation fsm.Incarnation

	// RootKey returns a digest of the key that all nodes share, zero if there is none. A node with another one is refused, unless
	// Known says that it is a member: a key is changed node by node. nil: there is no key, or no node is known.
	RootKey func() Digest
	Known   func(fsm.NodeID) bool
	// Founded returns a digest of the founders, zero while they are not known: a node with others is refused. nil: never
	// known.
	Founded func() Digest

	// Versions returns what this node knows and has. A node that does not fit beside it is refused. nil: every node fits.
	Versions func() Versions

	// PeerListen is where the mesh listens, host:port. PeerAdvertise is what other nodes dial; empty
	// means the address that gossip found, with the port of PeerListen.
	PeerListen    string
	PeerAdvertise string
	// TLS authenticates nodes to each other. Without it the mesh speaks plaintext, which off the
	// loopback interface is refused unless AllowPlaintext.
	TLS            *TLS
	AllowPlaintext bool

	// DialTimeout bounds one attempt to connect a socket. A node that does not answer within it is
	// treated as down until the next attempt.
	DialTimeout time.Duration
	// HelloTimeout bounds the TLS handshake and the hello together, so that a silent socket is not
	// held for long.
	HelloTimeout time.Duration
	// WriteTimeout bounds one write to a peer; a peer that does not drain its socket for that long is
	// cut off.
	WriteTimeout time.Duration
	// PingInterval is how often a link proves that it lives; after SilentPings intervals without a
	// byte from the peer it is closed (A17: 6 x 250 ms). Counted in ticks and not in time, so that a
	// process that was paused itself does not accuse its peers.
	PingInterval time.Duration
	SilentPings  int
	// RedialMin and RedialMax bound the pause between attempts to reach a node that is down.
	RedialMin, RedialMax time.Duration

	// MaxFrameBytes bounds the payload of one call or answer, and the header of a stream. It exceeds
	// the largest raft entry (RUL-9: 16 MiB) with room to spare.
	MaxFrameBytes uint32
	// MaxQueueBytes bounds what waits for one peer's socket; a call waits for room, it is not dropped.
	MaxQueueBytes int
	// MaxCalls bounds the calls in flight with one peer, in each direction. Parked calls last up to a
	// minute (A18), so it is large; beyond it the answer is busy.
	MaxCalls int
	// MaxHandledBytes bounds the request bytes that handlers of one peer's calls hold at once.
	MaxHandledBytes int
	// MaxStreams bounds the bulk streams from one peer that are served at once. In the worst case there is one
	// snapshot per group, and the disk bounds them anyway.
	MaxStreams int
	// StreamIdle ends a bulk stream on which no byte moved for that long (R12).
	StreamIdle time.Duration
	// MaxPeers bounds the nodes known to the mesh, MaxHandshakes the accepted sockets that have not yet said
	// who they are. Of more, the oldest of the host that has most is closed.
	MaxPeers, MaxHandshakes int

	// Network replaces TCP in tests; nil means TCP.
	Network Network

	// GossipListen is host:port for UDP and TCP; GossipAdvertise is what others use, empty: found by
	// memberlist.
	GossipListen    string
	GossipAdvertise string
	// GossipKeys encrypt gossip with AES-256, 32 bytes each, or none. The first one encrypts, all are accepted. With
	// none, gossip is as trustworthy as the network.
	GossipKeys [][]byte
	// Join lists host:port of other nodes' gossip. Names are resolved again at every attempt.
	Join []string
	// GossipTransport replaces UDP and TCP in tests; nil means the network.
	GossipTransport memberlist.Transport
	// OpsAddr and ClientAddrs are what this node tells the others about its other doors; they are
	// shown to operators and never dialled by the room. At most MaxClientAddrs.
	OpsAddr     string
	ClientAddrs []string

	// BootstrapExpect is the number of first voters of the catalog. 0: this node joins a cluster that
	// exists and never founds one (A20).
	BootstrapExpect int
}

// MaxClientAddrs bounds the addresses a node tells about itself.
const MaxClientAddrs = 16

const (
	maxJoinAddrs = 64  // seeds; a handful is enough
	maxNameBytes = 64  // of a cluster name or a node id: a UUID takes 36
	maxAddrBytes = 253 // of a host:port: the longest DNS name
)

// TLS is how nodes prove who they are. Both sides present a certificate that chains to CA. If it
// carries URI names busbar://node/<id>, one of them must be the node's id; a certificate without
// such a name speaks for any node, unless RequireNodeURI.
type TLS struct {
	// Certificate is asked at every handshake, so a renewed certificate needs no restart.
	Certificate func() (*tls.Certificate, error)
	// CA is the private authority of the cluster, and nothing else. It is asked at every handshake, too. Links that are
	// open stay when it changes.
	CA func() *x509.CertPool
	// RequireNodeURI refuses certificates that do not name their node.
	RequireNodeURI bool
}

// Defaults returns the settings of a production node; ClusterName, Node and Incarnation are left to
// the caller.
func Defaults() Config {
	return Config{
		PeerListen:      ":5301",
		DialTimeout:     2 * time.Second,
		HelloTimeout:    5 * time.Second,
		WriteTimeout:    10 * time.Second,
		PingInterval:    250 * time.Millisecond,
		SilentPings:     6,
		RedialMin:       50 * time.Millisecond,
		RedialMax:       time.Second,
		MaxFrameBytes:   32 << 20,
		MaxQueueBytes:   64 << 20,
		MaxCalls:        16384,
		MaxHandledBytes: 256 << 20,
		MaxStreams:      64,
		StreamIdle:      30 * time.Second,
		MaxPeers:        128,
		MaxHandshakes:   64,
		GossipListen:    ":5302",
	}
}

// Validate reports every problem of c at once, in the same order each time.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n := len(c.ClusterName); n == 0 || n > maxNameBytes {
		bad("cluster name has %d bytes, want 1 to %d", n, maxNameBytes)
	}
	if err := checkNodeID(c.Node); err != nil {
		bad("node: %w", err)
	}
	if c.Incarnation == 0 {
		bad("incarnation is 0, want a random number")
	}
	for _, f := range []struct {
		name string
		is   time.Duration
	}{
		{"dial timeout", c.DialTimeout}, {"hello timeout", c.HelloTimeout}, {"write timeout", c.WriteTimeout},
		{"ping interval", c.PingInterval}, {"minimum redial pause", c.RedialMin},
		{"maximum redial pause", c.RedialMax}, {"stream idle timeout", c.StreamIdle},
	} {
		if f.is <= 0 {
			bad("%s is %v, want more than 0", f.name, f.is)
		}
	}
	if c.RedialMax < c.RedialMin {
		bad("maximum redial pause %v is below the minimum %v", c.RedialMax, c.RedialMin)
	}
	for _, f := range []struct {
		name string
		is   int
	}{
		{"silent pings", c.SilentPings}, {"maximum queue bytes", c.MaxQueueBytes}, {"maximum calls", c.MaxCalls},
		{"maximum handled bytes", c.MaxHandledBytes}, {"maximum streams", c.MaxStreams},
		{"maximum peers", c.MaxPeers}, {"maximum handshakes", c.MaxHandshakes},
		{"maximum frame bytes", int(c.MaxFrameBytes)},
	} {
		if f.is <= 0 {
			bad("%s is %d, want more than 0", f.name, f.is)
		}
	}
	// A frame that could never be admitted would wait for ever.
	if c.MaxQueueBytes < int(c.MaxFrameBytes)+frameHeaderBytes {
		bad("maximum queue bytes %d do not hold one frame of %d", c.MaxQueueBytes, c.MaxFrameBytes)
	}
	if c.MaxHandledBytes < int(c.MaxFrameBytes) {
		bad("maximum handled bytes %d do not hold one frame of %d", c.MaxHandledBytes, c.MaxFrameBytes)
	}
	if t := c.TLS; t != nil && (t.Certificate == nil || t.CA == nil) {
		bad("TLS needs both a certificate and a CA")
	}
	errs = append(errs, c.validateAddresses()...)
	if err := checkGossipKeys(c.GossipKeys); err != nil {
		errs = append(errs, err)
	}
	if c.BootstrapExpect < 0 || c.BootstrapExpect > maxBootstrapNodes {
		bad("bootstrap-expect is %d, want 0 to %d", c.BootstrapExpect, maxBootstrapNodes)
	}
	return errors.Join(errs...)
}

func (c *Config) validateAddresses() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, a := range []struct{ name, is string }{{"peer listen", c.PeerListen}, {"gossip listen", c.GossipListen}} {
		if _, _, err := splitHostPort(a.is); err != nil {
			bad("%s address: %w", a.name, err)
		}
	}
	for _, a := range []struct{ name, is string }{
		{"peer advertise", c.PeerAdvertise}, {"gossip advertise", c.GossipAdvertise},
	} {
		if a.is == "" {
			continue
		}
		if host, port, err := splitHostPort(a.is); err != nil {
			bad("%s address: %w", a.name, err)
		} else if host == "" || port == 0 {
			bad("%s address %q names no host or no port", a.name, a.is)
		}
	}
	for _, addr := range append([]string{c.OpsAddr}, c.ClientAddrs...) {
		if len(addr) > maxAddrBytes {
			bad("address of %d bytes, want at most %d", len(addr), maxAddrBytes)
		}
	}
	if n := len(c.ClientAddrs); n > MaxClientAddrs {
		bad("%d client addresses, want at most %d", n, MaxClientAddrs)
	}
	if len(c.Join) > maxJoinAddrs {
		bad("%d join addresses, want at most %d", len(c.Join), maxJoinAddrs)
	}
	if c.TLS == nil && !c.AllowPlaintext && c.Network == nil {
		if host, _, err := net.SplitHostPort(c.PeerListen); err == nil && !isLoopback(host) {
			bad("the mesh would listen on %q without TLS; set TLS, listen on loopback, or allow plaintext",
				c.PeerListen)
		}
	}
	return errs
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// splitHostPort is net.SplitHostPort with a numeric port and a bound on the length.
func splitHostPort(addr string) (host string, port uint16, err error) {
	if len(addr) > maxAddrBytes {
		return "", 0, fmt.Errorf("address of %d bytes, want at most %d", len(addr), maxAddrBytes)
	}
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n := 0
	for _, r := range text {
		if r < '0' || r > '9' {
			return "", 0, fmt.Errorf("address %q: port is not a number", addr)
		}
		if n = n*10 + int(r-'0'); n > 65535 {
			return "", 0, fmt.Errorf("address %q: port is above 65535", addr)
		}
	}
	if text == "" {
		return "", 0, fmt.Errorf("address %q has no port", addr)
	}
	return host, uint16(n), nil
}

// checkNodeID refuses ids that could not be shown, logged or put into a URI safely.
func checkNodeID(id fsm.NodeID) error {
	if len(id) == 0 || len(id) > maxNameBytes {
		return fmt.Errorf("node id has %d bytes, want 1 to %d", len(id), maxNameBytes)
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return fmt.Errorf("node id holds byte 0x%02x, want letters, digits, '-', '_' and '.'", c)
		}
	}
	return nil
}
