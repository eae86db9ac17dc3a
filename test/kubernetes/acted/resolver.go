package acted

import (
	"fmt"
	"net"

	"github.com/miekg/dns"
)

// answerTTL is what CoreDNS says of the names of a cluster.
const answerTTL = 30

// resolver is the DNS of the cluster. It knows the names of the cluster and refuses to know others.
type resolver struct{ packets, streams *dns.Server }

// newResolver serves at an address. lookup is asked for each question, with the full name.
func newResolver(address string, lookup func(name string) ([]net.IP, bool)) (*resolver, error) {
	pc, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		_ = pc.Close()
		return nil, err
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, asked *dns.Msg) { _ = w.WriteMsg(answer(asked, lookup)) })
	r := &resolver{packets: &dns.Server{PacketConn: pc, Handler: handler}, streams: &dns.Server{Listener: l, Handler: handler}}
	for _, server := range []*dns.Server{r.packets, r.streams} {
		up := make(chan struct{})
		server.NotifyStartedFunc = func() { close(up) }
		failed := make(chan error, 1)
		go func() { failed <- server.ActivateAndServe() }()
		select {
		case <-up:
		case err := <-failed:
			return nil, fmt.Errorf("serve DNS at %s: %w", address, err)
		}
	}
	return r, nil
}

// close ends the resolver.
func (r *resolver) close() {
	_ = r.packets.Shutdown()
	_ = r.streams.Shutdown()
}

// answer makes the answer to a message. A name that exists and has no address of the kind gets an empty answer.
func answer(asked *dns.Msg, lookup func(name string) ([]net.IP, bool)) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(asked)
	m.Authoritative = true
	if len(asked.Question) != 1 {
		m.Rcode = dns.RcodeFormatError
		return m
	}
	q := asked.Question[0]
	ips, ok := lookup(q.Name)
	if !ok {
		m.Rcode = dns.RcodeNameError
		return m
	}
	if q.Qtype == dns.TypeA {
		for _, ip := range ips {
			m.Answer = append(m.Answer, &dns.A{A: ip,
				Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: answerTTL}})
		}
	}
	return m
}
