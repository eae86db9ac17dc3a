package transport

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// This file and its http_ siblings are the data plane over HTTP (management-api.md section 6): what
// somebody with curl and a token can do.

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

func (s *Server) serveHTTPMessages(w http.ResponseWriter, r *http.Request, to httpTarget,
	right auth.Right, serve func(*httpRequest) error,
) {
	q := &httpRequest{httpTarget: to, w: w, r: r}
	if s.audit != nil {
		auditHTTP(r, &to, right)
	}
	control := http.NewResponseController(w) // a handler in a test has no connection
	// A refused request is answered at once, but net/http reads its body first.
	_ = control.SetReadDeadline(time.Now().Add(httpRefusedBody))
	err := s.admitHTTP(q, right)
	if err == nil {
		defer s.places.give(q.key)
		if err = s.turnsAway(w); err == nil { // with its place, so SendAway waits for it
			err = s.openHTTP(q)
		}
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), q.wait+httpMargin)
		defer cancel()
		q.waiting = s.waiting()
		stop := context.AfterFunc(q.waiting, cancel) // a server that closes, or sends its clients away, lets nobody wait
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
	if s.audit != nil {
		s.auditToken(q.r, strings.Join(tokens, ""), claim, err)
	}
	if err != nil {
		return &httpProblem{status: http.StatusUnauthorized, text: auth.TextOf(err), cause: err}
	}
	Known(q.r)
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
