package audit

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"github.com/busbar-mq/busbar/transport/refusal"
)

// shownParameters are parameters of requests that hold no secret. Others are left out.
var shownParameters = []string{"as", "before", "client", "cursor", "dry-run", "ended", "entity", "filter", "from", "holder", "id", "kind",
	"max", "node", "number", "partition", "reason", "seconds", "session", "stale", "state", "status", "timeout", "to", "until",
	"updatedAfter"}

// unnamed is the action of a request that may change something and that no handler has named; access is that of a refused
// one that would change nothing.
const (
	unnamed = "request"
	access  = "access"
)

// Requests has an event for each request that changes something, and for each that the handler has named by [Entry.Do].
// Requests that were refused for the want of a right have events, too. A nil log leaves the handler as it is.
func (l *Log) Requests(via string, next http.Handler) http.Handler {
	if l == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &Entry{event: Event{Who: Who{Kind: byNobody}, Via: via, Remote: r.RemoteAddr, Agent: r.UserAgent(), Method: r.Method,
			Path: r.URL.Path}}
		if console, _ := r.Context().Value(consoleKey{}).(bool); console {
			e.event.Via = ViaConsole
		}
		seen, ended := NewStatusWriter(w), false
		defer func() {
			e.event.Status = seen.Status
			if !ended {
				e.event.Outcome = Aborted
			}
			l.finish(e, r)
		}()
		next.ServeHTTP(seen, r.WithContext(context.WithValue(r.Context(), entryKey{}, e)))
		ended = true
	})
}

// finish records what became of a request, if that is to be recorded.
func (l *Log) finish(e *Entry, r *http.Request) {
	of := &e.event
	denied := of.Status == http.StatusUnauthorized || of.Status == http.StatusForbidden
	if e.ignored && !denied {
		return
	}
	if of.Action == "" {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions:
			of.Action = unnamed
		case denied:
			of.Action = access
		default:
			return
		}
	}
	if of.Outcome == "" {
		of.Outcome = outcomeOf(of.Status)
	}
	values := r.URL.Query()
	for _, name := range shownParameters {
		if value := values[name]; len(value) > 0 {
			if of.Parameters == nil {
				of.Parameters = map[string]string{}
			}
			of.Parameters[name] = value[0]
		}
	}
	l.Record(*of)
}

// outcomeOf is the outcome of a request whose handler gave no code.
func outcomeOf(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return refusal.Unauthorized.String()
	case http.StatusNotFound, http.StatusGone:
		return refusal.EntityNotFound.String()
	case http.StatusMethodNotAllowed, http.StatusConflict, http.StatusNotImplemented:
		return refusal.InvalidOperation.String()
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return refusal.ServiceBusy.String()
	}
	switch {
	case status >= http.StatusInternalServerError:
		return refusal.GeneralError.String()
	case status >= http.StatusBadRequest:
		return refusal.InvalidArgument.String()
	}
	return OK
}

// StatusWriter remembers the status of an answer. Streams and controllers find the writer below it by Unwrap.
type StatusWriter struct {
	http.ResponseWriter
	Status int // 200 until a handler says another one
	told   bool
}

// NewStatusWriter returns a writer to w.
func NewStatusWriter(w http.ResponseWriter) *StatusWriter {
	return &StatusWriter{ResponseWriter: w, Status: http.StatusOK}
}

// WriteHeader implements [http.ResponseWriter].
func (w *StatusWriter) WriteHeader(status int) {
	if !w.told && status >= http.StatusOK {
		w.Status, w.told = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *StatusWriter) Write(b []byte) (int, error) {
	w.told = true
	return w.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (w *StatusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements [http.Flusher].
func (w *StatusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack implements [http.Hijacker].
func (w *StatusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
