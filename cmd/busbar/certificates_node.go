package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/fsm"
)

// openCertificates reads the certificates of the settings. An expired one is told and does not keep the node from
// starting: clients without TLS may still be served.
func (n *node) openCertificates(context.Context) error {
	c, err := readCertificates(&n.cfg)
	if err != nil {
		return err
	}
	n.certificates.Store(c)
	done := make(chan struct{})
	go func() { defer close(done); n.warnOfCertificates(n.background, time.Now) }()
	n.onClose(func(context.Context) error { n.cancel(); <-done; return nil })
	return nil
}

// warnEvery is how often a node tells of certificates that end soon.
const warnEvery = 24 * time.Hour

// warnOfCertificates tells what is wrong with the certificates now and once a day, until ctx ends.
func (n *node) warnOfCertificates(ctx context.Context, now func() time.Time) {
	log := n.log.Named("certificates")
	for {
		tellFaults(log, n.certificates.Load(), &n.cfg, now())
		if !sleep(ctx, warnEvery, nil) {
			return
		}
	}
}

func tellFaults(log hclog.Logger, c *certificates, cfg *Config, now time.Time) {
	warnings, fault := c.faults(cfg, now)
	if fault != nil {
		log.Error("clients or other nodes refuse the certificate", "error", fault)
	}
	for _, warning := range warnings {
		log.Warn(warning)
	}
}

// shownCertificate is the certificate for a new handshake.
func (n *node) shownCertificate() (*tls.Certificate, error) {
	if c := n.certificates.Load(); c.shown != nil {
		return c.shown, nil
	}
	return nil, errors.New("the node has no certificate")
}

// serverTLS is for clients. A handshake takes the certificate of its time, so a renewed one needs no restart.
func (n *node) serverTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return n.shownCertificate() }}
}

// certifyForDevelopment makes a certificate for the ports of a node that was given none.
func (n *node) certifyForDevelopment(ports []int) error {
	host, _ := os.Hostname()
	more := append([]string{host, n.cfg.NodeName, n.cfg.Advertise}, n.cfg.AllowedHosts...)
	for _, listen := range append(slices.Clone(n.cfg.TLSListen), n.cfg.OpsListen) {
		if host, _, err := net.SplitHostPort(listen); err == nil {
			more = append(more, host)
		}
	}
	slices.Sort(more)
	pair, err := devCertificate(n.cfg.DevCADir, ports, slices.Compact(more)...)
	if err != nil {
		return err
	}
	if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
		return err
	}
	now := *n.certificates.Load()
	now.shown = &pair
	n.certificates.Store(&now)
	return nil
}

// peerTLS authenticates nodes to each other by the CA of tls-ca. With require-node-uri the certificate of node must name
// it.
func (n *node) peerTLS(node fsm.NodeID) (*cluster.TLS, error) {
	c := n.certificates.Load()
	if err := c.forNode(&n.cfg, node); err != nil {
		return nil, err
	}
	return &cluster.TLS{CA: func() *x509.CertPool { return n.certificates.Load().authority }, RequireNodeURI: n.cfg.RequireNodeURI, Certificate: n.shownCertificate}, nil
}
