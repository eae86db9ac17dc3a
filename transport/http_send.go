package transport

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// batchType makes a body a batch. It must be the whole value: with a parameter behind it the body is
// one message, as with the original.
const batchType = "application/vnd.microsoft.servicebus.json"

// batchSlack is what the JSON around a batch may take: escapes can make a text six times as long.
const batchSlack = 6

// httpSend stores one message, or a batch as a whole.
func (s *Server) httpSend(q *httpRequest) error {
	if q.addr.sub != fsm.Main || q.desc.Kind == fsm.Subscription { // S-171
		return badHTTP("Messages are sent to a queue or a topic.")
	}
	batch := q.r.Header.Get("Content-Type") == batchType
	limit := int64(q.desc.MaxMessageBytes)
	if batch {
		limit *= batchSlack
	}
	body, done, err := s.readBody(q, limit)
	defer done()
	if tooBig := (*http.MaxBytesError)(nil); errors.As(err, &tooBig) {
		return s.httpRefusal(fsm.MessageSizeExceeded, "", q.addr.path())
	} else if tooMuch := (bodyTooMuch{}); errors.As(err, &tooMuch) {
		return &httpProblem{status: http.StatusServiceUnavailable, subCode: 50004, text: tooMuch.Error(), cause: err}
	} else if err != nil {
		return &httpProblem{status: http.StatusRequestTimeout, text: fmt.Sprintf("The body did not arrive: it has %v, "+
			"a second more for each %d bytes of it that have arrived, and %v in all.", httpBodyGrace, httpBodyRate, httpMargin), cause: err}
	}
	d := inbound{arrived: s.cfg.traceTime()}
	if batch {
		err = s.httpBatch(&d, body, q.desc)
	} else {
		err = s.httpSingle(&d, body, q)
	}
	if err != nil {
		return err
	}
	if e := s.rates.take(q.key, len(d.messages), len(body)); e != nil {
		s.stats.reject(siteKeyRate)
		return &httpProblem{status: http.StatusServiceUnavailable, subCode: 50004, text: e.Description, refused: e}
	}
	key := fsm.Key{Entity: q.desc.ID, By: fsm.ByAny}
	if d.byText {
		key.By, key.Text = fsm.ByText, d.text
	}
	d.traces = s.cfg.tracesOf(d.messages)
	proposed := s.cfg.traceTime()
	out, err := s.Propose(q.ctx, key, &fsm.Enqueue{Messages: d.messages})
	if len(d.traces) > 0 {
		d.logged(proposed)
		d.refusal = s.verdictOf(out.Refusal, out.Detail, err, q.addr.path())
		s.cfg.traceAccepted(&d, q.desc.Name, time.Now())
	}
	switch {
	case err != nil:
		return s.httpError(err, q.addr.path())
	case out.Refusal != fsm.None:
		return s.httpRefusal(out.Refusal, out.Detail, q.addr.path())
	}
	s.stats.MessagesIn.Add(uint64(len(d.messages)))
	q.w.Header().Set("Server", "Busbar")
	q.w.WriteHeader(http.StatusCreated)
	return nil
}

// httpSingle makes a message of a request: properties in a header, application properties in the
// others, the body as it is.
func (s *Server) httpSingle(d *inbound, body []byte, q *httpRequest) error {
	var p brokerProperties
	if values := q.r.Header.Values(brokerHeader); len(values) > 1 {
		return badHTTP("The header BrokerProperties is given more than once.")
	} else if len(values) == 1 {
		err := exactText([]byte(values[0]))
		if err == nil {
			err = json.Unmarshal([]byte(values[0]), &p)
		}
		if err != nil {
			return badHTTP("BrokerProperties cannot be read: %v.", err)
		}
	}
	contentType := q.r.Header.Get("Content-Type")
	if strings.ContainsFunc(contentType, func(r rune) bool { return r >= utf8.RuneSelf }) { // AMQP 1.0 §1.6.21
		return badHTTP("The header Content-Type holds characters that are no ASCII.")
	}
	payload, err := p.sections(nil, contentType)
	if err != nil {
		return badHTTP("BrokerProperties: %v.", err)
	}
	w := amqp.BeginMapSection(payload, amqp.CodeApplicationProperties)
	for _, name := range slices.Sorted(maps.Keys(q.r.Header)) {
		if !isProperty(name) {
			continue
		}
		value := strings.TrimSpace(strings.Join(q.r.Header[name], ", "))
		if err := exactProperty(value); err != nil {
			return badHTTP("The header %s cannot be read: %v.", name, err)
		}
		w.Raw(name, propertyValue(value))
	}
	return s.httpMessage(d, amqp.AppendData(w.End(), body), q.desc)
}

