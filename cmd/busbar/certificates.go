package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/fsm"
)

// expiryNotice is how long before its end a certificate is warned of.
const expiryNotice = 30 * 24 * time.Hour

// certificates are those of a node at one time. It shows one to clients and other nodes, and has the authority that
// certificates of other nodes must come from. They are replaced as a whole.
type certificates struct {
	shown       *tls.Certificate    // nil: none
	authority   *x509.CertPool      // nil without tls-ca
	authorities []*x509.Certificate // those of authority
}

// readCertificates reads what the settings name. A node for development without tls-cert has none here.
func readCertificates(cfg *Config) (*certificates, error) {
	c := &certificates{}
	if cfg.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("certificate: %w", err)
		}
		c.shown = &pair
	}
	if cfg.TLSCA == "" {
		return c, nil
	}
	text, err := os.ReadFile(cfg.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("tls-ca: %w", err)
	}
	c.authority = x509.NewCertPool()
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("tls-ca %s: %w", cfg.TLSCA, err)
		}
		c.authorities = append(c.authorities, one)
		c.authority.AddCert(one)
	}
	if len(c.authorities) == 0 {
		return nil, fmt.Errorf("tls-ca %s holds no certificate", cfg.TLSCA)
	}
	return c, nil
}

// forNode returns why other nodes would refuse the certificate of a node that must be named in it.
func (c *certificates) forNode(cfg *Config, node fsm.NodeID) error {
	if !cfg.RequireNodeURI || cluster.NamesNode(c.shown.Leaf, node) {
		return nil
	}
	return fmt.Errorf("require-node-uri: the certificate %s does not name this node, so the others would refuse it: "+
		"make one with the subject alternative name URI:%s", cfg.TLSCert, cluster.NodeURI(node))
}

// same reports whether two sets are of the same bytes.
func (c *certificates) same(o *certificates) (shown, authority bool) {
	chain := func(c *certificates) [][]byte {
		if c.shown == nil {
			return nil
		}
		return c.shown.Certificate
	}
	return slices.EqualFunc(chain(c), chain(o), slices.Equal[[]byte]),
		slices.EqualFunc(c.authorities, o.authorities, (*x509.Certificate).Equal)
}

// chain returns the certificates that the node shows, its own first.
func (c *certificates) chain() []*x509.Certificate {
	if c.shown == nil {
		return nil
	}
	var all []*x509.Certificate
	for _, der := range c.shown.Certificate {
		if one, err := x509.ParseCertificate(der); err == nil { // the pair was loaded, so its parts are well-formed
			all = append(all, one)
		}
	}
	return all
}

// earliest returns when the first of some certificates ends; zero without any.
func earliest(all []*x509.Certificate) (end time.Time) {
	for _, one := range all {
		if end.IsZero() || one.NotAfter.Before(end) {
			end = one.NotAfter
		}
	}
	return end
}

// faults reports certificates that peers refuse now. warnings are of what they will refuse soon, or under some names.
func (c *certificates) faults(cfg *Config, now time.Time) (warnings []string, fault error) {
	age := func(file string, all []*x509.Certificate) (errs []error) {
		for _, one := range all {
			name := fmt.Sprintf("%s: the certificate of %q", file, one.Subject.String())
			switch left := one.NotAfter.Sub(now); {
			case now.Before(one.NotBefore):
				errs = append(errs, fmt.Errorf("%s is not valid before %s: put a valid one there", name, day(one.NotBefore)))
			case left <= 0:
				errs = append(errs, fmt.Errorf("%s has expired at %s: put a renewed one there", name, day(one.NotAfter)))
			case left < expiryNotice:
				warnings = append(warnings, fmt.Sprintf("%s expires at %s, in %d days: renew it",
					name, day(one.NotAfter), int(left/(24*time.Hour))))
			}
		}
		return errs
	}
	chain := c.chain()
	errs := age(cfg.TLSCert, chain)
	ended := age(cfg.TLSCA, c.authorities)
	if len(ended) < len(c.authorities) { // one takes the place of another: the certificates of one that is valid count
		for _, one := range ended {
			warnings = append(warnings, one.Error()+", or take it away")
		}
		ended = nil
	}
	errs = append(errs, ended...)
	if len(chain) == 0 {
		return nil, nil
	}
	if c.authority != nil && errs == nil {
		errs = append(errs, c.trusted(cfg, chain, now))
	}
	if unnamed := unnamedHosts(cfg, chain[0]); len(unnamed) > 0 && len(cfg.TLSListen) > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: the certificate is for %s; clients that connect to %s refuse it",
			cfg.TLSCert, strings.Join(namesOf(chain[0]), ", "), strings.Join(unnamed, ", ")))
	}
	return warnings, errors.Join(errs...)
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// trusted returns why other nodes of the same tls-ca would refuse the certificate.
func (c *certificates) trusted(cfg *Config, chain []*x509.Certificate, now time.Time) error {
	rest := x509.NewCertPool()
	for _, one := range chain[1:] {
		rest.AddCert(one)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := chain[0].Verify(x509.VerifyOptions{Roots: c.authority, Intermediates: rest, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return fmt.Errorf("%s: other nodes refuse the certificate, because it does not fit %s: %w", cfg.TLSCert, cfg.TLSCA, err)
		}
	}
	return nil
}

// unnamedHosts are the advertised hosts of a node that its certificate is not for. An address counts only if the
// certificate has any: pods advertise addresses that change, and their clients connect to names.
func unnamedHosts(cfg *Config, own *x509.Certificate) (unnamed []string) {
	for _, host := range append([]string{cfg.Advertise}, cfg.AllowedHosts...) {
		if host == "" || net.ParseIP(host) != nil && len(own.IPAddresses) == 0 {
			continue
		}
		if own.VerifyHostname(host) != nil && !slices.Contains(unnamed, host) {
			unnamed = append(unnamed, host)
		}
	}
	return unnamed
}

// namesOf returns what a certificate is for.
func namesOf(own *x509.Certificate) []string {
	names := slices.Clone(own.DNSNames)
	for _, ip := range own.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return []string{"no host"}
	}
	return names
}
