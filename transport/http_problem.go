package transport

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/waist"
)

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
	case fsm.MessageLockLost, fsm.SessionLockLost, fsm.MessageNotFound:
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
	s.auditRefusal(r, &to, p, &mark)
	text += mark.Tail(s.cfg.Namespace)
	body, _ := xml.Marshal(errorDocument{Code: p.status, Detail: text}) // it holds texts only
	h := w.Header()
	h.Set("Server", "Busbar")
	h.Set("Content-Type", "application/xml; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // the client may be gone: nobody is left to tell
}

// codeOf is the same for an answer over HTTP.
func (p *httpProblem) codeOf() refusal.Code {
	if p.refused != nil {
		return codeOfError(p.refused)
	}
	switch p.status {
	case http.StatusUnauthorized:
		return refusal.Unauthorized
	case http.StatusNotFound, http.StatusGone:
		return refusal.EntityNotFound
	case http.StatusServiceUnavailable:
		if p.unknown {
			return refusal.ServiceTimeout
		}
		return refusal.ServiceBusy
	case http.StatusInternalServerError:
		return refusal.GeneralError
	}
	return refusal.InvalidArgument
}