// batchItem is one message of a batch. Headers of the request do not apply to it.
type batchItem struct {
	Body *string
	// BodyEncoding is "base64" for a body of any bytes, "" for text. ContentType says what the body is. Both are additions of
	// ours: a batch of the original has neither.
	BodyEncoding     string
	ContentType      string
	BrokerProperties brokerProperties
	UserProperties   map[string]any
}

func (s *Server) httpBatch(d *inbound, body []byte, desc *fsm.Descriptor) error {
	if err := exactText(body); err != nil {
		return badHTTP("The batch cannot be read: %v.", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var items []batchItem
	if err := decoder.Decode(&items); err != nil {
		return badHTTP("The batch is no JSON array of messages: %v.", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return badHTTP("The batch is followed by something else.")
	}
	if len(items) == 0 {
		return badHTTP("A batch has at least one message.")
	}
	total := 0
	for i, item := range items {
		payload, text, err := item.begin()
		if err != nil {
			return badHTTP("Message %d: %v.", i, err)
		}
		w := amqp.BeginMapSection(payload, amqp.CodeApplicationProperties)
		for _, name := range slices.Sorted(maps.Keys(item.UserProperties)) {
			value, ok := memberValue(item.UserProperties[name])
			if !ok {
				return badHTTP("Message %d: the property %s is no text, number or truth value.", i, refusal.Clip(name))
			}
			w.Raw(name, value)
		}
		payload = amqp.AppendData(w.End(), text)
		if total += len(payload); len(items) > 1 && total > s.cfg.batchBytes(desc) {
			return s.httpRefusal(fsm.MessageSizeExceeded, "", desc.Name)
		}
		if err := s.httpMessage(d, payload, desc); err != nil {
			return err
		}
	}
	return nil
}

// begin writes what stands before the properties of a message, and returns its body.
func (item *batchItem) begin() (payload, body []byte, err error) {
	if strings.ContainsFunc(item.ContentType, func(r rune) bool { return r >= utf8.RuneSelf }) { // AMQP 1.0 §1.6.21
		return nil, nil, errors.New("ContentType holds characters that are no ASCII")
	}
	if item.Body != nil {
		body = []byte(*item.Body)
	}
	switch item.BodyEncoding {
	case "":
	case "base64":
		if body, err = base64.StdEncoding.DecodeString(string(body)); err != nil {
			return nil, nil, fmt.Errorf("the Body is no base64: %w", err)
		}
	default:
		return nil, nil, fmt.Errorf("BodyEncoding is %q, want base64 or nothing", refusal.Clip(item.BodyEncoding))
	}
	if payload, err = item.BrokerProperties.sections(nil, item.ContentType); err != nil {
		return nil, nil, fmt.Errorf("BrokerProperties: %w", err)
	}
	return payload, body, nil
}

// memberValue turns a member of a JSON object into a property.
func memberValue(v any) (amqp.Raw, bool) {
	switch v := v.(type) {
	case nil:
		return amqp.AppendNull(nil), true
	case string:
		return amqp.AppendString(nil, v), true
	case bool:
		return amqp.AppendBool(nil, v), true
	case json.Number:
		return propertyValue(v.String()), true
	}
	return nil, false
}

// httpMessage adds an encoded message to what is to be stored.
func (s *Server) httpMessage(d *inbound, payload []byte, desc *fsm.Descriptor) error {
	if len(payload) > int(desc.MaxMessageBytes) {
		return s.httpRefusal(fsm.MessageSizeExceeded, "", desc.Name)
	}
	if refused := d.translate(payload, desc, s.messageID, false); refused != nil {
		s.stats.reject(siteMessage)
		return badHTTP("%s", refused.Description)
	}
	return nil
}
