package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// Texts that clients or their tests look at, to the letter (RUL-13).
const (
	noService   = "No service is hosted at the specified address."
	noOperation = "Not Found. The Operation doesn't exist."
	conflict    = "Conflict. You're requesting an operation that isn't allowed in the " +
		"resource's current state."
	noForward      = "The auto forwarding destination entity does not exist."
	claimsForRead  = "Manage,EntityRead claims required for this operation."
	claimsForWrite = "Authorization failed for specified action: Manage,EntityWrite."
	claimsToDelete = "Authorization failed for specified action: Manage,EntityDelete."
)

const (
	// existsSubCode tells the one conflict of a name from that of two changes at a time.
	existsSubCode = 40900
	// quotaSubCode tells a full namespace from what is forbidden for good.
	quotaSubCode = 40300
)

// problem is an error answer. cause is for the log only.
type problem struct {
	status  int
	subCode int // 0: the text has no lead-in
	text    string
	exists  bool // a name is taken, where the text of the conflict has no sub-code
	cause   error
}

// Error returns the client's text and the cause.
func (p *problem) Error() string {
	if p.cause != nil {
		return p.text + ": " + p.cause.Error()
	}
	return p.text
}

// Unwrap returns the cause.
func (p *problem) Unwrap() error { return p.cause }

func badRequest(format string, args ...any) *problem {
	return &problem{
		status: http.StatusBadRequest, subCode: 40000, text: fmt.Sprintf(format, args...),
	}
}

// badProperty is a refused value of one property. The tail is the service's form.
func badProperty(name, actual, format string, args ...any) *problem {
	return badRequest("%s\r\nParameter name: %s\r\nActual value was %s.",
		fmt.Sprintf(format, args...), name, clip(actual))
}

func busy(text string) *problem {
	return &problem{status: http.StatusServiceUnavailable, subCode: 50004,
		text: "The server is busy, retry the operation: " + text + "."}
}

// exhausted is the answer beyond a quota (S-229).
func exhausted(why string) *problem {
	return &problem{status: http.StatusForbidden, subCode: quotaSubCode,
		text: "Forbidden. The quota of the namespace is exhausted: " + why + "."}
}

// clip shortens a client's text for an error message.
func clip(text string) string {
	const most = 100
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// asProblem finds the answer to an error of any room.
func asProblem(err error) *problem {
	var p *problem
	var refused *fsm.RefusedError
	var tooBig *http.MaxBytesError
	var version *fsm.VersionError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &refused):
		return ofRefusal(refused)
	case errors.As(err, &tooBig):
		return &problem{status: http.StatusRequestEntityTooLarge,
			text: fmt.Sprintf("The body is larger than %d bytes.", tooBig.Limit)}
	case errors.Is(err, os.ErrDeadlineExceeded): // of the connection, not of the context
		return &problem{status: http.StatusRequestTimeout, cause: err,
			text: "The request did not arrive in time."}
	case errors.Is(err, fsm.ErrNoEntity):
		return &problem{status: http.StatusNotFound, text: noService, cause: err}
	case errors.Is(err, fsm.ErrUnknown):
		return &problem{status: http.StatusServiceUnavailable, subCode: 50004, cause: err,
			text: "The server is busy, the operation may or may not have been done."}
	case errors.As(err, &version):
		p := busy(ofVersion(version))
		p.cause = err
		return p
	case errors.Is(err, fsm.ErrBusy), errors.Is(err, fsm.ErrNotLeader),
		errors.Is(err, fsm.ErrUnavailable), errors.Is(err, fsm.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		p := busy("the cluster did not answer in time")
		p.cause = err
		return p
	}
	return &problem{status: http.StatusInternalServerError, subCode: 50000, cause: err,
		text: "The server was unable to process the request."}
}

// ofVersion says what an operator does while the cluster is too old for a request. A new cluster needs nothing but time.
func ofVersion(e *fsm.VersionError) string {
	if e.Has == fsm.VersionFirst {
		return "the cluster is new, and has no version before every node has told its program"
	}
	return e.Error()
}

