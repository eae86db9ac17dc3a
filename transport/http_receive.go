package transport

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// httpReceive gives the next message: locked with POST, removed with DELETE. Nothing in time is 204.
func (s *Server) httpReceive(q *httpRequest) error {
	if q.desc.Kind == fsm.Topic { // S-223
		return badHTTP("Messages of a topic are received from its subscriptions.")
	}
	remove := q.r.Method == http.MethodDelete
	r := s.waist.BorrowReceiver(q.desc, q.addr.sub, waist.AllShares(q.desc))
	out, err := r.Receive(q.ctx, &fsm.Lock{Max: 1, MaxBytes: s.cfg.MaxLockBytes, Delete: remove,
		Wait: fsm.Millis(q.wait.Milliseconds())})
	r.GiveBack()
	switch {
	case err != nil && q.waiting.Err() != nil, err == nil && len(out.Locked) == 0 && out.Refusal == fsm.None:
		q.w.Header().Set("Server", "Busbar")
		q.w.WriteHeader(http.StatusNoContent)
		return nil
	case err != nil:
		return s.httpError(err, q.addr.path())
	case out.Refusal != fsm.None:
		return s.httpRefusal(out.Refusal, out.Detail, q.addr.path())
	}
	d := &out.Locked[0]
	if q.r.Context().Err() != nil && !remove {
		s.giveBackHTTP(q, d) // nobody is there to take it (A18)
		return nil
	}
	s.cfg.traceDelivered(d, q.addr, time.Now())
	return s.deliverHTTP(q, d)
}

// giveBackHTTP returns a message that its receiver did not wait for. If it cannot be said, the lock runs
// out.
func (s *Server) giveBackHTTP(q *httpRequest, d *fsm.Delivery) {
	ctx, cancel := context.WithTimeout(s.ctx, httpMargin)
	defer cancel()
	_, err := s.Propose(ctx, s.shareOf(q, d.Token), &fsm.Settle{Items: []fsm.SettleItem{{
		Seq: d.Seq, Token: d.Token, Verdict: fsm.Return,
	}}})
	if err != nil {
		s.log.Debug("give back", "entity", q.addr.path(), "error", err)
	}
}

// shareOf is where the lock with that token is held.
func (s *Server) shareOf(q *httpRequest, token fsm.LockToken) fsm.Key {
	return waist.KeyOfToken(q.desc, q.addr.sub, token)
}

// deliverHTTP writes a message: the body as it was sent, the rest in headers.
func (s *Server) deliverHTTP(q *httpRequest, d *fsm.Delivery) error {
	payload, tail, err := splitDelivery(nil, d, false)
	if err != nil {
		return err
	}
	parts, err := amqp.ParseMessage(payload)
	if err != nil {
		return err
	}
	end, err := amqp.ParseMessage(tail)
	if err != nil {
		return err
	}
	p, contentType, err := receivedProperties(d, &parts)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(p)
	if err != nil {
		return err
	}
	h := q.w.Header()
	if err := putProperties(h, &parts); err != nil {
		return err
	}
	body := rawBody(&end)
	h.Set("Server", "Busbar")
	h[brokerHeader] = []string{asciiJSON(encoded)}
	if contentType != "" && isText(contentType) {
		h.Set("Content-Type", contentType)
	} else {
		h["Content-Type"] = nil // none is guessed
	}
	if d.EnqueuedAt != 0 {
		h.Set("Date", time.UnixMilli(int64(d.EnqueuedAt)).UTC().Format(http.TimeFormat))
	}
	status := http.StatusOK
	if q.r.Method == http.MethodPost {
		status = http.StatusCreated
		h.Set("Location", locationOf(q, d))
	}
	h.Set("Content-Length", strconv.Itoa(totalBytes(body)))
	s.stats.MessagesOut.Add(1)
	q.w.WriteHeader(status)
	for _, b := range body {
		if _, err := q.w.Write(b); err != nil {
			break // the lock of a client that is gone runs out
		}
	}
	return nil
}

// putProperties sets a header for each application property that a header can show.
func putProperties(h http.Header, parts *amqp.Sections) error {
	m := amqp.ReadMap(amqp.SectionValue(parts.ApplicationProperties))
	for {
		key, v, ok := m.Next()
		if !ok {
			return m.Err()
		}
		name, _ := key.Text()
		if value, ok := propertyText(v); ok && isToken(name) && isProperty(name) {
			h[name] = []string{value} // with the sender's capitals
		}
	}
}

// locationOf is the URL by which the lock is settled or renewed.
func locationOf(q *httpRequest, d *fsm.Delivery) string {
	scheme := "http"
	if q.r.TLS != nil {
		scheme = "https"
	}
	path := (&url.URL{Path: "/" + q.addr.path()}).EscapedPath()
	return scheme + "://" + q.r.Host + path + "/" + messagesNode + "/" +
		strconv.FormatUint(uint64(d.Seq), 10) + "/" + amqp.UUID(d.Token).String()
}

