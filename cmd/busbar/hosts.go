package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// hostGuard keeps web pages away from a node. A page can have its own name resolve to the address of a node that the
// browser reaches (DNS rebinding). It may then read the answers; and it can open a WebSocket to any address. It needs
// a name that its author owns: an address, a name without a dot and the names of private networks are none.
type hostGuard struct {
	names map[string]bool // of the node, in lower case
	// strict refuses every unknown name, otherwise those alone that come from a browser.
	strict bool
}

func newHostGuard(cfg Config) *hostGuard {
	g := &hostGuard{names: map[string]bool{}, strict: cfg.Dev}
	for _, name := range append([]string{cfg.NodeName, cfg.Advertise}, cfg.AllowedHosts...) {
		if name != "" {
			g.names[strings.ToLower(name)] = true
		}
	}
	return g
}

// privateSuffixes end names that nobody can point to an address of their choice. These are the names of private
// networks (RFC 6761, RFC 8375, ICANN's .internal, Kubernetes), and of the original's namespaces. A client that
// accepts no other names is given one of the latter in /etc/hosts.
var privateSuffixes = []string{".localhost", ".local", ".internal", ".svc", ".home.arpa",
	".servicebus.windows.net", ".servicebus.usgovcloudapi.net", ".servicebus.chinacloudapi.cn"}

// own reports whether text, a host with or without its port, cannot be a name of a stranger.
func (g *hostGuard) own(text string) bool {
	host := text
	if h, _, err := net.SplitHostPort(text); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") || g.names[host] {
		return true
	}
	for _, suffix := range privateSuffixes {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}

// check returns why a request is refused, or nil.
func (g *hostGuard) check(r *http.Request) error {
	origin := r.Header.Get("Origin")
	fromPage := origin != "" || r.Header.Get("Sec-Fetch-Site") != "" || strings.HasPrefix(r.UserAgent(), "Mozilla/")
	if !g.own(r.Host) && (g.strict || fromPage) {
		return fmt.Errorf("host %.100q is no name of this node; add it to allowed-hosts in the configuration if it is", r.Host)
	}
	if origin == "" || !g.strict {
		return nil
	}
	if u, err := url.Parse(origin); err != nil || u.Host == "" || !g.own(u.Host) {
		return fmt.Errorf("origin %.100q is a stranger; add its host to allowed-hosts in the configuration if it is not", origin)
	}
	return nil
}

// handler refuses the requests that check refuses.
func (g *hostGuard) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.check(r); err != nil {
			answerJSON(w, http.StatusForbidden, map[string]string{"error": err.Error()})
			return
		}
		next.ServeHTTP(w, r)
	})
}
