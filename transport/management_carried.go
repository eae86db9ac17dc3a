package transport

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

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
	if len(d.Body) < apartFrom {
		c.payload, err = appendDelivery(nil, d, peeked)
	} else {
		c.payload, c.tail, err = splitDelivery(nil, d, peeked)
	}
	return c, err
}

// messages answers with a list of maps; it must be a list, not an array. next, if it is not 0, is where a peek goes on.
func (k *call) messages(list []carried, next fsm.SequenceNumber) response {
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
		return splitMessages(list, next)
	}
	answer := amqp.Map{{Key: "messages", Value: items}}
	if next != 0 {
		answer = append(answer, amqp.Pair{Key: nextNumber, Value: int64(next)})
	}
	body, err := amqp.AppendValue(nil, answer)
	if err != nil {
		k.s.log.Error("encode messages", "error", err)
		return k.fail(amqpError(amqp.ConditionInternalError, "internal error"))
	}
	return response{code: codeOK, body: body}
}

// nextNumber is where a peek with a filter goes on.
const nextNumber = "next-sequence-number"

// splitMessages encodes what messages does, in pieces.
func splitMessages(list []carried, next fsm.SequenceNumber) response {
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
	entries, last := 1, []byte(nil)
	if next != 0 {
		entries, last = 2, amqp.AppendLong(amqp.AppendString(nil, nextNumber), int64(next))
	}
	at := amqp.AppendMapStart(nil, entries, len(outer)+amqp.MapStartBytes+maps+len(last))
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
	if at = append(at, last...); len(at) > 0 {
		pieces = append(pieces, at)
	}
	return response{code: codeOK, body: pieces[0], tail: pieces[1:]}
}

// content is the size of the map of one message behind its start.
func (c *carried) content(key, behind []byte) int {
	return len(key) + amqp.BinaryStartBytes + len(c.payload) + len(c.tail) + len(behind)
}