// receivedProperties reads what a client is told of a message beside its own properties.
func receivedProperties(d *fsm.Delivery, parts *amqp.Sections) (*brokerProperties, string, error) {
	properties, err := parts.ParseProperties()
	if err != nil {
		return nil, "", err
	}
	header, err := parts.ParseHeader()
	if err != nil {
		return nil, "", err
	}
	number, enqueued := int64(d.Seq), int64(d.First())
	count, state := d.Attempts+1, strings.ToUpper(stateName(d.State)[:1])+stateName(d.State)[1:]
	p := &brokerProperties{
		Label: textOf(properties.Subject), To: textOf(properties.To), ReplyTo: textOf(properties.ReplyTo),
		SessionID: textOf(properties.GroupID), ReplyToSessionID: textOf(properties.ReplyToGroupID),
		SequenceNumber: &number, EnqueuedNumber: &enqueued, DeliveryCount: &count, State: &state,
		Enqueued: stampOf(d.EnqueuedAt), LockedUntil: stampOf(d.LockedUntil),
	}
	if text, ok := amqp.IDText(properties.MessageID); ok {
		p.MessageID = &text
	}
	if text, ok := amqp.IDText(properties.CorrelationID); ok {
		p.CorrelationID = &text
	}
	for name, at := range map[amqp.Symbol]**string{
		annPartitionKey: &p.PartitionKey, annViaPartitionKey: &p.ViaPartitionKey,
		annDeadSource: &p.DeadLetterSource,
	} {
		if v, ok := parts.Annotation(name); ok {
			if text, ok := v.Text(); ok {
				*at = &text
			}
		}
	}
	if v, ok := parts.Annotation(annScheduledTime); ok {
		if at, ok := v.Timestamp(); ok {
			p.Scheduled = stampOf(fsm.Wall(at))
		}
	}
	if !d.Token.IsZero() {
		token := amqp.UUID(d.Token).String()
		p.LockToken = &token
	}
	if d.EnqueuedAt != 0 && d.ExpiresAt != 0 {
		life := seconds(float64(d.ExpiresAt-d.EnqueuedAt) / 1000)
		p.TimeToLive = &life
	} else if header.TTL.Set {
		life := seconds(float64(header.TTL.Value) / 1000)
		p.TimeToLive = &life
	}
	return p, string(properties.ContentType), nil
}

func textOf(b []byte) *string {
	if b == nil {
		return nil
	}
	text := string(b)
	return &text
}

// stampOf is a time in the form of HTTP, nil if there is none.
func stampOf(at fsm.Wall) *string {
	if at <= 0 || at >= fsm.Wall(fsm.Unlimited) {
		return nil
	}
	text := time.UnixMilli(int64(at)).UTC().Format(http.TimeFormat)
	return &text
}

// rawBody is the body as bytes, in pieces. Data sections follow each other, a value that is text or binary stays as
// it is, and anything else is as AMQP encodes it.
func rawBody(parts *amqp.Sections) [][]byte {
	switch parts.BodyCode {
	case amqp.CodeData:
		var all [][]byte
		for data, err := range amqp.BatchMessages(parts.Body) { // one for each data section
			if err != nil {
				break
			}
			all = append(all, data)
		}
		return all
	case amqp.CodeAMQPValue:
		value := amqp.Raw(amqp.SectionValue(parts.Body))
		if text, ok := value.TextBytes(); ok {
			return [][]byte{text}
		}
		if b, ok := value.Binary(); ok {
			return [][]byte{b}
		}
		return [][]byte{value}
	}
	return [][]byte{parts.Body}
}

// isToken reports whether a text can be the name of a header (RFC 9110 section 5.6.2).
func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return name != ""
}

// isText reports whether a text can be the value of a header as it is.
func isText(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
}

// asciiJSON writes what is not ASCII in an encoded object as escapes, which JSON has in texts only.
func asciiJSON(encoded []byte) string {
	var out strings.Builder
	for _, r := range string(encoded) {
		if r < 0x7f {
			out.WriteRune(r)
			continue
		}
		text := quoted(string(r))
		out.WriteString(text[1 : len(text)-1])
	}
	return out.String()
}

// httpSettle completes (DELETE), unlocks (PUT) or renews (POST) a locked message. The number in the path is not
// looked at: the token says it all.
func (s *Server) httpSettle(q *httpRequest) error {
	key := s.shareOf(q, q.token)
	if q.r.Method == http.MethodPost {
		return s.httpRenew(q, key)
	}
	item := fsm.SettleItem{Token: q.token, Verdict: fsm.Complete}
	if q.r.Method == http.MethodPut {
		item.Verdict = fsm.Abandon
	}
	out, err := s.Propose(q.ctx, key, &fsm.Settle{Items: []fsm.SettleItem{item}})
	if err != nil {
		return s.httpError(err, q.addr.path())
	}
	why := out.Refusal
	if why == fsm.None && len(out.Refusals) > 0 {
		why = out.Refusals[0]
	}
	if why != fsm.None {
		s.stats.SettleRefused.Add(1)
		return s.httpRefusal(why, out.Detail, q.addr.path())
	}
	s.stats.Settled.Add(1)
	q.w.Header().Set("Server", "Busbar")
	q.w.WriteHeader(http.StatusOK)
	return nil
}

func (s *Server) httpRenew(q *httpRequest, key fsm.Key) error {
	if q.desc.RequiresSession && q.addr.sub == fsm.Main { // RUL-5
		return s.httpRefusal(fsm.InvalidOperation, "Renew the lock of the session.", q.addr.path())
	}
	out, err := s.Propose(q.ctx, key, &fsm.Renew{Tokens: []fsm.LockToken{q.token}})
	switch {
	case err != nil:
		return s.httpError(err, q.addr.path())
	case out.Refusal != fsm.None:
		return s.httpRefusal(out.Refusal, out.Detail, q.addr.path())
	}
	token := amqp.UUID(q.token).String()
	encoded, err := json.Marshal(&brokerProperties{LockToken: &token, LockedUntil: stampOf(out.LockedUntil)})
	if err != nil {
		return err
	}
	h := q.w.Header()
	h.Set("Server", "Busbar")
	h[brokerHeader] = []string{string(encoded)}
	q.w.WriteHeader(http.StatusOK)
	return nil
}
