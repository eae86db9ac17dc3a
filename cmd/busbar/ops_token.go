package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/rest"
)

// opsGuard asks for a token where the operations port itself does not. It guards commands to the cluster, the audit,
// backups, connections, the reset of a development node and profiles. Health, metrics and the state of the cluster stay open, because
// probes and collectors have no token. Messages and entities have checks of their own, in transport and
// transport/rest.
type opsGuard struct {
	policies *auth.Policies
	now      func() time.Time
	// dev lets clients of the loopback interface in without a token: the key of such a node is public.
	dev bool
}

// guarded reports whether a path needs Manage on the namespace.
func guarded(path string) bool {
	switch path {
	case client.AuditPath, resetPath, reloadPath, client.ConnectionsPath, client.CloseConnectionsPath,
		client.EventsPath:
		return true
	case rest.UpgradePath: // a state
		return false
	}
	return isBackupPath(path) || strings.HasPrefix(path, rest.ClusterCommands) || strings.HasPrefix(path, profilesPath)
}

// handler answers 401 without a valid token, and 403 where the token has no Manage right on the namespace.
func (g *opsGuard) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guarded(r.URL.Path) {
			nameCommand(r)
			if status, err := g.check(r); err != nil {
				if status == http.StatusUnauthorized {
					w.Header().Set("WWW-Authenticate", "SharedAccessSignature")
				}
				answerJSON(w, status, map[string]string{"error": err.Error()})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// check returns the status and the reason of a refusal; the reason is nil if the request may go on.
func (g *opsGuard) check(r *http.Request) (status int, reason error) {
	tokens := r.Header.Values("Authorization")
	entry := audit.Of(r.Context())
	if len(tokens) == 0 && g.dev && fromLoopback(r) {
		entry.ByDevelopment()
		return 0, nil
	}
	if len(tokens) != 1 {
		return http.StatusUnauthorized, fmt.Errorf("%s needs one Authorization header, with a token that has the Manage "+
			"right on the namespace; the busbar command makes it from a connection string", r.URL.Path)
	}
	claim, err := g.policies.Verify(tokens[0], g.now())
	if err != nil {
		if entry != nil {
			entry.ByNobody(g.policies.Claimed(tokens[0]), auth.TextOf(err))
		}
		return http.StatusUnauthorized, fmt.Errorf("%s", auth.TextOf(err))
	}
	entry.By(claim)
	// The audience must be the whole namespace too: a token for one queue commands no cluster.
	if !claim.OnNamespace(auth.Manage) || claim.Audience != "" {
		return http.StatusForbidden, fmt.Errorf("%s needs a token that has the Manage right on the namespace", r.URL.Path)
	}
	return 0, nil
}

// fromLoopback reports whether the connection comes from this host and from no proxy before it.
func fromLoopback(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "" {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
