package transport

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/waist"
)

// This file and its http_ siblings are the data plane over HTTP (management-api.md section 6): what
// somebody with curl and a token can do.

const (
	// httpWait is how long a receive waits if the client does not say, httpMaxWait the most.
	httpWait    = time.Minute
	httpMaxWait = 10 * time.Minute
	// httpMargin is what a request may take besides its waiting: to arrive, and to be answered.
	httpMargin = 30 * time.Second
	// httpRefusedBody is how long the body of a refused request may take to arrive.
	httpRefusedBody = 5 * time.Second

	messagesNode = "messages"
	headNode     = "head"
)

// httpTarget is where a request of the data plane leads.
type httpTarget struct {
	addr  address
	head  bool          // the next message
	token fsm.LockToken // of a locked message, zero otherwise
}

// parseTarget finds out whether a path belongs to the data plane. An entity may be called like its
// nodes; the path of a locked message ends in a GUID, which sets it apart.
func parseTarget(path string) (httpTarget, bool) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	n := len(segments)
	is := func(i int, name string) bool { return i > 0 && i < n && strings.EqualFold(segments[i], name) }
	entity := func(i int) address { return parseAddress(strings.Join(segments[:i], "/")) }
	switch {
	case is(n-1, messagesNode):
		return httpTarget{addr: entity(n - 1)}, true
	case is(n-2, messagesNode) && is(n-1, headNode):
		return httpTarget{addr: entity(n - 2), head: true}, true
	case is(n-3, messagesNode):
		id, err := uuid.Parse(segments[n-1])
		if err != nil || len(segments[n-1]) != len(id.String()) || id == (uuid.UUID{}) {
			return httpTarget{}, false
		}
		return httpTarget{addr: entity(n - 3), token: fsm.LockToken(id)}, true
	}
	return httpTarget{}, false
}

// Messages serves the requests that send and receive, and leaves the others to next.
func (s *Server) Messages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, ours := parseTarget(r.URL.Path)
		if !ours || to.addr.entity == "" || to.addr.management || to.addr.cbs {
			next.ServeHTTP(w, r)
			return
		}
		var right auth.Right
		var serve func(*httpRequest) error
		switch {
		case !to.head && to.token.IsZero() && r.Method == http.MethodPost:
			right, serve = auth.Send, s.httpSend
		case to.head && (r.Method == http.MethodPost || r.Method == http.MethodDelete):
			right, serve = auth.Listen, s.httpReceive
		case to.token.IsZero():
			next.ServeHTTP(w, r) // the management API says what it thinks of it
			return
		case r.Method == http.MethodDelete, r.Method == http.MethodPut, r.Method == http.MethodPost:
			right, serve = auth.Listen, s.httpSettle
		default:
			next.ServeHTTP(w, r)
			return
		}
		s.serveHTTPMessages(w, r, to, right, serve)
	})
}

// httpRequest is one request of the data plane on its way.
type httpRequest struct {
	httpTarget
	ctx   context.Context // ends with the client, the time of the request, or the server
	w     http.ResponseWriter
	r     *http.Request
	desc  *fsm.Descriptor
	wait  time.Duration
	until time.Time // when the socket is given up at the latest
	key   string    // of the client, for its rate
}

func (s *Server) serveHTTPMessages(w http.ResponseWriter, r *http.Request, to httpTarget,
	right auth.Right, serve func(*httpRequest) error,
) {
	q := &httpRequest{httpTarget: to, w: w, r: r}
	control := http.NewResponseController(w) // a handler in a test has no connection
	// A refused request is answered at once, but net/http reads its body first.
	_ = control.SetReadDeadline(time.Now().Add(httpRefusedBody))
	err := s.admitHTTP(q, right)
	if err == nil {
		defer s.places.give(q.key)
		err = s.openHTTP(q)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), q.wait+httpMargin)
		defer cancel()
		stop := context.AfterFunc(s.waits, cancel) // a server that closes lets nobody wait
		defer stop()
		q.ctx = ctx
		// While a handler works net/http reads on, to notice that the client leaves: a deadline that ends this read
		// ends the request too.
		q.until = time.Now().Add(q.wait + 2*httpMargin)
		arrives := q.until
		if r.Body != http.NoBody { // net/http reads what the handler leaves of it before it answers
			arrives = time.Now().Add(httpMargin)
		}
		_ = control.SetReadDeadline(arrives)
		_ = control.SetWriteDeadline(q.until)
		err = serve(q)
	}
	if err != nil {
		s.failHTTP(w, r, to, err)
	}
}

// admitHTTP checks the token and takes a place, which is the caller's to give back unless there is an error.
func (s *Server) admitHTTP(q *httpRequest, right auth.Right) error {
	tokens := q.r.Header.Values("Authorization")
	if len(tokens) > 1 {
		return badHTTP("The header Authorization is given more than once.")
	}
	claim, err := s.policies.Verify(strings.Join(tokens, ""), time.Now())
	if err != nil {
		return &httpProblem{status: http.StatusUnauthorized, text: auth.TextOf(err), cause: err}
	}
	known(q.r)
	q.key = keyOf(claim)
	path := q.addr.path()
	if !claim.Allows(path, right) {
		return &httpProblem{status: http.StatusUnauthorized, subCode: 40100,
			text: unauthorizedText(path, right)}
	}
	if held, taken, ok := s.places.take(q.key); !ok {
		s.stats.reject(siteHTTP)
		return &httpProblem{status: http.StatusServiceUnavailable, subCode: 50004, text: fmt.Sprintf("The server is busy, retry "+
			"the operation: %d requests that send or receive over HTTP are under way of the %d that this node serves at a time, "+
			"and the key '%s' has %d of them. A key may have as many as are free.", taken, s.places.all, q.key, held)}
	}
	return nil
}

