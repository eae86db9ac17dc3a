package transport

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/refusal"
)

const (
	keyOperation   = "operation"
	keyTrackingID  = "com.microsoft:tracking-id"
	keyLinkName    = "associated-link-name" // of a link of the same connection
	codeOK         = 200
	codeAccepted   = 202
	codeNoContent  = 204
	codeBadRequest = 400
)

// request is one request, taken apart. Its contents are views of a copy of its own.
type request struct {
	operation string
	id        amqp.Raw // message-id
	replyTo   string
	props     amqp.Raw // application properties
	body      amqp.Raw // the amqp-value, nil if there is none
	bytes     int
	ch        *channel
	txnID     []byte // of the transaction that the request is part of, nil if none
	moves     int    // how often its entity turned out to be a later one of that name
}

// response is what a request node answers.
type response struct {
	code    int
	problem *amqp.Error // on failure
	body    amqp.Raw    // nil: none
	tail    [][]byte    // the rest of body, if that is large: views, which are not copied
	// moved is what the name of the entity stands for now, if nothing was done because the link knew
	// an earlier one of that name; the request is served again.
	moved *fsm.Descriptor
	// event is for the audit log, nil for nothing; it is recorded with the answer.
	event *audit.Event
}

func failed(code int, e *amqp.Error) response { return response{code: code, problem: e} }

// parseRequest takes a request apart.
func parseRequest(payload []byte) (request, error) {
	s, err := amqp.ParseMessage(payload)
	if err != nil {
		return request{}, err
	}
	p, err := s.ParseProperties()
	if err != nil {
		return request{}, err
	}
	q := request{id: p.MessageID, replyTo: string(p.ReplyTo), props: amqp.SectionValue(s.ApplicationProperties)}
	if v, ok := q.props.Get(keyOperation); ok {
		q.operation, _ = v.Text()
	}
	if s.BodyCode == amqp.CodeAMQPValue {
		q.body = amqp.SectionValue(s.Body)
	}
	return q, nil
}

// prop returns an application property that is text, "" if it is not.
func (q *request) prop(key string) string {
	v, ok := q.props.Get(key)
	if !ok {
		return ""
	}
	text, _ := v.Text()
	return text
}

// encodeResponse writes a response up to its tail. It has both spellings of its keys (G14) and the request's id in
// the type it came in (G15). mark is nil unless something was refused.
func encodeResponse(q *request, a response, cbs bool, mark *refusal.Mark) ([]byte, error) {
	out := amqp.AppendHeader(nil, amqp.Header{})
	out = amqp.AppendProperties(out, &amqp.Properties{CorrelationID: q.id})
	w := amqp.BeginMapSection(out, amqp.CodeApplicationProperties)
	description := "OK"
	switch {
	case a.problem != nil:
		description = a.problem.Description
	case a.code == codeAccepted:
		description = "Accepted"
	case a.code == codeNoContent:
		description = "No content"
	}
	w.Int("statusCode", int32(a.code))
	w.Int("status-code", int32(a.code))
	if a.problem != nil {
		w.Symbol("errorCondition", a.problem.Condition)
		if !cbs { // its mere presence means an authentication failure to Python
			w.Symbol("error-condition", a.problem.Condition)
		}
		if mark != nil {
			appendMark(&w, mark)
		}
	}
	w.String("statusDescription", description)
	w.String("status-description", description)
	if id, ok := q.props.Get(keyTrackingID); ok && !cbs {
		w.Raw(keyTrackingID, id)
	}
	out = w.End()
	body := a.body
	if body == nil {
		if a.problem != nil || a.code == codeNoContent {
			return out, nil
		}
		if body = amqp.AppendNull(nil); !cbs {
			m := amqp.BeginMap(nil)
			body = m.End()
		}
	}
	return amqp.AppendValueBody(out, body)
}
