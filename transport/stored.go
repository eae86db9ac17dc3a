package transport

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// appendStored writes the stored form: what the broker must say again on delivery, and the bare
// message as it arrived (A10). With fresh, that is the section of p, which takes the place of the
// client's properties; the rest stays byte for byte.
func appendStored(dst []byte, s *amqp.Sections, h *amqp.Header, p *amqp.Properties, fresh []byte,
) ([]byte, error) {
	dst, err := appendStoredHead(dst, s, h, p, fresh)
	if err != nil {
		return nil, err
	}
	rest := s.Bare[len(s.Properties):]
	if s.Footer == nil {
		return append(dst, rest...), nil
	}
	dst = append(dst, rest[:len(rest)-len(s.Footer)]...)
	return appendFooter(dst, s.Footer)
}

// storeIn writes what appendStored does into the memory of payload. If that is not empty, s was parsed from it and has
// no footer: a large message is not in memory twice. All views of payload mean nothing afterwards.
func storeIn(payload []byte, s *amqp.Sections, h *amqp.Header, p *amqp.Properties, fresh []byte) ([]byte, error) {
	if len(payload) == 0 {
		return appendStored(payload, s, h, p, fresh)
	}
	head, err := appendStoredHead(nil, s, h, p, fresh)
	if err != nil {
		return nil, err
	}
	rest := s.Bare[len(s.Properties):]
	size := len(head) + len(rest)
	if size > cap(payload) {
		return append(append(make([]byte, 0, size), head...), rest...), nil
	}
	payload = payload[:size:size]
	copy(payload[len(head):], rest) // they may overlap
	copy(payload, head)
	return payload, nil
}

// appendStoredHead writes the stored form up to the properties of the bare message.
func appendStoredHead(dst []byte, s *amqp.Sections, h *amqp.Header, p *amqp.Properties, fresh []byte,
) ([]byte, error) {
	m := stored.Message{Priority: h.Priority.Value, TTL: h.TTL.Value}
	m.Set(stored.Durable, h.Durable)
	m.Set(stored.Priority, h.Priority.Set)
	m.Set(stored.TTL, h.TTL.Set)
	m.Set(stored.Properties, s.Properties != nil || fresh != nil)
	m.Set(stored.Expiry, p.AbsoluteExpiryTime.Set)
	m.Set(stored.Acquirer, h.FirstAcquirer)
	var err error
	if m.Annotations, err = clientAnnotations(s.MessageAnnotations); err != nil {
		return nil, err
	}
	if m.DeliveryAnnotations, err = clientAnnotations(s.DeliveryAnnotations); err != nil {
		return nil, err
	}
	dst = m.AppendHead(dst)
	if fresh != nil {
		return append(dst, fresh...), nil
	}
	return append(dst, s.Properties...), nil
}

// appendFooter writes the footer with symbols for keys, as AMQP 1.0 §3.2.10 has them; some clients
// write strings and look for symbols.
func appendFooter(dst, footer []byte) ([]byte, error) {
	m := amqp.ReadMap(amqp.SectionValue(footer))
	w := amqp.BeginMapSection(dst, amqp.CodeFooter)
	for {
		k, v, ok := m.Next()
		if !ok {
			return w.End(), m.Err()
		}
		w.SymbolPair(k, v)
	}
}

// clientAnnotations returns a section of annotations without those that are the broker's.
func clientAnnotations(section []byte) ([]byte, error) {
	m := amqp.ReadMap(amqp.SectionValue(section))
	var w amqp.MapWriter
	begun := false
	for {
		k, v, ok := m.Next()
		if !ok {
			break
		}
		if text, isText := k.Text(); isText && brokerAnnotation(text) {
			continue
		}
		if !begun {
			w, begun = amqp.BeginSymbolMap(nil), true
		}
		w.SymbolPair(k, v)
	}
	if err := m.Err(); err != nil || !begun {
		return nil, err
	}
	return w.End(), nil
}

// headerOf is the header as its sender wrote it, without the delivery count.
func headerOf(m *stored.Message) amqp.Header {
	return amqp.Header{
		Durable: m.Has(stored.Durable), FirstAcquirer: m.Has(stored.Acquirer),
		Priority: amqp.Opt[uint8]{Value: m.Priority, Set: m.Has(stored.Priority)},
		TTL:      amqp.Opt[uint32]{Value: m.TTL, Set: m.Has(stored.TTL)},
	}
}