// openHTTP looks at the timeout and finds the entity, in the order that tells a client least.
func (s *Server) openHTTP(q *httpRequest) error {
	q.wait = httpWait
	if text := q.r.URL.Query().Get("timeout"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds >= 0) {
			return badHTTP("The value '%s' of timeout is no number of seconds.", refusal.Clip(text))
		}
		q.wait = time.Duration(min(seconds, httpMaxWait.Seconds()) * float64(time.Second))
	}
	ctx, cancel := context.WithTimeout(q.r.Context(), httpMargin)
	defer cancel()
	var err error
	if q.desc, err = s.catalog.Entity(ctx, q.addr.entity); err != nil {
		return s.httpError(err, q.addr.path())
	}
	return nil
}

// httpProblem is an answer that is no success. cause is for the log.
type httpProblem struct {
	status  int
	subCode int // 0: the text has no lead-in
	text    string
	cause   error
	unknown bool        // it may have been done all the same
	refused *amqp.Error // what AMQP would say, nil if there is no such thing
}

// Error returns the client's text and the cause.
func (p *httpProblem) Error() string {
	if p.cause != nil {
		return p.text + ": " + p.cause.Error()
	}
	return p.text
}

func badHTTP(format string, args ...any) error {
	return &httpProblem{status: http.StatusBadRequest, subCode: 40000, text: fmt.Sprintf(format, args...)}
}

// httpRefusal is the answer to what the state machine refused.
func (s *Server) httpRefusal(why fsm.Refusal, detail, path string) error {
	e := s.refusal(why, detail, path)
	p := &httpProblem{status: http.StatusInternalServerError, text: e.Description, refused: e}
	switch why {
	case fsm.MessageLockLost, fsm.MessageNotFound:
		p.status = http.StatusNotFound
	case fsm.EntityNotFound:
		p.status = http.StatusGone
	case fsm.Unauthorized:
		p.status = http.StatusUnauthorized
	case fsm.QuotaExceeded, fsm.MessageSizeExceeded, fsm.EntityDisabled:
		p.status = http.StatusForbidden
	case fsm.SessionRequired, fsm.SessionNotSupported, fsm.InvalidOperation, fsm.InvalidArgument:
		p.status, p.subCode = http.StatusBadRequest, 40000
	case fsm.Busy, fsm.Stale, fsm.NotLeader, fsm.NodeExpired:
		p.status, p.subCode = http.StatusServiceUnavailable, 50004
	}
	return p
}

// httpError is the answer to an attempt that failed.
func (s *Server) httpError(err error, path string) error {
	if waist.IsGone(err) {
		return s.httpRefusal(fsm.EntityNotFound, "", path)
	}
	p := &httpProblem{status: http.StatusServiceUnavailable, subCode: 50004, cause: err, unknown: true,
		text: "The server is busy, the operation may or may not have been done."}
	switch {
	case errors.Is(err, fsm.ErrBusy), errors.Is(err, fsm.ErrUnavailable), errors.Is(err, fsm.ErrNotLeader):
		p.text, p.unknown = "The server is busy, retry the operation.", false
	case errors.Is(err, fsm.ErrUnknown), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled), errors.Is(err, fsm.ErrClosed):
	default:
		p.status, p.subCode = http.StatusInternalServerError, 50000
		p.text = "The server was unable to process the request."
	}
	return p
}

// errorDocument is the body of every answer that is no success, the same as the management API's.
type errorDocument struct {
	XMLName xml.Name `xml:"Error"`
	Code    int
	Detail  string
}

func (s *Server) failHTTP(w http.ResponseWriter, r *http.Request, to httpTarget, err error) {
	p := &httpProblem{status: http.StatusInternalServerError, subCode: 50000, cause: err,
		text: "The server was unable to process the request."}
	errors.As(err, &p)
	switch {
	case p.status == http.StatusUnauthorized:
		s.stats.reject(siteUnauthorized)
		w.Header().Set("WWW-Authenticate", `SharedAccessSignature realm="namespace"`)
	case p.status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	text := p.text
	if p.subCode != 0 {
		text = fmt.Sprintf("SubCode=%d. %s", p.subCode, text)
	}
	details := []any{"status", p.status, "method", r.Method, "remote", r.RemoteAddr}
	if p.cause != nil {
		details = append(details, "cause", p.cause)
	}
	mark := s.refusals.Note(p.codeOf(), to.addr.path(), text, details...)
	text += mark.Tail(s.cfg.Namespace)
	body, _ := xml.Marshal(errorDocument{Code: p.status, Detail: text}) // it holds texts only
	h := w.Header()
	h.Set("Server", "Busbar")
	h.Set("Content-Type", "application/xml; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // the client may be gone: nobody is left to tell
}
