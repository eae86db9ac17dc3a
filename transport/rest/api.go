package rest

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// NewServer returns an http.Server for a handler of this package, with limits against clients that
// send slowly or much. The caller serves a listener on it and closes it. log gets what net/http has
// to say about connections.
func NewServer(h http.Handler, log hclog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ErrorLog:          log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}

// Management returns the handler of the management API: every path is its own.
func (a *API) Management() http.Handler { return http.HandlerFunc(a.serveManagement) }

// Inside is [API.Management] for requests of the node itself: what it is refused is neither counted nor logged.
func (a *API) Inside() http.Handler {
	own := *a
	own.quiet = true
	return own.Management()
}

func (a *API) serveManagement(w http.ResponseWriter, r *http.Request) {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	default:
		a.fail(w, r, busy("too many management requests at a time"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.RequestTimeout)
	defer cancel()
	// A client that sends its body or takes its answer byte by byte must not keep the slot. The
	// deadlines of the connection are this handler's own business, as it does not know its server;
	// one that has none (in tests) goes without.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(a.cfg.RequestTimeout))
	_ = control.SetWriteDeadline(time.Now().Add(2 * a.cfg.RequestTimeout))
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	got, err := a.manage(ctx, r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Server", "Busbar")
	if got.contentType != "" {
		h.Set("Content-Type", got.contentType)
	}
	if got.etag != "" {
		h.Set("ETag", got.etag)
	}
	h.Set("Content-Length", strconv.Itoa(len(got.body)))
	w.WriteHeader(got.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(got.body) // the client may be gone: nobody is left to tell
	}
}

// manage checks a request in the order that tells a stranger least: shape, token, then the rest.
func (a *API) manage(ctx context.Context, r *http.Request) (*answer, error) {
	host, err := hostOf(r)
	if err != nil {
		return nil, err
	}
	q := &request{
		ctx: ctx, http: r, host: host, query: parseQuery(r), where: parseRoute(r.URL.Path),
	}
	q.name()
	if q.where.kind == routeRoot && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		// The public may see nothing of a namespace, under the title that says so.
		return a.emptyFeed(), nil
	}
	if q.claim, err = a.authenticate(r); err != nil {
		return nil, err
	}
	if q.updates, err = hasIfMatch(r); err != nil {
		return nil, err
	}
	return a.dispatch(q)
}

func (a *API) dispatch(q *request) (*answer, error) {
	if q.http.Method == http.MethodPost && q.query.validate {
		return a.validate(q)
	}
	switch q.where.kind {
	case routeEntity:
		switch q.http.Method {
		case http.MethodGet, http.MethodHead:
			return a.getEntity(q)
		case http.MethodPut:
			return a.putEntity(q)
		case http.MethodDelete:
			return a.deleteEntity(q)
		}
	case routeQueues, routeTopics:
		if isRead(q.http) {
			return a.listEntities(q)
		}
	case routeNamespace:
		if isRead(q.http) {
			return a.namespaceInfo(q)
		}
	case routeSubscriptions, routeRules:
		switch q.http.Method {
		case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete:
			return a.below(q)
		}
	case routeUnknown:
		return nil, &problem{status: http.StatusNotFound, text: noService}
	}
	return nil, &problem{status: http.StatusMethodNotAllowed,
		text: "The method is not allowed for this resource."}
}

func isRead(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}

func (a *API) authenticate(r *http.Request) (auth.Claim, error) {
	token, err := one(r, "Authorization")
	if err != nil {
		return auth.Claim{}, err
	}
	claim, err := verify(a.deps.Policies, r, token, a.deps.Now())
	if err != nil {
		return auth.Claim{}, err
	}
	if a.deps.Accepted != nil {
		a.deps.Accepted(r)
	}
	return claim, nil
}

// verify checks a token, and notes whose it is.
func verify(policies *auth.Policies, r *http.Request, token string, now time.Time) (auth.Claim, error) {
	claim, err := policies.Verify(token, now)
	if entry := audit.Of(r.Context()); entry != nil {
		if err != nil {
			entry.ByNobody(policies.Claimed(token), auth.TextOf(err))
		} else {
			entry.By(claim)
		}
	}
	if err != nil {
		return claim, unauthorized(err)
	}
	return claim, nil
}

func unauthorized(err error) error {
	return &problem{status: http.StatusUnauthorized, text: auth.TextOf(err), cause: err}
}

// one returns the value of a header that must not be doubled: a proxy and this server could
// otherwise disagree on which of them counts.
func one(r *http.Request, name string) (string, error) {
	values := r.Header.Values(name)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", badRequest("The header %s is given more than once.", name)
}

// hasIfMatch tells an update from a creation. Clients send an asterisk only. There is no other version of an entity
// than the present one, so a real entity tag is refused and not ignored.
func hasIfMatch(r *http.Request) (bool, error) {
	value, err := one(r, "If-Match")
	if err != nil {
		return false, err
	}
	switch strings.TrimSpace(value) {
	case "":
		return false, nil
	case "*":
		return true, nil
	}
	return false, &problem{status: http.StatusPreconditionFailed,
		text: "If-Match takes no entity tag, only an asterisk."}
}

// hostOf returns the Host header, which answers quote in their ids.
func hostOf(r *http.Request) (string, error) {
	if r.Host == "" { // HTTP/1.0
		return "localhost", nil
	}
	for _, c := range r.Host {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.ContainsRune("-._:[]", c):
		default:
			return "", badRequest("The Host header holds characters that no host has.")
		}
	}
	if len(r.Host) > 255+6 { // a DNS name and a port
		return "", badRequest("The Host header is too long.")
	}
	return r.Host, nil
}

// fail writes an error, and to the log what the client is not told.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := asProblem(err)
	mark := refusal.Mark{Code: p.code(), At: a.deps.Now().UTC()}
	if !a.quiet {
		mark = note(a.deps.Refusals, p, r, strings.Trim(r.URL.Path, "/"))
	}
	h := w.Header()
	h.Set("Server", "Busbar")
	h.Set("Content-Type", errorType)
	switch p.status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `SharedAccessSignature realm="namespace"`)
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	host, hostErr := hostOf(r)
	if hostErr != nil {
		host = "localhost"
	}
	body := renderError(p, mark, host)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}
