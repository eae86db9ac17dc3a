package attack

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/cluster"
)

// hello is the first frame of a node to another one (docs/formats/mesh.md). Its program knows what this one knows.
func hello(cluster, id string) []byte {
	b := append([]byte("BBMH\x03\x00"), 0, 0)
	b = binary.BigEndian.AppendUint64(b, 7)
	for _, text := range []string{cluster, id, ""} { // "": whoever answers
		b = append(append(b, byte(len(text))), text...)
	}
	b = append(b, 3, 12) // versions: the newest and the oldest that it knows, and that of its cluster
	for _, v := range []fsm.Version{fsm.NewestVersion, fsm.OldestVersion, 0} {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	binary.BigEndian.PutUint16(b[6:], uint16(len(b)-8))
	return b
}

// answer reads a hello and returns whether it is a welcome, and its body.
func answer(c net.Conn) (welcome bool, body string, err error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(c, head); err != nil {
		return false, "", err
	}
	if string(head[:5]) != "BBMH\x03" {
		return false, "", fmt.Errorf("no hello: %q", head)
	}
	text := make([]byte, binary.BigEndian.Uint16(head[6:]))
	_, err = io.ReadFull(c, text)
	return head[5] == 0, string(text), err
}

// leaders tells who leads each partition, and in which term.
func (a *attack) leaders() map[int]string {
	a.Helper()
	all := map[int]string{}
	a.await("every partition has a leader", func() bool {
		s, err := a.c.Status(a.ctx)
		clear(all)
		for _, p := range s.Partitions {
			if p.Leader == "" {
				return false
			}
			all[p.ID] = fmt.Sprint(p.Leader, " of term ", p.Term)
		}
		return err == nil && len(all) > 0
	})
	return all
}

// undisturbed demands that f changes neither the leaders nor who is in the cluster.
func (a *attack) undisturbed(f func()) {
	a.Helper()
	before := a.leaders()
	f()
	for id, leader := range a.leaders() {
		if before[id] != leader {
			a.Errorf("partition %d: %s leads, before it was %s", id, leader, before[id])
		}
	}
	for _, n := range a.c.Nodes {
		for state, want := range map[string]int{"alive": len(a.c.Nodes), "dead": 0, "left": 0} {
			got, err := n.Metric(a.ctx, fmt.Sprintf("busbar_nodes{state=%q}", state))
			if err != nil && want == 0 {
				continue // none was ever seen
			}
			if err != nil || int(got) != want {
				a.Errorf("%s sees %v nodes %s, want %d: %v", n.ID, got, state, want, err)
			}
		}
	}
}

// until bounds the wait for an answer of a node.
func until(c net.Conn) net.Conn {
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// Strangers at the port of the mesh: without TLS, without a certificate, with one of another authority, of another time, for
// another use or of another node, with bytes that were captured, and with frames that are too large. None is taken for a node.
func TestStrangersAreNoNodes(t *testing.T) {
	onClusters(t, func(a *attack) string {
		rounds := size(2, 50)
		a.undisturbed(func() {
			for range rounds {
				for i, n := range a.c.Nodes {
					victim := "another-node"
					if other := a.c.Pick(i + 1); other != n {
						victim = a.idOf(other)
					}
					a.withoutCertificate(n)
					a.wrongCertificates(n, victim)
					a.captured(n)
					a.tooLarge(n)
				}
			}
		})
		return fmt.Sprintf("%d times 23 strangers", rounds)
	})
}

// withoutCertificate sends what is no TLS, and TLS that shows nothing.
func (a *attack) withoutCertificate(n *cluster.Node) {
	a.Helper()
	noise := make([]byte, 4096)
	_, _ = rand.Read(noise)
	noise[0] = 0
	for name, b := range map[string][]byte{
		"noise": noise, "HTTP": []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "AMQP": []byte("AMQP\x00\x01\x00\x00"),
		"a hello without TLS": hello("busbar", "stranger"), "a record of 64 KiB": append([]byte("\x16\x03\x01\xff\xff"), noise...),
	} {
		c := until(a.dial(n.Peer))
		_, _ = c.Write(b)
		got, err := io.ReadAll(io.LimitReader(c, 1<<16))
		if isTimeout(err) || bytes.Contains(got, []byte("BBMH")) {
			a.Errorf("%s: %s: answered %q, %v", n.ID, name, got, err)
		}
		_ = c.Close()
	}
	a.refused(n, "no certificate", &tls.Config{}, "certificate required")
	a.refused(n, "TLS 1.2", &tls.Config{MaxVersion: tls.VersionTLS12}, "protocol version not supported")
}

// refused demands that the node's alert ends a TLS connection before a welcome.
func (a *attack) refused(n *cluster.Node, name string, cfg *tls.Config, alert string) {
	a.Helper()
	cfg.InsecureSkipVerify = true // the attacker trusts everybody
	c := tls.Client(until(a.dial(n.Peer)), cfg)
	defer c.Close()
	err := c.HandshakeContext(a.ctx)
	if err == nil {
		_, _ = c.Write(hello("busbar", "stranger"))
		_, _, err = answer(c)
	}
	if err == nil || !strings.Contains(err.Error(), alert) {
		a.Errorf("%s: %s: %v, want %q", n.ID, name, err, alert)
	}
}

func (a *attack) wrongCertificates(n *cluster.Node, victim string) {
	a.Helper()
	t := a.T
	for name, c := range map[string]certificate{
		"another authority": newAuthority(t).issue(t, ""),
		"it has expired":    ground.ca.issue(t, "", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
		"not yet valid":     ground.ca.issue(t, "", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }),
		"one of a server": ground.ca.issue(t, "", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}),
	} {
		a.refused(n, name, &tls.Config{Certificates: []tls.Certificate{c.pair(t)}}, "bad certificate")
	}
	for name, tc := range map[string]struct {
		certified, cluster, id, reason string
	}{
		"another node's":       {"somebody-else", "busbar", victim, "certificate does not speak for node"},
		"a longer name":        {victim + "/x", "busbar", victim, "certificate does not speak for node"},
		"of another cluster":   {"", "other", "stranger", `peer is of cluster "other"`},
		"the node's own name":  {"", "busbar", a.idOf(n), "peer has our own node id"},
		"a name that is none":  {"", "busbar", "../../etc", ""},
		"a name of 255 bytes":  {"", "busbar", strings.Repeat("n", 255), ""},
		"a cluster of no name": {"", "", "stranger", `peer is of cluster ""`},
	} {
		c := a.insider(n, tc.certified)
		_, err := c.Write(hello(tc.cluster, tc.id))
		welcome, text, readErr := answer(c)
		if welcome || readErr == nil && !strings.Contains(text, tc.reason) || readErr != nil && (tc.reason != "" || isTimeout(readErr)) {
			a.Errorf("%s: %s: welcome %t, %q, %v, %v; want %q", n.ID, name, welcome, text, err, readErr, tc.reason)
		}
		_ = c.Close()
	}
}

// idOf is the id that a node has in the mesh, as it tells those who have a certificate.
func (a *attack) idOf(n *cluster.Node) string {
	a.Helper()
	c := a.insider(n, "")
	defer c.Close()
	_, err := c.Write(hello("busbar", "visitor"))
	a.must("hello", err)
	_, text, err := answer(c)
	a.must("answer", err)
	_, id, _ := strings.Cut(text, "busbar")
	if len(id) < 2 || len(id) <= int(id[0]) {
		a.Fatalf("the welcome is %q", text)
	}
	return id[1 : 1+id[0]] // what it says of its cluster comes behind it
}

// insider is a TLS connection with a certificate of the right authority, which speaks for one node, or for any if id is "".
func (a *attack) insider(n *cluster.Node, id string) net.Conn {
	a.Helper()
	raw := until(a.dial(n.Peer))
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{ground.ca.issue(a.T, id).pair(a.T)}})
	a.must("TLS", c.HandshakeContext(a.ctx))
	return c
}

