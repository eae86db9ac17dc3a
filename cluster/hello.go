package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// The hello is the first frame each way, before anything is allocated for the peer. Its layout is in
// docs/formats/mesh.md.
const (
	helloMagic       = "BBMH"
	helloVersion     = 2
	helloHeaderBytes = 8   // magic, version, status, body length
	maxHelloBytes    = 512 // of the body: two names of at most 64 bytes, or a reason
)

// The status of a hello.
const (
	helloWelcome = 0 // the body is an identity
	helloRefused = 1 // the body is a reason, as text
)

// identity is what a node says about itself in a hello.
type identity struct {
	cluster     string
	node        fsm.NodeID
	incarnation fsm.Incarnation
}

// errRefused is the peer's answer that it does not want this connection.
var errRefused = errors.New("peer refused the connection")

func appendHello(b []byte, id identity) []byte {
	b = append(b, helloMagic...)
	b = append(b, helloVersion, helloWelcome)
	b = binary.BigEndian.AppendUint16(b, uint16(8+2+len(id.cluster)+len(id.node)))
	b = binary.BigEndian.AppendUint64(b, uint64(id.incarnation))
	b = append(b, byte(len(id.cluster)))
	b = append(b, id.cluster...)
	b = append(b, byte(len(id.node)))
	return append(b, id.node...)
}

func appendRefusal(b []byte, reason string) []byte {
	if len(reason) > maxHelloBytes {
		reason = reason[:maxHelloBytes]
	}
	b = append(b, helloMagic...)
	b = append(b, helloVersion, helloRefused)
	b = binary.BigEndian.AppendUint16(b, uint16(len(reason)))
	return append(b, reason...)
}

// readHello reads exactly one hello. It allocates at most maxHelloBytes.
func readHello(r io.Reader) (identity, error) {
	var header [helloHeaderBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return identity{}, fmt.Errorf("read hello: %w", err)
	}
	if string(header[:4]) != helloMagic {
		return identity{}, errors.New("read hello: not a busbar peer")
	}
	if v := header[4]; v != helloVersion {
		return identity{}, fmt.Errorf("read hello: version %d, want %d", v, helloVersion)
	}
	n := binary.BigEndian.Uint16(header[6:])
	if n > maxHelloBytes {
		return identity{}, fmt.Errorf("read hello: %d bytes, want at most %d", n, maxHelloBytes)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return identity{}, fmt.Errorf("read hello: %w", err)
	}
	switch header[5] {
	case helloWelcome:
		return parseIdentity(body)
	case helloRefused:
		return identity{}, fmt.Errorf("%w: %q", errRefused, body)
	}
	return identity{}, fmt.Errorf("read hello: unknown status %d", header[5])
}

func parseIdentity(b []byte) (identity, error) {
	short := errors.New("read hello: truncated")
	if len(b) < 8 {
		return identity{}, short
	}
	id := identity{incarnation: fsm.Incarnation(binary.BigEndian.Uint64(b))}
	rest := b[8:]
	var fields [2]string
	for i := range fields {
		if len(rest) == 0 || len(rest)-1 < int(rest[0]) {
			return identity{}, short
		}
		end := 1 + int(rest[0]) // as a byte it would overflow for a name of 255
		fields[i], rest = string(rest[1:end]), rest[end:]
	}
	if len(rest) != 0 {
		return identity{}, errors.New("read hello: bytes left over")
	}
	id.cluster, id.node = fields[0], fsm.NodeID(fields[1])
	if err := checkNodeID(id.node); err != nil {
		return identity{}, fmt.Errorf("read hello: %w", err)
	}
	return id, nil
}

// secure wraps raw in TLS, if configured, and finishes the handshake. The caller has set a deadline.
func (m *Mesh) secure(ctx context.Context, raw net.Conn, dialled bool) (net.Conn, error) {
	if m.cfg.TLS == nil {
		if err := m.plaintextAllowed(raw); err != nil {
			return nil, err
		}
		return raw, nil
	}
	var conn *tls.Conn
	if dialled {
		conn = tls.Client(raw, m.cfg.TLS.config(true))
	} else {
		conn = tls.Server(raw, m.cfg.TLS.config(false))
	}
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return conn, nil
}

// plaintextAllowed refuses plaintext to and from other machines. A network that was injected is a
// test's and reaches none.
func (m *Mesh) plaintextAllowed(conn net.Conn) error {
	addr, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || m.cfg.Network != nil || m.cfg.AllowPlaintext || addr.IP.IsLoopback() {
		return nil
	}
	return fmt.Errorf("plaintext with %v is not allowed", addr)
}

