package transport

import (
	"encoding/hex"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// This file is where wire words become words of fsm and back: messages here, management requests in
// the files of their operations.

// Limits of a message (S-227, S-228).
const (
	maxIDChars             = 128
	maxPropertyBytes       = 32 << 10
	maxPropertiesBytes     = 64 << 10
	maxReasonBytes         = 4 << 10 // of a dead-letter reason or description; longer ones are cut
	unlimitedTTL           = 1<<32 - 1
	sessionRequiredMessage = "The SessionId was not set on a message, and it cannot be sent to the entity. " +
		"Entities that have session support enabled can only receive messages that have the SessionId set to a valid value."
)

// nowWall is the wall time of this node; it never decides about messages.
func nowWall() fsm.Wall { return fsm.Wall(time.Now().UnixMilli()) }

// guidTag is the delivery tag of a lock token (G12).
func guidTag(t fsm.LockToken) [16]byte { return amqp.GuidTag(amqp.UUID(t)) }

// translateInbound turns a delivery into messages. A batch has as many as its bytes hold (RUL-32).
func translateInbound(d *inbound, desc *fsm.Descriptor, ids *messageIDs) *amqp.Error {
	if d.format != amqp.FormatBatch {
		if d.format != amqp.FormatAMQP {
			return amqpError(amqp.ConditionNotImplemented, "message format %#x", d.format)
		}
		return d.translate(d.payload, desc, ids.next, len(d.payload) >= apartFrom)
	}
	n := 0
	for _, err := range amqp.BatchMessages(d.payload) {
		if err != nil {
			return badBatch(err)
		}
		n++
	}
	d.messages = make([]fsm.Message, 0, n)
	ids.of += n - 1
	for payload, err := range amqp.BatchMessages(d.payload) {
		if err != nil {
			return badBatch(err)
		}
		if err := d.translate(payload, desc, ids.next, false); err != nil {
			return err
		}
	}
	return nil
}

func badBatch(err error) *amqp.Error {
	return amqpError(amqp.ConditionArgumentError, "batch: %v", err)
}

// translate adds the message in payload. With consume the message is stored in the memory of payload.
func (d *inbound) translate(payload []byte, desc *fsm.Descriptor, newID func() string, consume bool) *amqp.Error {
	var via struct {
		text    string
		byText  bool
		refusal *amqp.Error
	}
	if d.via != nil { // read before payload is overwritten
		via.text, via.byText, via.refusal = viaKey(payload)
	}
	m, text, byText, err := translateInto(payload, desc, newID, consume)
	if err != nil {
		return err
	}
	home := desc
	if d.via != nil {
		if via.refusal != nil {
			return via.refusal
		}
		home, text, byText = d.via, via.text, via.byText
	}
	if len(d.messages) > 0 && home.Partitioned && (text != d.text || byText != d.byText) { // S-138
		return amqpError(amqp.ConditionNotAllowed, "All messages of a batch to a partitioned entity "+
			"must have the same session id or partition key.")
	}
	d.messages = append(d.messages, m)
	d.text, d.byText = text, byText
	return nil
}

// viaKey returns what selects the share of the entity through which a message goes (amqp-protocol.md
// 4.6). Without a key any share will do: where the message goes at last its own key decides about.
func viaKey(payload []byte) (text string, byText bool, refusal *amqp.Error) {
	s, err := amqp.ParseMessage(payload)
	if err != nil {
		return "", false, amqpError(amqp.ConditionArgumentError, "message: %v", err)
	}
	v, ok := s.Annotation(annViaPartitionKey)
	if !ok || v.IsNull() {
		return "", false, nil
	}
	if text, ok = v.Text(); !ok || len(text) > maxIDChars && utf8.RuneCountInString(text) > maxIDChars {
		return "", false, amqpError(amqp.ConditionArgumentError, "%s is no string of at most %d characters",
			annViaPartitionKey, maxIDChars)
	}
	return text, text != "", nil
}

// translateMessage turns one encoded message into a message for desc, and says what selects its
// share (S-313). A message without an id gets one from newID: S-140 wants one on every message, and
// not every client sets it.
func translateMessage(payload []byte, desc *fsm.Descriptor, newID func() string,
) (m fsm.Message, text string, byText bool, refusal *amqp.Error) {
	return translateInto(payload, desc, newID, false)
}

// translateInto is translateMessage. With consume the body of m may lie in the memory of payload, which then means
// nothing else any more.
func translateInto(payload []byte, desc *fsm.Descriptor, newID func() string, consume bool,
) (m fsm.Message, text string, byText bool, refusal *amqp.Error) {
	bad := func(condition amqp.Symbol, format string, args ...any) (fsm.Message, string, bool, *amqp.Error) {
		return fsm.Message{}, "", false, amqpError(condition, format, args...)
	}
	s, err := amqp.ParseMessage(payload)
	if err != nil {
		return bad(amqp.ConditionArgumentError, "message: %v", err)
	}
	h, err := s.ParseHeader()
	if err != nil {
		return bad(amqp.ConditionArgumentError, "header: %v", err)
	}
	p, err := s.ParseProperties()
	if err != nil {
		return bad(amqp.ConditionArgumentError, "properties: %v", err)
	}
	if err := checkProperties(&s); err != nil {
		return bad(amqp.ConditionArgumentError, "%v", err)
	}
	m.SessionID, m.HasSession = string(p.GroupID), p.GroupID != nil // RUL-17
	m.MessageID, _ = amqp.IDText(p.MessageID)
	var fresh []byte // properties in the place of the client's
	if p.MessageID == nil {
		p.MessageID = amqp.AppendString(nil, newID())
		fresh = amqp.AppendProperties(make([]byte, 0, len(s.Properties)+propertiesOverhead), &p)
	}
	var key string
	if v, ok := s.Annotation(annPartitionKey); ok && !v.IsNull() {
		if key, ok = v.Text(); !ok {
			return bad(amqp.ConditionArgumentError, "%s is no string", annPartitionKey)
		}
	}
	m.PartitionKey = key // S-191
	for _, id := range [...]string{m.SessionID, m.MessageID, key} {
		if len(id) > maxIDChars && utf8.RuneCountInString(id) > maxIDChars { // S-228
			return bad(amqp.ConditionArgumentError, "SessionId, MessageId and PartitionKey have at most %d characters",
				maxIDChars)
		}
	}
	if desc.Partitioned && key != "" && m.SessionID != "" && key != m.SessionID { // S-313, RUL-33
		return bad(amqp.ConditionNotAllowed, "PartitionKey must be the SessionId where both are set")
	}
	if desc.RequiresSession && desc.Kind == fsm.Queue && !m.HasSession { // S-30
		return bad(amqp.ConditionNotAllowed, sessionRequiredMessage)
	}
	if m.TTL, err = timeToLive(&h, &p); err != nil {
		return bad(amqp.ConditionArgumentError, "%v", err)
	}
	if m.ScheduledAt, err = scheduledTime(&s); err != nil {
		return bad(amqp.ConditionArgumentError, "%v", err)
	}
	if !consume || s.Footer != nil {
		room := len(payload) + len(fresh) + stored.Overhead
		payload = make([]byte, 0, room)
	}
	if m.Body, err = storeIn(payload, &s, &h, &p, fresh); err != nil {
		return bad(amqp.ConditionArgumentError, "%v", err)
	}
	switch {
	case m.HasSession:
		return m, m.SessionID, true, nil
	case key != "":
		return m, key, true, nil
	case desc.DetectDuplicates && m.MessageID != "": // S-191
		return m, m.MessageID, true, nil
	}
	return m, "", false, nil
}

// messageID makes an id for a message that came without.
func (s *Server) messageID() string { return (&messageIDs{s: s, of: 1}).next() }

// messageIDs makes ids for the messages of one round. Chance costs by the call.
type messageIDs struct {
	s    *Server
	of   int // messages of the round that have no id yet, at most
	left []byte
}

// maxIDsDrawn bounds how many ids' chance is drawn at once: 1 KiB.
const maxIDsDrawn = 64

func (m *messageIDs) next() string {
	if len(m.left) == 0 {
		n := max(1, min(m.of, maxIDsDrawn))
		m.of -= n
		m.left = make([]byte, 16*n)
		m.s.draw(m.left)
	}
	id := hex.EncodeToString(m.left[:16])
	m.left = m.left[16:]
	return id
}

// checkProperties holds application properties to their limits (S-227), counted as a user counts them:
// names and values without what AMQP writes around them.
func checkProperties(s *amqp.Sections) error {
	if len(s.ApplicationProperties) <= maxPropertyBytes {
		return nil
	}
	m := amqp.ReadMap(amqp.SectionValue(s.ApplicationProperties))
	for all := 0; ; {
		name, v, ok := m.Next()
		if !ok {
			return m.Err()
		}
		key, n := name.ContentBytes(), v.ContentBytes()
		if n > maxPropertyBytes {
			return fmt.Errorf("the value of an application property has %d bytes, more than %d", n, maxPropertyBytes)
		}
		if all += key + n; all > maxPropertiesBytes {
			return fmt.Errorf("names and values of the application properties have more than %d bytes", maxPropertiesBytes)
		}
	}
}

// timeToLive reads what the sender asked for. A header cannot say more than 49 days, so clients say
// the rest with two times.
func timeToLive(h *amqp.Header, p *amqp.Properties) (fsm.Millis, error) {
	if !h.TTL.Set {
		return 0, nil
	}
	if h.TTL.Value == 0 {
		return 0, fmt.Errorf("TimeToLive must be positive") // S-205
	}
	if h.TTL.Value == unlimitedTTL && p.AbsoluteExpiryTime.Set && p.CreationTime.Set {
		if span := p.AbsoluteExpiryTime.Value - p.CreationTime.Value; span > unlimitedTTL {
			return min(fsm.Millis(span), fsm.Unlimited), nil
		}
	}
	return fsm.Millis(h.TTL.Value), nil
}

// scheduledTime reads when a message is to be there, 0 for now: as the original's clients say it, else as
// JMS does (docs/decisions/0034).
func scheduledTime(s *amqp.Sections) (fsm.Wall, error) {
	if v, ok := s.Annotation(annScheduledTime); ok && !v.IsNull() {
		at, ok := v.Timestamp()
		if !ok || at < 0 {
			return 0, fmt.Errorf("%s is no time", annScheduledTime)
		}
		return fsm.Wall(at), nil
	}
	v, ok := s.Annotation(annDeliveryTime)
	if !ok || v.IsNull() {
		return 0, nil
	}
	at, ok := v.Int64()
	if t, isTime := v.Timestamp(); isTime {
		at, ok = int64(t), true
	}
	if !ok || at < 0 {
		return 0, fmt.Errorf("%s is no time", annDeliveryTime)
	}
	return fsm.Wall(at), nil
}

// verdict is what a disposition says about one delivery.
type verdict struct {
	item  fsm.SettleItem     // Verdict 0: not decided
	reply amqp.DeliveryState // the answer when it is done: the same outcome, without its details (G13)
}

// verdictOf reads a delivery state of a receiver. Its result holds no views.
func verdictOf(state amqp.DeliveryState) (verdict, *amqp.Error) {
	switch s := state.(type) {
	case nil:
		return verdict{reply: amqp.Released{}}, nil
	case amqp.Received:
		return verdict{reply: amqp.Released{}}, nil
	case amqp.Accepted:
		return verdict{fsm.SettleItem{Verdict: fsm.Complete}, amqp.Accepted{}}, nil
	case amqp.Released: // RUL-15
		return verdict{fsm.SettleItem{Verdict: fsm.Return}, amqp.Released{}}, nil
	case amqp.Rejected:
		item, err := killItem(s.Error)
		if err != nil {
			return verdict{}, amqpError(amqp.ConditionArgumentError, "%v", err)
		}
		return verdict{item, amqp.Rejected{}}, nil
	case amqp.Modified:
		here := s.UndeliverableHere.Or(false)
		item := fsm.SettleItem{Verdict: fsm.Abandon}
		if here {
			item.Verdict = fsm.Defer
		}
		if err := setProperties(&item, s.MessageAnnotations); err != nil {
			return verdict{}, amqpError(amqp.ConditionArgumentError, "%v", err)
		}
		return verdict{item, amqp.Modified{UndeliverableHere: amqp.Some(here)}}, nil
	}
	return verdict{}, amqpError(amqp.ConditionNotImplemented, "delivery state %T is not supported", state)
}

// killItem reads the error with which a client dead-letters; reason and description are optional.
func killItem(e *amqp.Error) (fsm.SettleItem, error) {
	item := fsm.SettleItem{Verdict: fsm.Kill}
	if e == nil {
		return item, nil
	}
	props, err := amqp.ReadProperties(e.Info)
	if err != nil {
		return item, err
	}
	reason, description := "", ""
	var hasReason, hasDescription bool
	for _, p := range props {
		kept := true
		switch p.Key {
		case propReason:
			reason, kept = reasonText(p.Value)
			hasReason = kept
		case propDescription:
			description, kept = reasonText(p.Value)
			hasDescription = kept
		}
		if kept {
			item.Properties = append(item.Properties, fsm.Property{Key: p.Key, Value: p.Value.Clone()})
		}
	}
	if e.Condition != amqp.ConditionDeadLetter && reason == "" && !hasReason {
		reason = string(e.Condition) // a plain AMQP client rejects with its own error
	}
	if description == "" && !hasDescription {
		description = e.Description
	}
	item.Reason, item.Description = cutText(reason), cutText(description)
	return item, nil
}

// reasonText reads the reason or description of a dead letter. other says that it is neither text nor null; then it
// is kept with its type, as an application property (RUL-35).
func reasonText(v amqp.Raw) (text string, other bool) {
	text, isText := v.Text()
	return text, !isText && !v.IsNull()
}

// cutText cuts a reason at its limit, between characters.
func cutText(text string) string {
	if len(text) <= maxReasonBytes {
		return text
	}
	n := maxReasonBytes
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
