package acted

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestServicesFollowReadiness(t *testing.T) {
	set := render(t, "")
	labels := set.Stateful.Spec.Template.Labels
	up := func(name, ip string) place { return place{name: name, ip: ip, ready: true, labels: labels} }
	ends := place{name: "busbar-0", ip: "10.244.0.1", ready: true, terminating: true, labels: labels}
	unready := place{name: "busbar-1", ip: "10.244.0.2", labels: labels}
	foreign := place{name: "other-0", ip: "10.244.0.9", ready: true}
	cases := []struct {
		name    string
		places  []place
		clients string // endpoints of the Service busbar
		peers   string // of busbar-peers
	}{
		{"ready pods take clients", []place{up("busbar-0", "10.244.0.1"), up("busbar-1", "10.244.0.2")},
			"10.244.0.1 10.244.0.2", "10.244.0.1 10.244.0.2"},
		{"a pod that is not ready is a peer only", []place{up("busbar-0", "10.244.0.1"), unready}, "10.244.0.1", "10.244.0.1 10.244.0.2"},
		{"a pod that ends takes no clients", []place{ends, up("busbar-1", "10.244.0.2")}, "10.244.0.2", "10.244.0.1 10.244.0.2"},
		{"a pod that ends takes them if it is the last", []place{ends, unready}, "10.244.0.1", "10.244.0.1 10.244.0.2"},
		{"pods of others do not", []place{foreign}, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := viewOf(time.Now(), set, map[string]string{"busbar": "10.96.1.1"}, c.places)
			clients, peers := strings.Join(v.endpoints["busbar"], " "), strings.Join(v.endpoints["busbar-peers"], " ")
			if clients != c.clients || peers != c.peers {
				t.Errorf("clients go to %q, want %q; peers are %q, want %q", clients, c.clients, peers, c.peers)
			}
		})
	}
}

func TestNames(t *testing.T) {
	set := render(t, "")
	v := viewOf(time.Now(), set, map[string]string{"busbar": "10.96.1.1"},
		[]place{{name: "busbar-1", ip: "10.244.0.2", labels: set.Stateful.Spec.Template.Labels}})
	cases := []struct {
		name  string
		kind  uint16
		rcode int
		want  string
	}{
		{"busbar.busbar.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, "10.96.1.1"},
		{"BUSBAR-1.busbar-peers.busbar.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, "10.244.0.2"},
		{"busbar-1.busbar-peers.busbar.svc.cluster.local.", dns.TypeAAAA, dns.RcodeSuccess, ""},
		{"busbar-peers.busbar.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, "10.244.0.2"},
		{"busbar-2.busbar-peers.busbar.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, ""},
		{"busbar-1.busbar.busbar.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, ""},
		{"example.net.", dns.TypeA, dns.RcodeNameError, ""},
	}
	for _, c := range cases {
		asked := new(dns.Msg)
		asked.SetQuestion(c.name, c.kind)
		m := answer(asked, v.lookup)
		var got []string
		for _, rr := range m.Answer {
			got = append(got, rr.(*dns.A).A.String())
		}
		if m.Rcode != c.rcode || strings.Join(got, " ") != c.want {
			t.Errorf("%s %s: code %d, %q; want %d, %q", dns.TypeToString[c.kind], c.name, m.Rcode, got, c.rcode, c.want)
		}
	}
}

// What follows the pods late sees the newest view that is old enough.
func TestLag(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var h history
	for i, ip := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		h.add(view{at: began.Add(time.Duration(i) * time.Second), names: map[string][]string{"x.": {ip}}}, 5*time.Second)
	}
	for _, c := range []struct {
		now, lag time.Duration
		want     string
	}{
		{2 * time.Second, 0, "10.0.0.3"}, {2 * time.Second, time.Second, "10.0.0.2"}, {2500 * time.Millisecond, time.Second, "10.0.0.2"},
		{time.Minute, time.Second, "10.0.0.3"}, {time.Second, 2 * time.Second, ""},
	} {
		got, _ := h.at(began.Add(c.now), c.lag).lookup("x.")
		want := []net.IP(nil)
		if c.want != "" {
			want = []net.IP{net.ParseIP(c.want)}
		}
		if !slices.EqualFunc(got, want, net.IP.Equal) {
			t.Errorf("at %s with a lag of %s: %v, want %v", c.now, c.lag, got, want)
		}
	}
}