// config verifies the chain by hand on both sides. A node's name is its id, never its address, so
// there is no host name to compare.
func (t *TLS) config(client bool) *tls.Config {
	usage := x509.ExtKeyUsageClientAuth
	if client {
		usage = x509.ExtKeyUsageServerAuth
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		InsecureSkipVerify:     true, // replaced by VerifyConnection, which always runs
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return t.Certificate()
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return t.Certificate()
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("peer has no certificate")
			}
			rest := x509.NewCertPool()
			for _, c := range state.PeerCertificates[1:] {
				rest.AddCert(c)
			}
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: t.CA, Intermediates: rest, KeyUsages: []x509.ExtKeyUsage{usage},
			})
			return err
		},
	}
}

// checkCertificate compares the names in the peer's certificate with the id that it claims. URIs are
// matched exactly; a distinguished name is never parsed.
func (m *Mesh) checkCertificate(conn net.Conn, claimed fsm.NodeID) error {
	t, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	cert := t.ConnectionState().PeerCertificates[0]
	if NamesNode(cert, claimed) {
		return nil
	}
	named := slices.ContainsFunc(cert.URIs, func(u *url.URL) bool { return u.Scheme == uriScheme && u.Host == uriHost })
	if named || m.cfg.TLS.RequireNodeURI {
		return fmt.Errorf("certificate does not speak for node %s", claimed)
	}
	return nil
}

// The parts of a URI that names a node.
const (
	uriScheme = "busbar"
	uriHost   = "node"
)

// NodeURI is the name of a node in a certificate, a subject alternative name of type URI.
func NodeURI(node fsm.NodeID) string { return uriScheme + "://" + uriHost + "/" + string(node) }

// NamesNode reports whether a certificate has the URI of a node among its names.
func NamesNode(cert *x509.Certificate, node fsm.NodeID) bool {
	return slices.ContainsFunc(cert.URIs, func(u *url.URL) bool { return u.String() == NodeURI(node) })
}

// checkIdentity refuses nodes of other clusters and ourselves.
func (m *Mesh) checkIdentity(conn net.Conn, id identity) error {
	switch {
	case id.cluster != m.cfg.ClusterName:
		return fmt.Errorf("peer is of cluster %q", id.cluster)
	case id.node == m.cfg.Node:
		return fmt.Errorf("peer has our own node id %s", id.node)
	}
	return m.checkCertificate(conn, id.node)
}

// greet is the dialler's half of the handshake; it returns who answered.
func (m *Mesh) greet(ctx context.Context, raw net.Conn, want fsm.NodeID) (net.Conn, identity, error) {
	deadline := time.Now().Add(m.cfg.HelloTimeout)
	if limit, ok := ctx.Deadline(); ok && limit.Before(deadline) {
		deadline = limit
	}
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, identity{}, err
	}
	conn, err := m.secure(ctx, raw, true)
	if err != nil {
		return nil, identity{}, err
	}
	if _, err := conn.Write(appendHello(nil, m.identity())); err != nil {
		return nil, identity{}, fmt.Errorf("write hello: %w", err)
	}
	id, err := readHello(conn)
	if err != nil {
		return nil, identity{}, err
	}
	if err := m.checkIdentity(conn, id); err != nil {
		return nil, identity{}, err
	}
	if id.node != want {
		return nil, identity{}, fmt.Errorf("node %s answers where %s was expected", id.node, want)
	}
	return conn, id, raw.SetDeadline(time.Time{})
}

// welcome is the listener's half. The hello answers before the link is registered; refuse decides on
// bounds of ours.
func (m *Mesh) welcome(
	ctx context.Context, raw net.Conn, refuse func(identity) error,
) (net.Conn, identity, error) {
	if err := raw.SetDeadline(time.Now().Add(m.cfg.HelloTimeout)); err != nil {
		return nil, identity{}, err
	}
	conn, err := m.secure(ctx, raw, false)
	if err != nil {
		return nil, identity{}, err
	}
	id, err := readHello(conn)
	if err != nil {
		return nil, identity{}, err
	}
	if err = m.checkIdentity(conn, id); err == nil {
		err = refuse(id)
	}
	if err != nil {
		_, _ = conn.Write(appendRefusal(nil, err.Error())) // the peer's loss if it does not read it
		return nil, identity{}, err
	}
	if _, err := conn.Write(appendHello(nil, m.identity())); err != nil {
		return nil, identity{}, fmt.Errorf("write hello: %w", err)
	}
	return conn, id, raw.SetDeadline(time.Time{})
}

func (m *Mesh) identity() identity {
	return identity{m.cfg.ClusterName, m.cfg.Node, m.cfg.Incarnation}
}