// tap keeps what is written.
type tap struct {
	net.Conn
	mu  sync.Mutex
	all []byte
}

func (c *tap) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.all = append(c.all, b...)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// captured sends again what a node has sent on a connection that was welcome.
func (a *attack) captured(n *cluster.Node) {
	a.Helper()
	raw := &tap{Conn: until(a.dial(n.Peer))}
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{ground.ca.issue(a.T, "").pair(a.T)}})
	a.must("TLS", c.HandshakeContext(a.ctx))
	_, err := c.Write(hello("busbar", "visitor"))
	a.must("hello", err)
	welcome, text, err := answer(c)
	if !welcome || err != nil {
		a.Errorf("%s does not welcome a node that has a certificate: %q, %v", n.ID, text, err)
	}
	_ = c.Close()
	again := until(a.dial(n.Peer))
	defer again.Close()
	_, _ = again.Write(raw.all)
	got, err := io.ReadAll(io.LimitReader(again, 1<<16))
	if isTimeout(err) || bytes.Contains(got, []byte("BBMH")) {
		a.Errorf("%s: captured bytes: answered %d bytes, %v", n.ID, len(got), err)
	}
}

// tooLarge sends frames beyond what may be sent, as somebody who has a certificate.
func (a *attack) tooLarge(n *cluster.Node) {
	a.Helper()
	frame := func(length uint32, kind byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, length), kind, 1, 0, 0, 0, 0, 0, 0, 0, 1)
	}
	for name, b := range map[string][]byte{
		"a request of 4 GiB": frame(1<<32-1, 1), "just too large": frame(32<<20+1, 1), "an unknown type": frame(0, 200),
		"a ping with bytes": frame(5, 7), "an answer of 4 GiB": frame(1<<32-1, 2),
	} {
		c := a.insider(n, "")
		_, err := c.Write(hello("busbar", "visitor"))
		a.must("hello", err)
		if welcome, text, err := answer(c); !welcome || err != nil {
			a.Errorf("%s: %s: %q, %v", n.ID, name, text, err)
		}
		_, _ = c.Write(b)
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			a.Errorf("%s: %s: the connection was kept", n.ID, name)
		}
		_ = c.Close()
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Sockets that say nothing, or stop in the middle of a handshake, at the ports of the mesh and of the gossip: a node with a
// certificate is welcome between them (F7).
func TestSilentSocketsKeepNoNodeOut(t *testing.T) {
	onClusters(t, func(a *attack) string {
		count := size(150, 1000)
		a.undisturbed(func() {
			for _, n := range a.c.Nodes {
				for i := range count {
					c := a.dial(n.Peer)
					switch i % 3 {
					case 1: // the head of a ClientHello
						_, _ = c.Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))
					case 2:
						_, _ = c.Write([]byte("\x16"))
					}
					g := a.dial(n.Gossip)
					if i%2 == 0 {
						_, _ = g.Write([]byte{244, 6})
					}
				}
			}
			for _, n := range a.c.Nodes {
				c := a.insider(n, "")
				_, err := c.Write(hello("busbar", "visitor"))
				a.must("hello", err)
				if welcome, text, err := answer(c); !welcome || err != nil {
					a.Errorf("%s keeps a node out: %q, %v", n.ID, text, err)
				}
				_ = c.Close()
			}
		})
		return fmt.Sprintf("%d sockets at each of two ports", count)
	})
}

