package main

import (
	"net"
	"net/netip"
)

// addressSetting is a setting of addresses, HOST:PORT.
type addressSetting struct {
	name string
	is   []string
}

func (c *Config) addresses() []addressSetting {
	return []addressSetting{
		{"amqp-listen", c.AMQPListen}, {"tls-listen", c.TLSListen}, {"join", c.Join},
		{"ops-listen", []string{c.OpsListen}}, {"peer-listen", []string{c.PeerListen}}, {"gossip-listen", []string{c.GossipListen}},
	}
}

// validateAddresses looks at the addresses to listen on and to join, and at the files of TLS.
func (c *Config) validateAddresses(bad func(string, ...any)) {
	for _, set := range c.addresses() {
		for _, addr := range set.is {
			if _, _, err := net.SplitHostPort(addr); err != nil {
				bad("%s %q: want HOST:PORT", set.name, addr)
			}
		}
	}
	if len(c.AMQPListen)+len(c.TLSListen) == 0 {
		bad("neither amqp-listen nor tls-listen is set: nobody could connect")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad("tls-cert and tls-key belong together")
	}
	if len(c.TLSListen) > 0 && c.TLSCert == "" && !c.Dev {
		bad("tls-listen needs tls-cert and tls-key (only --dev makes its own)")
	}
	if c.OpsTLS && c.TLSCert == "" && !c.Dev {
		bad("ops-tls needs tls-cert and tls-key (only --dev makes its own)")
	}
	if c.TLSCA != "" && c.TLSCert == "" {
		bad("tls-ca needs tls-cert and tls-key")
	}
	if c.RequireNodeURI && c.TLSCA == "" {
		bad("require-node-uri needs tls-ca: without it nodes show no certificates")
	}
	if c.TLSCA != "" && !c.encryptsGossip() && !onLoopback(c.GossipListen) {
		bad("gossip-key is not set: nodes trust each other by certificates, and gossip on %s would be open to everybody. "+
			"Set BUSBAR_GOSSIP_KEY to the same 32 bytes in base64 on every node (openssl rand -base64 32)", c.GossipListen)
	}
}

// onLoopback reports whether an address to listen on is one of loopback.
func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && loopbackHost(host)
}

// loopbackHost reports whether a host, which has no port, is one of loopback.
func loopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
