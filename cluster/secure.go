package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

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
				Roots: t.CA(), Intermediates: rest, KeyUsages: []x509.ExtKeyUsage{usage},
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
