package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// devCertLife is long enough that no test suite outlives it. The CA is for one machine only.
const devCertLife = 10 * 365 * 24 * time.Hour

// devCertificate returns a server certificate from the development CA in dir, which it makes if there is none. The
// certificate is for loopback and for more names or addresses. Beside each name it holds NAME:PORT for every port: the Go
// SDK verifies host and port together.
func devCertificate(dir string, ports []int, more ...string) (tls.Certificate, error) {
	ca, caKey, err := devCA(dir)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("development CA in %s: %w", dir, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t, err := devTemplate("busbar development node")
	if err != nil {
		return tls.Certificate{}, err
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	t.DNSNames, t.IPAddresses = devNames(ports, more)
	der, err := x509.CreateCertificate(rand.Reader, t, ca, &key.PublicKey, caKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der, ca.Raw}, PrivateKey: key}, nil
}

func devNames(ports []int, more []string) (names []string, addresses []net.IP) {
	addresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, host := range append([]string{"localhost", "127.0.0.1"}, more...) {
		ip := net.ParseIP(host)
		switch {
		case host == "" || strings.Contains(host, "*") || ip != nil && ip.IsUnspecified():
			continue
		case ip == nil:
			names = append(names, host)
		case !ip.IsLoopback():
			addresses = append(addresses, ip)
		}
		for _, p := range ports {
			names = append(names, net.JoinHostPort(host, strconv.Itoa(p)))
		}
	}
	return names, addresses
}

func devTemplate(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(devCertLife),
		BasicConstraintsValid: true}, nil
}

// devCA reads the CA of dir, or makes it. Nodes that start together agree on one: whoever links its
// key file first wins, the others read that.
func devCA(dir string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	both := filepath.Join(dir, "ca.key") // key and certificate, so that one link publishes both
	if _, err := os.Stat(both); errors.Is(err, fs.ErrNotExist) {
		if err := makeDevCA(dir, both); err != nil {
			return nil, nil, err
		}
	}
	text, err := os.ReadFile(both)
	if err != nil {
		return nil, nil, err
	}
	ca, key, err := parseDevCA(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w; delete it to make a new CA: rm %s", both, err, both)
	}
	// The file that clients trust holds no key.
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	return ca, key, replaceFile(filepath.Join(dir, "ca.pem"), public, 0o644)
}

// parseDevCA takes only what was written. A certificate that has changed since its key signed it would be served, and
// every client would wonder why it cannot trust the node.
func parseDevCA(text []byte) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	keyBlock, rest := pem.Decode(text)
	certBlock, _ := pem.Decode(rest)
	if keyBlock == nil || certBlock == nil {
		return nil, nil, errors.New("no key and certificate")
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	ca, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	if !key.PublicKey.Equal(ca.PublicKey) {
		return nil, nil, errors.New("key and certificate do not belong together")
	}
	if err := ca.CheckSignatureFrom(ca); err != nil {
		return nil, nil, err
	}
	return ca, key, nil
}

func makeDevCA(dir, both string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t, err := devTemplate("busbar development CA")
	if err != nil {
		return err
	}
	t.IsCA = true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	tmp, err := os.CreateTemp(dir, "ca-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	// A name that outlives a power loss without its content would keep the node from starting.
	_, err = tmp.Write(text)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), both); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// replaceFile writes a file so that readers see the old or the new content, never a part, even after
// a power loss.
func replaceFile(path string, content []byte, mode os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".*.tmp") // the next start removes one in DATA-DIR
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