// ofRefusal is a refusal by the catalog. Its detail is written for clients.
func ofRefusal(r *fsm.RefusedError) *problem {
	switch r.Refusal {
	case fsm.EntityExists:
		return &problem{status: http.StatusConflict, subCode: existsSubCode, text: conflict, cause: r}
	case fsm.EntityNotFound:
		return &problem{status: http.StatusNotFound, subCode: 40400, text: noOperation, cause: r}
	case fsm.QuotaExceeded:
		p := exhausted(r.Detail)
		p.cause = r
		return p
	case fsm.Unauthorized: // of a change that only an operator may make or allow (S-256)
		return &problem{status: http.StatusUnauthorized, subCode: 40100,
			text: "Unauthorized: " + r.Detail + ".", cause: r}
	case fsm.InvalidArgument:
		return &problem{status: http.StatusBadRequest, subCode: 40000,
			text: "Bad Request. " + r.Detail + ".", cause: r}
	case fsm.InvalidOperation: // what .NET and JavaScript tell as an invalid operation
		return &problem{status: http.StatusForbidden, subCode: 40301,
			text: "Forbidden. The operation is not allowed: " + r.Detail + ".", cause: r}
	case fsm.Busy, fsm.NotLeader, fsm.NodeExpired:
		p := busy("the cluster is not ready")
		p.cause = r
		return p
	case fsm.Stale:
		return &problem{status: http.StatusConflict, subCode: 40901,
			text: "Another conflicting operation is in progress.", cause: r}
	}
	return &problem{status: http.StatusInternalServerError, subCode: 50000, cause: r,
		text: "The server was unable to process the request."}
}

// note gives a refusal its id and writes it to the log (S-1). path is the entity's.
func note(log *refusal.Log, p *problem, r *http.Request, path string) refusal.Mark {
	details := []any{"status", p.status, "method", r.Method, "remote", r.RemoteAddr}
	if p.cause != nil {
		details = append(details, "cause", p.cause)
	}
	mark := log.Note(p.code(), path, p.text, details...)
	audit.Of(r.Context()).Refused(mark.Code.String(), mark.ID)
	return mark
}

// code is the row of S-2.
func (p *problem) code() refusal.Code {
	switch p.status {
	case http.StatusUnauthorized:
		return refusal.Unauthorized
	case http.StatusNotFound:
		return refusal.EntityNotFound
	case http.StatusConflict:
		if p.subCode == existsSubCode || p.exists {
			return refusal.EntityExists
		}
		return refusal.ServiceBusy // two changes at a time
	case http.StatusForbidden:
		if p.subCode == quotaSubCode {
			return refusal.QuotaExceeded
		}
		return refusal.InvalidOperation
	case http.StatusServiceUnavailable:
		if errors.Is(p.cause, fsm.ErrUnknown) {
			return refusal.ServiceTimeout
		}
		return refusal.ServiceBusy
	case http.StatusInternalServerError:
		return refusal.GeneralError
	case http.StatusMisdirectedRequest:
		return refusal.CommunicationProblem // another node can
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return refusal.InvalidOperation
	}
	return refusal.InvalidArgument
}

// renderError writes the body that every SDK reads: Code is the status, Detail the message.
func renderError(p *problem, mark refusal.Mark, host string) []byte {
	var text strings.Builder
	if p.subCode != 0 {
		fmt.Fprintf(&text, "SubCode=%d. ", p.subCode)
	}
	text.WriteString(p.text)
	if !strings.HasSuffix(p.text, ".") {
		text.WriteByte('.')
	}
	text.WriteString(" To know more visit https://aka.ms/sbResourceMgrExceptions. .")
	text.WriteString(mark.Tail(host))
	var out bytes.Buffer
	fmt.Fprintf(&out, "<Error><Code>%d</Code><Detail>", p.status)
	escape(&out, text.String())
	out.WriteString("</Detail></Error>")
	return out.Bytes()
}

func writeJSON(w http.ResponseWriter, r *http.Request, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil { // the values are structs of strings and numbers
		status, body = http.StatusInternalServerError, []byte(`{"error":"internal"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}
