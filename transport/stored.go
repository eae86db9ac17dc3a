package transport

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// The stored form of a message, fsm.Message.Body, is described in docs/formats/body.md.
const (
	storedVersion = 1
	// storedOverhead is the most that the stored form takes besides the client's bytes.
	storedOverhead = 1 + 1 + 1 + 4 + binary.MaxVarintLen64

	flagDurable    = 1 << 0
	flagPriority   = 1 << 1 // a byte follows
	flagTTL        = 1 << 2 // four bytes follow, big endian
	flagProperties = 1 << 3 // the bare message begins with a properties section
	flagExpiry     = 1 << 4 // the properties hold an absolute-expiry-time
	flagsKnown     = 1<<5 - 1
)

var errStored = errors.New("malformed stored message")

// stored is the stored form, taken apart.
type stored struct {
	flags       byte
	header      amqp.Header // without the delivery count
	annotations amqp.Raw    // map with symbol keys, nil if there are none
	bare        []byte
}

// appendStored writes the stored form: what the broker must say again on delivery, and the bare
// message as it arrived (A10). With fresh, that is the section of p, which takes the place of the
// client's properties; the rest stays byte for byte.
func appendStored(dst []byte, s *amqp.Sections, h *amqp.Header, p *amqp.Properties, fresh []byte,
) ([]byte, error) {
	var flags byte
	set := func(on bool, flag byte) {
		if on {
			flags |= flag
		}
	}
	set(h.Durable, flagDurable)
	set(h.Priority.Set, flagPriority)
	set(h.TTL.Set, flagTTL)
	set(s.Properties != nil || fresh != nil, flagProperties)
	set(p.AbsoluteExpiryTime.Set, flagExpiry)
	dst = append(dst, storedVersion, flags)
	if h.Priority.Set {
		dst = append(dst, h.Priority.Value)
	}
	if h.TTL.Set {
		dst = binary.BigEndian.AppendUint32(dst, h.TTL.Value)
	}
	annotations, err := clientAnnotations(s)
	if err != nil {
		return nil, err
	}
	dst = binary.AppendUvarint(dst, uint64(len(annotations)))
	dst = append(dst, annotations...)
	if fresh != nil {
		return append(append(dst, fresh...), s.Bare[len(s.Properties):]...), nil
	}
	return append(dst, s.Bare...), nil
}

// clientAnnotations returns the message annotations without those that are the broker's.
func clientAnnotations(s *amqp.Sections) (amqp.Raw, error) {
	m := amqp.ReadMap(amqp.SectionValue(s.MessageAnnotations))
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
		w.Pair(k, v)
	}
	if err := m.Err(); err != nil || !begun {
		return nil, err
	}
	return w.End(), nil
}

// parseStored takes the stored form apart; the parts are views.
func parseStored(b []byte) (stored, error) {
	if len(b) < 2 {
		return stored{}, fmt.Errorf("%w: %d bytes", errStored, len(b))
	}
	if b[0] != storedVersion || b[1]&^flagsKnown != 0 {
		return stored{}, fmt.Errorf("%w: version %d, flags %#x", errStored, b[0], b[1])
	}
	s := stored{flags: b[1]}
	b = b[2:]
	s.header.Durable = s.flags&flagDurable != 0
	if s.flags&flagPriority != 0 {
		if len(b) < 1 {
			return stored{}, errStored
		}
		s.header.Priority, b = amqp.Some(b[0]), b[1:]
	}
	if s.flags&flagTTL != 0 {
		if len(b) < 4 {
			return stored{}, errStored
		}
		s.header.TTL, b = amqp.Some(binary.BigEndian.Uint32(b)), b[4:]
	}
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return stored{}, errStored
	}
	b = b[size:]
	if n > 0 {
		s.annotations = amqp.Raw(b[:n:n])
	}
	s.bare = b[n:]
	return s, nil
}

// appendDelivery writes the message as a client gets it: header, annotations, and the bare message
// with what the broker has to change in it. With tokenInside the lock token rides as a delivery
// annotation, which receivers by sequence number look for.
func appendDelivery(dst []byte, d *fsm.Delivery, tokenInside bool) ([]byte, error) {
	s, err := parseStored(d.Body)
	if err != nil {
		return dst, err
	}
	h := s.header
	h.DeliveryCount = d.Attempts // G17: deliveries before this one
	if d.EnqueuedAt != 0 {
		h.TTL = amqp.Opt[uint32]{} // null when the message never expires (amqp-protocol.md 5.5)
		if d.ExpiresAt != 0 {
			h.TTL = amqp.Some(uint32(max(0, min(d.ExpiresAt-d.EnqueuedAt, unlimitedTTL))))
		}
	}
	dst = amqp.AppendHeader(dst, h)
	if tokenInside && !d.Token.IsZero() {
		w := amqp.BeginMapSection(dst, amqp.CodeDeliveryAnnotations)
		w.UUID(annLockToken, amqp.UUID(d.Token))
		dst = w.End()
	}
	dst = appendAnnotations(dst, d, s.annotations)
	return appendBare(dst, d, &s)
}

// appendAnnotations writes the broker's annotations and the client's; what does not apply is left
// out, because clients cast hard (amqp-protocol.md 5.4).
func appendAnnotations(dst []byte, d *fsm.Delivery, client amqp.Raw) []byte {
	w := amqp.BeginMapSection(dst, amqp.CodeMessageAnnotations)
	enqueued := d.EnqueuedAt
	if enqueued == 0 {
		enqueued = d.ScheduledAt // peeked before its time
	}
	w.Timestamp(annEnqueuedTime, amqp.Timestamp(enqueued))
	w.Long(annSequenceNumber, int64(d.Seq))
	number := d.EnqueuedSeq
	if number == 0 {
		number = d.Seq
	}
	w.Long(annEnqueuedNumber, int64(number))
	if d.LockedUntil != 0 {
		w.Timestamp(annLockedUntil, amqp.Timestamp(d.LockedUntil))
	}
	w.Int(annState, int32(d.State))
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
		key := annotationOf(d.System[i].Property)
		if key != "" && len(d.System[i].Value) > 0 {
			w.Raw(key, d.System[i].Value)
		}
	}
	return w.End()
}

// appendBare writes the bare message; untouched unless something was set on it since.
func appendBare(dst []byte, d *fsm.Delivery, s *stored) ([]byte, error) {
	expires := s.flags&flagExpiry != 0 && d.ExpiresAt != 0
	if len(d.Properties) == 0 && len(d.System) == 0 && d.Reason == "" && d.Description == "" && !expires {
		if s.flags&flagProperties == 0 {
			dst = amqp.AppendProperties(dst, &amqp.Properties{}) // G17
		}
		return append(dst, s.bare...), nil
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
	parts, err := amqp.ParseMessage(s.bare)
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
