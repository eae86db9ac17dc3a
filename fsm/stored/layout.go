package stored

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// version is the first byte of every stored message.
const version = 1

// Flags say which parts a stored message has.
type Flags byte

// The flags of a stored message.
const (
	Durable    Flags = 1 << 0 // header.durable
	Priority   Flags = 1 << 1 // a byte follows
	TTL        Flags = 1 << 2 // four bytes follow
	Properties Flags = 1 << 3 // the bare message begins with a properties section
	Expiry     Flags = 1 << 4 // the properties hold an absolute-expiry-time
	Acquirer   Flags = 1 << 5 // the sender said that whoever gets the message is the first
	known            = Durable | Priority | TTL | Properties | Expiry | Acquirer
)

// Overhead is the most bytes that the stored form takes besides those of the client.
const Overhead = 1 + 1 + 1 + 4 + binary.MaxVarintLen64

// ErrMalformed is wrapped by every error of [Parse]: the bytes are no stored message of a known version.
var ErrMalformed = errors.New("malformed stored message")

// Message is a stored message, taken apart. Its slices are views.
type Message struct {
	Flags    Flags
	Priority byte   // header.priority; it counts with the flag Priority
	TTL      uint32 // header.ttl, milliseconds as the sender wrote them; it counts with the flag TTL
	// Annotations is one encoded map with symbols for keys: the message annotations of the sender, nil without.
	Annotations []byte
	// DeliveryAnnotations is the same for the delivery annotations of the sender.
	DeliveryAnnotations []byte
	// Bare is the bare message: properties, application properties, body and footer.
	Bare []byte
}

// Has reports whether the message has a flag.
func (m *Message) Has(f Flags) bool { return m.Flags&f != 0 }

// Set sets a flag if on is true.
func (m *Message) Set(f Flags, on bool) {
	if on {
		m.Flags |= f
	}
}

// noAnnotations is an encoded map without pairs. It holds the place of message annotations in front of delivery
// annotations.
const noAnnotations = "\xc1\x01\x00"

// AppendHead appends all that stands in front of the bare message, which the caller appends behind it.
func (m *Message) AppendHead(dst []byte) []byte {
	dst = append(dst, version, byte(m.Flags))
	if m.Has(Priority) {
		dst = append(dst, m.Priority)
	}
	if m.Has(TTL) {
		dst = binary.BigEndian.AppendUint32(dst, m.TTL)
	}
	n := len(m.Annotations) + len(m.DeliveryAnnotations)
	if m.Annotations == nil && m.DeliveryAnnotations != nil {
		dst = binary.AppendUvarint(dst, uint64(n+len(noAnnotations)))
		return append(append(dst, noAnnotations...), m.DeliveryAnnotations...)
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	return append(append(dst, m.Annotations...), m.DeliveryAnnotations...)
}

// Parse takes a stored message apart. The error wraps [ErrMalformed].
func Parse(b []byte) (m Message, err error) {
	if len(b) < 2 {
		return m, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	if b[0] != version || Flags(b[1])&^known != 0 {
		return m, fmt.Errorf("%w: version %d, flags %#x", ErrMalformed, b[0], b[1])
	}
	at, bare, ok := m.split(b)
	if !ok {
		return Message{}, ErrMalformed
	}
	m.Bare = b[bare:]
	if at == bare {
		return m, nil
	}
	n, ok := valueBytes(b[at:bare])
	if !ok {
		return Message{}, fmt.Errorf("%w: annotations of %d bytes", ErrMalformed, bare-at)
	}
	m.Annotations = b[at : at+n : at+n]
	if at += n; at < bare {
		m.DeliveryAnnotations = b[at:bare:bare]
	}
	return m, nil
}

// split reads the flags, the priority and the ttl. It returns where the annotations of both kinds begin, and the bare
// message behind them. It ignores flags that it does not know. Where ok is false, m has what stands in front of the
// first fault.
func (m *Message) split(b []byte) (annotations, bare int, ok bool) {
	if len(b) < 2 || b[0] != version {
		return 0, 0, false
	}
	m.Flags = Flags(b[1])
	at := 2
	if m.Has(Priority) {
		if len(b) <= at {
			return 0, 0, false
		}
		m.Priority = b[at]
		at++
	}
	if m.Has(TTL) {
		if len(b) < at+4 {
			return 0, 0, false
		}
		m.TTL = binary.BigEndian.Uint32(b[at:])
		at += 4
	}
	n, size := binary.Uvarint(b[at:])
	if size <= 0 || n > uint64(len(b)-at-size) {
		return 0, 0, false
	}
	at += size
	return at, at + int(n), true
}
