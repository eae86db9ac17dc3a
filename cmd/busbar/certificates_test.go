package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	return newAuthorityFor(t, name, -time.Hour, 1000*24*time.Hour)
}

// newAuthorityFor is one that is valid in a time, from now.
func newAuthorityFor(t *testing.T, name string, from, until time.Duration) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

// paper is what a certificate of a test says; by default it is for localhost and 127.0.0.1 and has a year to go.
type paper struct {
	name        string
	hosts       []string
	from, until time.Duration // from now
}

// issue writes node.pem, node.key and ca.pem into dir, one after another as tools do.
func (a *authority) issue(t *testing.T, dir string, p paper) {
	t.Helper()
	if p.until == 0 {
		p.until = 365 * 24 * time.Hour
	}
	if p.from == 0 {
		p.from = min(-time.Hour, p.until-time.Hour)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: p.name},
		NotBefore: time.Now().Add(p.from), NotAfter: time.Now().Add(p.until), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    append([]string{"localhost"}, p.hosts...), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, "node.pem"), "CERTIFICATE", der)
	writePEM(t, filepath.Join(dir, "node.key"), "EC PRIVATE KEY", private)
	writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", a.cert.Raw)
}

func writePEM(t *testing.T, path, kind string, ders ...[]byte) {
	t.Helper()
	var text []byte
	for _, der := range ders {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// config check finds what clients or other nodes refuse, and warns of what they will refuse within 30 days.
func TestFaultsOfCertificatesAreFound(t *testing.T) {
	day := 24 * time.Hour
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	expired, tomorrow := newAuthorityFor(t, "old", -2*day, -day), newAuthorityFor(t, "next", day, 2*day)
	for name, c := range map[string]struct {
		paper            paper
		spoil            func(dir string)
		more             string
		refused, warning string // in what is said; "" for nothing
	}{
		"a good one":                   {paper: paper{}},
		"one with 31 days":             {paper: paper{until: 31 * day}},
		"one with 29 days":             {paper: paper{until: 30*day - time.Hour}, warning: "in 29 days: renew it"},
		"an expired one":               {paper: paper{until: -time.Minute}, refused: "has expired at"},
		"one that is not valid yet":    {paper: paper{from: time.Hour}, refused: "is not valid before"},
		"the advertised name is in it": {paper: paper{hosts: []string{"a.example.net"}}, more: "advertise: a.example.net\n"},
		"another name is advertised": {paper: paper{hosts: []string{"a.example.net"}}, more: "advertise: b.example.net\n",
			warning: "clients that connect to b.example.net refuse it"},
		"another address is advertised": {more: "advertise: 192.0.2.1\n", warning: "clients that connect to 192.0.2.1 refuse it"},
		"a key of another certificate": {spoil: func(dir string) {
			other := t.TempDir()
			ours.issue(t, other, paper{})
			mustRename(t, filepath.Join(other, "node.key"), filepath.Join(dir, "node.key"))
		}, refused: "private key does not match public key"},
		"an authority that did not sign it": {spoil: func(dir string) {
			writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", theirs.cert.Raw)
		}, refused: "other nodes refuse the certificate"},
		"an expired authority beside the one that signed": {spoil: func(dir string) {
			writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", expired.cert.Raw, ours.cert.Raw)
		}, warning: "has expired at"},
		"an authority of tomorrow beside the one that signed": {spoil: func(dir string) {
			writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", ours.cert.Raw, tomorrow.cert.Raw)
		}, warning: "is not valid before"},
		"an expired authority alone": {spoil: func(dir string) {
			writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", expired.cert.Raw)
		}, refused: "has expired at"},
		"an authority without a certificate": {spoil: func(dir string) {
			writePEM(t, filepath.Join(dir, "ca.pem"), "EC PRIVATE KEY", nil)
		}, refused: "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ours.issue(t, dir, c.paper)
			if c.spoil != nil {
				c.spoil(dir)
			}
			file := writeConfig(t, "data-dir: /d\nroot-key: k\ntls-listen: ['127.0.0.1:0']\ntls-cert: "+dir+"/node.pem\ntls-key: "+dir+
				"/node.key\ntls-ca: "+dir+"/ca.pem\ngossip-key: "+strings.Repeat("A", 43)+"=\n"+c.more)
			out, code := execute(t, newConfigCommand(), "", "check", "--config", file)
			if want := c.refused != ""; (code == exit.Usage) != want || want == (code == 0) || !strings.Contains(out, c.refused) {
				t.Errorf("exit code %d, said %q, want %q", code, out, c.refused)
			}
			if (c.warning == "") == strings.Contains(out, "warning:") || !strings.Contains(out, c.warning) {
				t.Errorf("printed %q, want %q", out, c.warning)
			}
		})
	}
}

// A node warns of a certificate that ends soon when it starts, and then once a day.
func TestANodeWarnsOfCertificatesOnceADay(t *testing.T) {
	day := 24 * time.Hour
	dir := t.TempDir()
	newAuthority(t, "ours").issue(t, dir, paper{until: 31*day + time.Hour})
	cfg := Config{TLSCert: dir + "/node.pem", TLSKey: dir + "/node.key"}
	c, err := readCertificates(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		book := new(logBook)
		n := &node{cfg: cfg, log: hclog.New(&hclog.LoggerOptions{Output: book})}
		n.certificates.Store(c)
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.warnOfCertificates(ctx, func() time.Time { return real.Add(time.Since(began)) })
		}()
		count := func() (warnings, errors int) {
			return strings.Count(book.String(), "renew it"), strings.Count(book.String(), "has expired at")
		}
		for _, c := range []struct {
			wait           time.Duration
			warned, failed int
		}{{0, 0, 0}, {day, 0, 0}, {day, 1, 0}, {day - time.Minute, 1, 0}, {time.Minute, 2, 0}, {28 * day, 30, 0}, {day, 30, 1}} {
			time.Sleep(c.wait)
			synctest.Wait()
			if warned, failed := count(); warned != c.warned || failed != c.failed {
				t.Errorf("after %v: %d warnings and %d errors, want %d and %d", time.Since(began), warned, failed, c.warned, c.failed)
			}
		}
		cancel()
		<-done
	})
}

func mustRename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