// appendDelivery writes the message as a client gets it: header, annotations, and the bare message
// with what the broker has to change in it. peeked says that it is shown and not given out.
func appendDelivery(dst []byte, d *fsm.Delivery, peeked bool) ([]byte, error) {
	s, err := stored.Parse(d.Body)
	if err != nil {
		return dst, err
	}
	h := headerOf(&s)
	h.DeliveryCount = d.Attempts // G17: deliveries before this one
	if d.EnqueuedAt != 0 {
		h.TTL = amqp.Opt[uint32]{} // null when the message never expires (amqp-protocol.md 5.5)
		if d.ExpiresAt != 0 {
			h.TTL = amqp.Some(uint32(max(0, min(d.ExpiresAt-d.EnqueuedAt, unlimitedTTL))))
		}
	}
	dst = amqp.AppendHeader(dst, h)
	dst = appendDeliveryAnnotations(dst, d, s.DeliveryAnnotations, peeked)
	dst = appendAnnotations(dst, d, s.Annotations, peeked)
	return appendBare(dst, d, &s)
}

// appendDeliveryAnnotations writes the lock token, which a delivery without a lock lacks, and what the sender wrote
// (RUL-27). A peeked message has the section even if it is empty. A client looks into it for the size of a body that
// was left out.
func appendDeliveryAnnotations(dst []byte, d *fsm.Delivery, client amqp.Raw, peeked bool) []byte {
	if d.Token.IsZero() && client == nil && !peeked {
		return dst
	}
	if client == nil && !peeked { // as most deliveries are: one copy
		return append(append(dst, lockTokenSection...), d.Token[:]...)
	}
	w := amqp.BeginMapSection(dst, amqp.CodeDeliveryAnnotations)
	if !d.Token.IsZero() {
		w.UUID(annLockToken, amqp.UUID(d.Token))
	}
	m := amqp.ReadMap(client)
	for {
		k, v, ok := m.Next()
		if !ok {
			return w.End()
		}
		w.Pair(k, v)
	}
}

// lockTokenSection is a section of delivery annotations with a lock token alone, up to the 16 bytes of that. It is a
// map8 of 36 bytes and 2 elements, a symbol of 16 bytes and a uuid.
const lockTokenSection = "\x00\x53\x71\xc1\x24\x02\xa3\x10" + annLockToken + "\x98"

// shownState is the state that a client is told, if it is told one. A peek always tells it, a delivery when it is not
// the usual one (RUL-27). A message that was scheduled says so for as long as it lives, as at the service; a peek
// tells whether its time has come.
func shownState(d *fsm.Delivery, peeked bool) (state fsm.MessageState, shown bool) {
	if !peeked && d.State == fsm.StateActive && d.ScheduledAt != 0 {
		return fsm.StateScheduled, true
	}
	return d.State, peeked || d.State != fsm.StateActive
}

// appendAnnotations writes the broker's annotations and the client's; what does not apply is left
// out, because clients cast hard (amqp-protocol.md 5.4).
func appendAnnotations(dst []byte, d *fsm.Delivery, client amqp.Raw, peeked bool) []byte {
	w := amqp.BeginMapSection(dst, amqp.CodeMessageAnnotations)
	enqueued := d.EnqueuedAt
	if enqueued == 0 {
		enqueued = d.ScheduledAt // peeked before its time
	}
	w.Timestamp(annEnqueuedTime, amqp.Timestamp(enqueued))
	w.Long(annSequenceNumber, int64(d.Seq))
	if d.EnqueuedSeq != 0 {
		w.Long(annEnqueuedNumber, int64(d.EnqueuedSeq))
	}
	if d.LockedUntil != 0 {
		w.Timestamp(annLockedUntil, amqp.Timestamp(d.LockedUntil))
	}
	if state, shown := shownState(d, peeked); shown {
		w.Int(annState, int32(state))
	}
	changed := changedAnnotations(d.System)
	if _, ok := changed[annScheduledTime]; !ok && d.ScheduledAt != 0 {
		w.Timestamp(annScheduledTime, amqp.Timestamp(d.ScheduledAt))
	}
	if d.Source != "" {
		w.String(annDeadSource, d.Source)
	}
	m := amqp.ReadMap(client)
	for {
		k, v, ok := m.Next()
		if !ok {
			break
		}
		if text, _ := k.Text(); changed != nil {
			if _, ok := changed[text]; ok {
				continue
			}
		}
		w.Pair(k, v)
	}
	for i := range d.System { // not over the map: bytes are the same each time
		key := stored.AnnotationOf(d.System[i].Property)
		if key != "" && len(d.System[i].Value) > 0 {
			w.Raw(key, d.System[i].Value)
		}
	}
	return w.End()
}

