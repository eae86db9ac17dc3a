package transport

import (
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// A large body is in memory once while it is sent to a client. The sections before it are encoded apart, and the
// frames are written from both (docs/decisions/0043).

// totalBytes is the length of all pieces.
func totalBytes(pieces [][]byte) (n int) {
	for _, b := range pieces {
		n += len(b)
	}
	return n
}

// newParcel encodes a message for a client. A large body is not copied; scratch takes the rest.
func newParcel(scratch []byte, d *fsm.Delivery, peeked bool) (parcel, error) {
	if len(d.Body) <= keptScratch {
		payload, err := appendDelivery(scratch, d, peeked)
		return parcel{payload: payload}, err
	}
	payload, tail, err := splitDelivery(scratch, d, peeked)
	return parcel{payload: payload, tail: [][]byte{tail}}, err
}

const (
	// trustedBytes is how much of a message must have arrived before memory is taken for the size that its beginning
	// announces. A client that announces 100 MiB and sends none must not take them.
	trustedBytes = 8 << 20
	// storedSlack is what the stored form may take more than the message of a client that sent no message id.
	storedSlack = storedOverhead + propertiesOverhead
)

// grow appends payload to what has arrived of a message, of at most limit bytes. The memory of a large one is doubled
// up to the limit, because append would copy it more often than it is long. After trustedBytes it gets the size that
// its beginning announces at once, so that it is in memory once.
// taken is told how much that is.
func grow(to, payload []byte, limit int, taken func(bytes int)) []byte {
	if need := len(to) + len(payload); need > cap(to) && need > keptScratch {
		room := max(need, min(2*cap(to), limit))
		if len(to) >= trustedBytes {
			if size := amqp.AnnouncedBytes(to); size >= need && size <= limit {
				room = size + storedSlack
			}
			if taken != nil {
				taken(room)
			}
		}
		grown := make([]byte, len(to), room)
		copy(grown, to)
		to = grown
	}
	return append(to, payload...)
}

// splitDelivery is appendDelivery for all sections ahead of the body; tail is a view of the others.
func splitDelivery(dst []byte, d *fsm.Delivery, peeked bool) (head, tail []byte, err error) {
	at, _, err := bodyOf(d.Body)
	if err != nil {
		return dst, nil, err
	}
	front := *d
	front.Body = d.Body[:at:at]
	head, err = appendDelivery(dst, &front, peeked)
	return head, d.Body[at:], err
}

// bodyOf finds the body sections in a stored message: where they begin, or the footer if there are none,
// and how many bytes they have.
func bodyOf(b []byte) (at, size int, err error) {
	s, err := parseStored(b)
	if err != nil {
		return 0, 0, err
	}
	parts, err := amqp.ParseMessage(s.bare)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", errStored, err)
	}
	return len(b) - len(parts.Body) - len(parts.Footer), len(parts.Body), nil
}

// carried is a message inside a reply, encoded: tail is a view of a large body and follows payload.
type carried struct {
	payload []byte
	tail    []byte
	token   fsm.LockToken // zero without a lock
}

func carry(d *fsm.Delivery, peeked bool) (carried, error) {
	var c carried
	var err error
	if !peeked {
		c.token = d.Token
	}
	if len(d.Body) <= keptScratch {
		c.payload, err = appendDelivery(nil, d, peeked)
	} else {
		c.payload, c.tail, err = splitDelivery(nil, d, peeked)
	}
	return c, err
}

// messages answers with a list of maps; it must be a list, not an array.
func (k *call) messages(list []carried) response {
	large := false
	items := make(amqp.List, 0, len(list))
	for i := range list {
		c := &list[i]
		large = large || c.tail != nil
		m := amqp.Map{{Key: "message", Value: c.payload}}
		if !c.token.IsZero() {
			m = append(m, amqp.Pair{Key: "lock-token", Value: amqp.UUID(c.token)})
		}
		items = append(items, m)
	}
	if large {
		return splitMessages(list)
	}
	body, err := amqp.AppendValue(nil, amqp.Map{{Key: "messages", Value: items}})
	if err != nil {
		k.s.log.Error("encode messages", "error", err)
		return k.fail(amqpError(amqp.ConditionInternalError, "internal error"))
	}
	return response{code: codeOK, body: body}
}

// splitMessages encodes what messages does, in pieces.
func splitMessages(list []carried) response {
	key, tokenKey := amqp.AppendString(nil, "message"), amqp.AppendString(nil, "lock-token")
	maps := 0
	behind := make([][]byte, len(list)) // of each message
	for i := range list {
		if c := &list[i]; !c.token.IsZero() {
			behind[i] = amqp.AppendUUID(tokenKey[:len(tokenKey):len(tokenKey)], amqp.UUID(c.token))
		}
		maps += amqp.MapStartBytes + list[i].content(key, behind[i])
	}
	outer := amqp.AppendString(nil, "messages")
	at := amqp.AppendMapStart(nil, 1, len(outer)+amqp.MapStartBytes+maps)
	at = amqp.AppendListStart(append(at, outer...), len(list), maps)
	var pieces [][]byte
	for i := range list {
		c := &list[i]
		pairs := 1
		if behind[i] != nil {
			pairs = 2
		}
		at = append(amqp.AppendMapStart(at, pairs, c.content(key, behind[i])), key...)
		at = append(amqp.AppendBinaryStart(at, len(c.payload)+len(c.tail)), c.payload...)
		if c.tail != nil {
			pieces = append(pieces, at, c.tail)
			at = nil
		}
		at = append(at, behind[i]...)
	}
	if len(at) > 0 {
		pieces = append(pieces, at)
	}
	return response{code: codeOK, body: pieces[0], tail: pieces[1:]}
}

// content is the size of the map of one message behind its start.
func (c *carried) content(key, behind []byte) int {
	return len(key) + amqp.BinaryStartBytes + len(c.payload) + len(c.tail) + len(behind)
}
