package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
)

// stateMethods are those of the state of a session, of which the last two change it.
const stateMethods = http.MethodGet + ", " + http.MethodPut + " or " + http.MethodDelete

// views are the last segments of a path, with the methods that each takes and what answers.
func viewOf(name string) (methods string, run func(*inspection) (any, error)) {
	switch name {
	case "description":
		return http.MethodGet, (*inspection).description
	case "options":
		return http.MethodPatch, (*inspection).options
	case "locks":
		return http.MethodGet, (*inspection).locks
	case "history":
		return http.MethodGet, (*inspection).history
	case "sessions":
		return http.MethodGet, (*inspection).sessions
	case "messages":
		return http.MethodGet, (*inspection).messages
	case "purge":
		return http.MethodPost, (*inspection).purge
	case "redrive":
		return http.MethodPost, (*inspection).redrive
	case "move":
		return http.MethodPost, (*inspection).move
	case "suspend":
		return http.MethodPost, (*inspection).suspend
	case "resume":
		return http.MethodPost, (*inspection).resume
	case "release-locks":
		return http.MethodPost, (*inspection).releaseLocks
	case "release-session":
		return http.MethodPost, (*inspection).releaseSession
	case "delete":
		return http.MethodPost, (*inspection).deleteOne
	case "reasons":
		return http.MethodGet, (*inspection).reasons
	case "session-state":
		return stateMethods, (*inspection).sessionState
	case "test-rules":
		return http.MethodPost, (*inspection).testRules
	case "transactions":
		return http.MethodGet, (*inspection).transactions
	}
	return "", nil
}

const viewNames = "description, options, locks, history, sessions, messages, transactions, purge, redrive, move, suspend, resume, release-locks, release-session, delete, reasons, session-state or test-rules"

// ServeHTTP implements [http.Handler].
func (o *Operator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case o.slots <- struct{}{}:
		defer func() { <-o.slots }()
	default:
		o.fail(w, r, busy("too many requests of operators at a time"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), o.deps.RequestTimeout)
	defer cancel()
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	value, err := o.serve(ctx, r, w.Header())
	if err != nil {
		o.fail(w, r, err)
		return
	}
	writeJSON(w, r, http.StatusOK, value)
}

// serve checks a request in the order that tells a stranger least: token, entity, then the rest.
func (o *Operator) serve(ctx context.Context, r *http.Request, h http.Header) (any, error) {
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, OperatorPrefix), "/")
	at := strings.LastIndexByte(path, '/')
	methods, run := viewOf(path[at+1:])
	if at < 0 || run == nil {
		return nil, &problem{status: http.StatusNotFound, text: "The path must end in " + viewNames}
	}
	nameView(r, path[at+1:], path[:at])
	if err := o.origins.Check(r); err != nil {
		return nil, &problem{status: http.StatusForbidden, text: "The request comes from another site.", cause: err}
	}
	q := &inspection{o: o, ctx: ctx, http: r, path: path[:at]}
	if err := q.authorize(); err != nil {
		return nil, err
	}
	if !takes(methods, r.Method) {
		return nil, &problem{status: http.StatusMethodNotAllowed, text: path[at+1:] + " takes " + methods + "."}
	}
	var err error
	if q.values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return nil, badRequest("The query cannot be decoded: %v.", err)
	}
	name := q.path
	name, q.sub = cutSubQueue(name)
	if staleView(path[at+1:]) {
		if q.stale, err = q.staleness(); err != nil {
			return nil, err
		}
	}
	if q.d, err = q.entity(name); err != nil {
		if errors.Is(err, fsm.ErrNoEntity) {
			return nil, &problem{status: http.StatusNotFound, text: fmt.Sprintf("There is no entity %q.", clip(name))}
		}
		return nil, err
	}
	value, err := run(q)
	if err == nil && q.stale != nil {
		q.stale.tell(value, h)
	}
	return value, err
}

// takes reports whether a view takes a method: HEAD where GET alone looks.
func takes(methods, method string) bool {
	if methods == stateMethods {
		return method == http.MethodGet || method == http.MethodPut || method == http.MethodDelete
	}
	return method == methods || methods == http.MethodGet && method == http.MethodHead
}