// Noise, captured packets and members with another key or another name, at the port of the gossip: nobody joins, nobody is
// taken for dead, and nobody leads who did not before.
func TestStrangersDoNotGossip(t *testing.T) {
	onClusters(t, func(a *attack) string {
		packets := size(3000, 200_000)
		replayed := 0
		a.undisturbed(func() {
			kept := a.listen(time.Duration(size(2, 20)) * time.Second)
			for _, n := range a.c.Nodes {
				a.noise(n, packets)
				a.streams(n)
				a.intruders(n)
			}
			replayed = a.replay(kept)
		})
		return fmt.Sprintf("%d packets of noise, %d captured ones", packets*len(a.c.Nodes), replayed)
	})
}

// noise sends packets of random bytes, some with the beginning of a real one.
func (a *attack) noise(n *cluster.Node, packets int) {
	a.Helper()
	c, err := (&net.Dialer{}).DialContext(a.ctx, "udp", n.Gossip)
	a.must("dial", err)
	defer c.Close()
	chance := mathrand.New(mathrand.NewPCG(1, 2))
	b := make([]byte, 1500)
	for i := range packets {
		for at := 0; at < len(b); at += 8 {
			binary.LittleEndian.PutUint64(b[min(at, len(b)-8):], chance.Uint64())
		}
		p := b[:chance.IntN(len(b))]
		if len(p) > 10 {
			switch i % 4 {
			case 0: // the name of the cluster, then no encryption
				copy(p, "\xf4\x06busbar")
				p[8] = byte(i % 14)
			case 1: // encryption of either version, by no key
				copy(p, "\xf4\x06busbar")
				p[8] = byte(i % 2)
			case 2:
				p[0] = byte(i % 14)
			}
		}
		_, _ = c.Write(p)
		if i%500 == 499 {
			time.Sleep(5 * time.Millisecond) // else the kernel drops what comes
		}
	}
}

