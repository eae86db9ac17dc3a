package fsm

import (
	"github.com/busbar-mq/busbar/fsm/rule"
)

// The shortest encoded forms; see the functions below.
const (
	minOpBytes      = 3
	minMovedBytes   = 3
	minMoveBytes    = 4
	minSystemBytes  = 2
	minOutcomeBytes = 13
	// maxTransactionID bounds what a transaction may be called.
	maxTransactionID = 64
)

// appendMoving appends the commands of transactions and of what moves between entities.
func appendMoving(dst []byte, c Command) []byte {
	switch c := c.(type) {
	case *Commit:
		dst = appendUint(appendBytes(append(dst, kindCommit), c.ID), uint64(len(c.Ops)))
		for i := range c.Ops {
			op := &c.Ops[i]
			dst = append(appendUint(dst, uint64(op.Entity)), byte(op.Sub))
			dst = appendCommand(dst, op.Command)
		}
		return dst
	case *Transfer:
		dst = appendUploads(appendReserved(dst, c.Messages), c.Messages)
		dst = appendUint(append(dst, kindTransfer), uint64(c.To))
		dst = appendUint(dst, uint64(len(c.Messages)))
		for i := range c.Messages {
			dst = appendString(dst, c.Messages[i].PartitionKey)
			dst = appendMessage(dst, &c.Messages[i])
		}
		return dst
	case *Forward:
		dst = appendUint(appendUint(append(dst, kindForward), c.Epoch), uint64(len(c.Done)))
		for i := range c.Done {
			dst = append(appendUint(dst, c.Done[i].Number), byte(c.Done[i].Refusal))
			dst = appendString(dst, c.Done[i].Detail)
		}
		dst = appendUint(appendUint(dst, uint64(c.To)), uint64(c.Max))
		return appendUint(dst, uint64(c.MaxBytes))
	}
	return appendLarge(dst, c)
}

func (r *reader) moving(kind uint8) Command {
	switch kind {
	case kindEnqueueMoved:
		return r.moved()
	case kindCommit:
		return r.commit()
	case kindTransfer:
		c := &Transfer{To: EntityID(r.uvarint())}
		c.Messages = r.enqueue(true).Messages
		return c
	case kindForward:
		c := &Forward{Epoch: r.uvarint()}
		if n := r.count(minMovedBytes); n > 0 {
			c.Done = make([]Moved, n)
		}
		for i := range c.Done {
			c.Done[i] = Moved{Number: r.uvarint(), Refusal: r.refusal(), Detail: r.string()}
		}
		c.To, c.Max, c.MaxBytes = EntityID(r.uvarint()), r.u32(), r.u32()
		return c
	}
	return r.sharedSession(kind)
}

func (r *reader) commit() Command {
	c := &Commit{ID: r.optional()}
	if n := r.count(minOpBytes); n > 0 {
		c.Ops = make([]Op, n)
	}
	for i := range c.Ops {
		op := Op{Entity: EntityID(r.uvarint()), Sub: r.sub()}
		if r.left() > 0 && r.b[r.pos] == kindCommit {
			r.fail("transaction in a transaction") // decoding nests no deeper than this
		}
		if op.Command = r.command(); r.err != nil {
			return nil
		}
		c.Ops[i] = op
	}
	return c
}

// appendMoved appends an Enqueue of messages that were somewhere else before.
func appendMoved(dst []byte, c *Enqueue) []byte {
	dst = appendBool(dst, c.Origin != nil)
	if o := c.Origin; o != nil {
		dst = appendUint(appendUint(dst, uint64(o.Entity)), uint64(o.Partition))
		dst = appendUint(append(dst, byte(o.Sub)), o.Below)
		dst = appendUint(dst, uint64(len(o.Numbers)))
		for _, n := range o.Numbers {
			dst = appendUint(dst, n)
		}
	}
	dst = appendUint(dst, uint64(len(c.Messages)))
	for i := range c.Messages {
		m := &c.Messages[i]
		dst = appendBool(appendString(dst, m.PartitionKey), m.Carried != nil)
		if m.Carried != nil {
			dst = appendCarried(dst, m.Carried)
		}
		dst = appendMessage(dst, m)
	}
	return dst
}

