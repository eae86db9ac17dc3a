package console

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/busbar-mq/busbar/transport/audit"
)

// carried are the headers of a page's request that go on. All others end here: the data plane would take them for
// properties of a message.
var carried = []string{"Accept", "Content-Type", "Content-Length", "If-Match", "Brokerproperties"}

// open lists what a session may ask of the operations port below /api. Backups, audits and resets are for the command
// line.
var open = []string{"/api/entities", "/api/cluster", "/api/health", "/api/rules", "/api/connections"}

// may reports whether a path goes on: what pages need, and entities.
func may(where string) bool {
	if path.Clean(where) != where {
		return false
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(where, "/"), "/")
	switch strings.ToLower(first) {
	case "api":
		return slices.ContainsFunc(open, func(p string) bool { return where == p || strings.HasPrefix(where, p+"/") })
	case "debug", "metrics", "health", "livez", "readyz", "":
		return false
	}
	return !strings.HasPrefix(first, "$") || strings.EqualFold(first, "$Resources")
}

// forward hands a request on to the operations port, with the token of the session in the place of its cookie.
func (c *Console) forward(w http.ResponseWriter, r *http.Request) {
	one, _, _ := c.session(r, true)
	if one == nil {
		signedOut(w)
		return
	}
	where := strings.TrimPrefix(r.URL.Path, portPrefix)
	if !may(where) {
		refuse(w, http.StatusNotFound, "The console does not go there.")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	c.deps.Port.ServeHTTP(w, inner(r, where, one.bearer.Load().token))
}

// inner is a request of the console to the operations port.
func inner(r *http.Request, where, token string) *http.Request {
	in := r.Clone(audit.ByConsole(r.Context()))
	in.URL = &url.URL{Path: where, RawQuery: r.URL.RawQuery}
	in.RequestURI = in.URL.RequestURI()
	in.Header = http.Header{}
	for _, name := range carried {
		if values := r.Header[name]; len(values) > 0 {
			in.Header[name] = values
		}
	}
	in.Header.Set("Authorization", token)
	return in
}