// streams opens streams of the gossip that claim to be long, or are nonsense.
func (a *attack) streams(n *cluster.Node) {
	a.Helper()
	long := append([]byte("\xf4\x06busbar\x0a"), 0xff, 0xff, 0xff, 0xff) // encrypted, 4 GiB
	for name, b := range map[string][]byte{
		"a state in plain text": append([]byte("\xf4\x06busbar\x06"), bytes.Repeat([]byte{0x81}, 4096)...),
		"4 GiB":                 append(long, make([]byte, 64<<10)...),
		"without a name":        bytes.Repeat([]byte{10}, 4096),
		"another name":          []byte("\xf4\x05other\x06"),
		"compressed":            append([]byte("\xf4\x06busbar\x09"), bytes.Repeat([]byte{0xff}, 4096)...),
	} {
		c := until(a.dial(n.Gossip))
		_, _ = c.Write(b)
		got, err := io.ReadAll(io.LimitReader(c, 1<<16))
		if isTimeout(err) || len(got) > 200 { // an error message at most
			a.Errorf("%s: %s: answered %d bytes, %v", n.ID, name, len(got), err)
		}
		_ = c.Close()
	}
}

// replay sends what was captured to every node, over and over.
func (a *attack) replay(kept [][]byte) (sent int) {
	a.Helper()
	for _, n := range a.c.Nodes {
		c, err := (&net.Dialer{}).DialContext(a.ctx, "udp", n.Gossip)
		a.must("dial", err)
		for range size(5, 100) {
			for _, p := range kept {
				_, _ = c.Write(p)
				sent++
			}
		}
		_ = c.Close()
	}
	return sent
}

// listen captures the packets between the nodes for a while. Without the right to, it says so.
func (a *attack) listen(d time.Duration) (kept [][]byte) {
	a.Helper()
	c, err := net.ListenPacket("ip4:udp", "127.0.0.1")
	if err != nil {
		a.Logf("SKIPPED: captured packets of the gossip: %v", err)
		return nil
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(a.ctx, d)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	ports := map[string]bool{}
	for _, n := range a.c.Nodes {
		_, port, _ := net.SplitHostPort(n.Gossip)
		ports[port] = true
	}
	b := make([]byte, 64<<10)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			break
		}
		if n > 8 && ports[fmt.Sprint(binary.BigEndian.Uint16(b[2:]))] {
			kept = append(kept, bytes.Clone(b[8:n]))
		}
	}
	if len(kept) == 0 && len(a.c.Nodes) > 1 {
		a.Errorf("no packet between %d nodes was seen", len(a.c.Nodes))
	}
	return kept
}