func (r *reader) moved() *Enqueue {
	c := &Enqueue{}
	if r.boolean() {
		o := &Origin{Entity: EntityID(r.uvarint()), Partition: PartitionID(r.u16()), Sub: r.sub(),
			Below: r.uvarint()}
		if n := r.count(1); n > 0 {
			o.Numbers = make([]uint64, n)
		}
		for i := range o.Numbers {
			o.Numbers[i] = r.uvarint()
		}
		c.Origin = o
	}
	if n := r.count(minMessageBytes); n > 0 {
		c.Messages = make([]Message, n)
	}
	for i := range c.Messages {
		key := r.string()
		var carried *Carried
		if r.boolean() {
			carried = r.carried()
		}
		c.Messages[i] = r.message()
		c.Messages[i].PartitionKey, c.Messages[i].Carried = key, carried
	}
	return c
}

func appendCarried(dst []byte, c *Carried) []byte {
	dst = append(appendUint(dst, uint64(c.EnqueuedSeq)), c.Hops)
	dst = appendString(appendString(appendString(dst, c.Reason), c.Description), c.Source)
	return appendSystem(appendProperties(dst, c.Properties), c.System)
}

func (r *reader) carried() *Carried {
	return &Carried{EnqueuedSeq: SequenceNumber(r.uvarint()), Hops: r.u8(), Reason: r.string(),
		Description: r.string(), Source: r.string(), Properties: r.properties(), System: r.system()}
}

func appendSystem(dst []byte, list []SystemValue) []byte {
	dst = appendUint(dst, uint64(len(list)))
	for i := range list {
		dst = appendBytes(append(dst, byte(list[i].Property)), list[i].Value)
	}
	return dst
}

func (r *reader) system() []SystemValue {
	n := r.count(minSystemBytes)
	if n == 0 {
		return nil
	}
	list := make([]SystemValue, n)
	for i := range list {
		list[i] = SystemValue{Property: rule.SystemProperty(r.u8()), Value: r.optional()}
	}
	return list
}

func appendMoves(dst []byte, moves []Move) []byte {
	dst = appendUint(dst, uint64(len(moves)))
	for i := range moves {
		m := &moves[i]
		dst = append(appendUint(appendUint(dst, m.Number), uint64(m.To)), m.Hops)
		dst = appendTime(dst, m.TTL)
	}
	return dst
}

func (r *reader) moves() []Move {
	n := r.count(minMoveBytes)
	if n == 0 {
		return nil
	}
	moves := make([]Move, n)
	for i := range moves {
		moves[i] = Move{Number: r.uvarint(), To: EntityID(r.uvarint()), Hops: r.u8(), TTL: r.millis()}
	}
	return moves
}

func (r *reader) outcomes(nested bool) []Outcome {
	n := r.count(minOutcomeBytes)
	if n == 0 {
		return nil
	}
	if !nested {
		r.fail("outcome in an outcome of an outcome")
		return nil
	}
	list := make([]Outcome, n)
	for i := range list {
		o, err := decodeOutcome(r.bytes(), false)
		if err != nil {
			r.fail("outcome of an operation: " + err.Error())
			return nil
		}
		list[i] = o
	}
	return list
}

func appendAccept(dst []byte, c *AcceptSession) []byte {
	kind := kindAcceptSession
	if c.Shared {
		kind = kindAcceptShared
	}
	dst = appendTime(appendBool(appendString(append(dst, kind), c.ID), c.Next), c.Wait)
	if c.Shared {
		dst = append(dst, c.Presented[:]...)
	}
	return dst
}

func appendRelease(dst []byte, c *ReleaseSession) []byte {
	kind := kindReleaseSession
	if len(c.Unsent) > 0 || c.Unsure {
		kind = kindLeaveSession
	}
	dst = appendBool(appendProof(append(dst, kind), c.Session), c.Orderly)
	if kind == kindLeaveSession {
		dst = appendTokens(appendBool(dst, c.Unsure), c.Unsent)
	}
	return dst
}

func (r *reader) sharedSession(kind uint8) Command {
	switch kind {
	case kindAcceptShared:
		c := &AcceptSession{ID: r.string(), Next: r.boolean(), Wait: r.millis(), Shared: true}
		r.fixed(c.Presented[:])
		return c
	case kindLeaveSession:
		return &ReleaseSession{Session: r.proof(), Orderly: r.boolean(), Unsure: r.boolean(), Unsent: r.tokens()}
	case kindWatchSession:
		return &WatchSession{Session: r.proof(), Wait: r.millis()}
	}
	return r.large(kind)
}