// appendBare writes the bare message; untouched unless something was set on it since.
func appendBare(dst []byte, d *fsm.Delivery, s *stored.Message) ([]byte, error) {
	expires := s.Has(stored.Expiry) && d.ExpiresAt != 0
	if len(d.Properties) == 0 && len(d.System) == 0 && d.Reason == "" && d.Description == "" && !expires {
		if !s.Has(stored.Properties) {
			dst = amqp.AppendProperties(dst, &amqp.Properties{}) // G17
		}
		return append(dst, s.Bare...), nil
	}
	overlay := make([]amqp.Property, 0, len(d.Properties)+2)
	for _, p := range d.Properties {
		overlay = append(overlay, amqp.Property{Key: p.Key, Value: p.Value, Remove: len(p.Value) == 0})
	}
	if d.Reason != "" {
		overlay = append(overlay, amqp.Property{Key: propReason, Value: amqp.AppendString(nil, d.Reason)})
	}
	if d.Description != "" {
		overlay = append(overlay, amqp.Property{Key: propDescription, Value: amqp.AppendString(nil, d.Description)})
	}
	parts, err := amqp.ParseMessage(s.Bare)
	if err != nil {
		return dst, err
	}
	p, err := parts.ParseProperties()
	if err != nil {
		return dst, err
	}
	changed := changeProperties(&p, d.System)
	if expires && p.AbsoluteExpiryTime.Set && p.AbsoluteExpiryTime.Value > amqp.Timestamp(d.ExpiresAt) {
		p.AbsoluteExpiryTime.Value = amqp.Timestamp(d.ExpiresAt) // amqp-protocol.md 5.5
		changed = true
	}
	switch {
	case parts.Properties == nil, changed:
		dst = amqp.AppendProperties(dst, &p)
	default:
		dst = append(dst, parts.Properties...)
	}
	if dst, err = amqp.MergeApplicationProperties(dst, parts.ApplicationProperties, overlay); err != nil {
		return dst, err
	}
	dst = append(dst, parts.Body...)
	return append(dst, parts.Footer...), nil
}

// partitionKey is what selected the share of a message.
type partitionKey struct {
	text  string
	given bool // false: any share would have done
}

// keyOfStored returns the partition key of a message on a partitioned entity, nil on another. It is its session id,
// the sender's key, or where duplicates are detected its message id, as translateMessage chose.
func keyOfStored(desc *fsm.Descriptor, d *fsm.Delivery) *partitionKey {
	if !desc.Partitioned {
		return nil
	}
	s, err := stored.Parse(d.Body)
	if err != nil {
		return nil
	}
	parts, err := amqp.ParseMessage(s.Bare)
	if err != nil {
		return nil
	}
	p, err := parts.ParseProperties()
	if err != nil {
		return nil
	}
	changeProperties(&p, d.System)
	if p.GroupID != nil {
		return &partitionKey{string(p.GroupID), true}
	}
	var key string
	if v, ok := amqp.Raw(s.Annotations).Get(annPartitionKey); ok {
		key, _ = v.Text()
	}
	for i := range d.System {
		if stored.AnnotationOf(d.System[i].Property) == annPartitionKey {
			key, _ = amqp.Raw(d.System[i].Value).Text()
		}
	}
	if id, _ := amqp.IDText(p.MessageID); key == "" && desc.DetectDuplicates {
		key = id
	}
	return &partitionKey{key, key != ""}
}
