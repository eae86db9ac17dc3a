package fsm

import "encoding/binary"

// Kinds of command in an entry. Numbers are for ever.
const (
	kindEnqueue uint8 = 1 + iota
	kindLock
	kindSettle
	kindRenew
	kindAcceptSession
	kindRenewSession
	kindReleaseSession
	kindSetSessionState
	kindReceive
	kindCancel
	kindDropLocks
	kindDropPumps
	kindNodeLost
	kindPutEntity
	kindDropEntity
	kindBecomeLeader
	kindTick
	kindBarrier
	kindChange
	kindEnqueueKeyed // Enqueue with partition keys
	kindDeleteMessages
	kindTouch
	kindRedrive
	kindEnqueueMoved // Enqueue with an origin, or with carried messages
	kindCommit
	kindTransfer
	kindForward
	kindRedriveTo // Redrive to another entity
	kindDiscard   // Redrive that deletes
	kindRevoke
	kindBodyPart
	kindLarge        // Enqueue or Transfer with messages that refer to uploads
	kindLargeState   // SetSessionState that refers to an upload
	kindAcceptShared // AcceptSession without exclusion
	kindLeaveSession // ReleaseSession of a receiver from which the session was taken over
	kindWatchSession
	kindReserve
	kindReserved // Enqueue or Transfer with messages that have reserved numbers
	kindRevokeBy // Revoke that names its operator
	kindHoldForwards
	kindRestore
	kindRehome
	kindChosen // Redrive of the messages with given numbers
)

// minMessageBytes is the shortest encoded message: flags, three lengths or times, body length.
const minMessageBytes = 5

func appendCommand(dst []byte, c Command) []byte {
	switch c := c.(type) {
	case *Enqueue:
		return appendEnqueue(dst, c)
	case *Lock:
		dst = appendProof(append(dst, kindLock), c.Session)
		dst = appendUint(dst, uint64(c.Max))
		dst = appendUint(dst, uint64(c.MaxBytes))
		dst = appendBool(dst, c.Delete)
		return appendTime(dst, c.Wait)
	case *Settle:
		return appendSettle(append(dst, kindSettle), c)
	case *Renew:
		return appendTokens(append(dst, kindRenew), c.Tokens)
	case *AcceptSession:
		return appendAccept(dst, c)
	case *WatchSession:
		return appendTime(appendProof(append(dst, kindWatchSession), c.Session), c.Wait)
	case *RenewSession:
		return appendProof(append(dst, kindRenewSession), c.Session)
	case *ReleaseSession:
		return appendRelease(dst, c)
	case *SetSessionState:
		if c.Rest != (Upload{}) {
			return appendUpload(appendProof(append(dst, kindLargeState), c.Session), c.Rest)
		}
		dst = appendProof(append(dst, kindSetSessionState), c.Session)
		return appendBytes(appendBool(dst, c.Clear), c.State)
	case *Receive:
		dst = appendProof(append(dst, kindReceive), c.Session)
		return appendBool(appendNumbers(dst, c.Numbers), c.Delete)
	case *Cancel:
		return appendNumbers(append(dst, kindCancel), c.Numbers)
	case *DeleteMessages:
		dst = appendTime(appendProof(append(dst, kindDeleteMessages), c.Session), c.Before)
		return appendUint(dst, uint64(c.Max))
	case *Redrive:
		kind := kindRedrive
		switch {
		case len(c.Numbers) > 0:
			dst = appendUint(append(dst, kindChosen), uint64(c.To))
			return appendNumbers(appendBool(dst, c.Discard), c.Numbers)
		case c.To != 0:
			kind = kindRedriveTo
		case c.Discard:
			kind = kindDiscard
		}
		dst = appendString(appendBool(append(dst, kind), c.HasReason), c.Reason)
		dst = appendString(appendBool(dst, c.HasSession), c.Session)
		dst = appendTime(appendTime(dst, c.From), c.Until)
		dst = appendUint(appendUint(dst, c.After), uint64(c.Max))
		if c.To != 0 {
			dst = appendUint(dst, uint64(c.To))
		}
		return dst
	case *DropLocks:
		return appendTime(appendTokens(append(dst, kindDropLocks), c.Tokens), c.Grace)
	}
	return appendMoving(dst, c)
}

// appendInternal appends the commands that no client sends.
func appendInternal(dst []byte, c Command) []byte {
	switch c := c.(type) {
	case *DropPumps:
		dst = binary.LittleEndian.AppendUint64(append(dst, kindDropPumps), uint64(c.Node))
		dst = appendUint(dst, uint64(len(c.Pumps)))
		for _, p := range c.Pumps {
			dst = appendUint(dst, p)
		}
		return dst
	case *NodeLost:
		return binary.LittleEndian.AppendUint64(append(dst, kindNodeLost), uint64(c.Node))
	case *PutEntity:
		return AppendDescriptor(append(dst, kindPutEntity), &c.Descriptor)
	case *DropEntity:
		return append(dst, kindDropEntity)
	case *BecomeLeader:
		return appendString(append(dst, kindBecomeLeader), string(c.Node))
	case *Tick:
		dst = appendUint(append(dst, kindTick), uint64(len(c.Listeners)))
		for _, id := range c.Listeners {
			dst = appendUint(dst, uint64(id))
		}
		return dst
	case *Barrier:
		return append(dst, kindBarrier)
	case *Touch:
		return append(dst, kindTouch)
	case *Revoke:
		return appendRevoke(dst, c)
	case *Change:
		return appendBytes(append(dst, kindChange), c.Data)
	}
	panic("fsm: command of a foreign type")
}

func (r *reader) command() Command {
	switch kind := r.u8(); kind {
	case kindEnqueue, kindEnqueueKeyed:
		return r.enqueue(kind == kindEnqueueKeyed)
	case kindLock:
		return &Lock{Session: r.proof(), Max: r.u32(), MaxBytes: r.u32(), Delete: r.boolean(),
			Wait: r.millis()}
	case kindSettle:
		return r.settle()
	case kindRenew:
		return &Renew{Tokens: r.tokens()}
	case kindAcceptSession:
		return &AcceptSession{ID: r.string(), Next: r.boolean(), Wait: r.millis()}
	case kindRenewSession:
		return &RenewSession{Session: r.proof()}
	case kindReleaseSession:
		return &ReleaseSession{Session: r.proof(), Orderly: r.boolean()}
	case kindSetSessionState:
		return &SetSessionState{Session: r.proof(), Clear: r.boolean(), State: r.bytes()}
	case kindReceive:
		return &Receive{Session: r.proof(), Numbers: r.numbers(), Delete: r.boolean()}
	case kindCancel:
		return &Cancel{Numbers: r.numbers()}
	case kindDeleteMessages:
		return &DeleteMessages{Session: r.proof(), Before: r.wall(), Max: r.u32()}
	case kindRedrive, kindRedriveTo, kindDiscard:
		c := &Redrive{HasReason: r.boolean(), Reason: r.string(), HasSession: r.boolean(),
			Session: r.string(), From: r.wall(), Until: r.wall(), After: r.uvarint(), Max: r.u32(),
			Discard: kind == kindDiscard}
		if kind == kindRedriveTo {
			if c.To = EntityID(r.uvarint()); c.To == 0 {
				r.fail("no destination")
			}
		}
		return c
	case kindChosen:
		c := &Redrive{To: EntityID(r.uvarint()), Discard: r.boolean(), Numbers: r.numbers()}
		if len(c.Numbers) == 0 {
			r.fail("no numbers")
		}
		return c
	case kindDropLocks:
		return &DropLocks{Tokens: r.tokens(), Grace: r.millis()}
	default:
		return r.moving(kind)
	}
}

func (r *reader) internal(kind uint8) Command {
	switch kind {
	case kindDropPumps:
		c := &DropPumps{Node: Incarnation(r.u64())}
		if n := r.count(1); n > 0 {
			c.Pumps = make([]uint64, n)
		}
		for i := range c.Pumps {
			c.Pumps[i] = r.uvarint()
		}
		return c
	case kindNodeLost:
		return &NodeLost{Node: Incarnation(r.u64())}
	case kindPutEntity:
		return &PutEntity{Descriptor: r.descriptor()}
	case kindDropEntity:
		return &DropEntity{}
	case kindBecomeLeader:
		return &BecomeLeader{Node: NodeID(r.string())}
	case kindTick:
		c := &Tick{}
		if n := r.count(1); n > 0 {
			c.Listeners = make([]EntityID, n)
		}
		for i := range c.Listeners {
			c.Listeners[i] = EntityID(r.uvarint())
		}
		return c
	case kindBarrier:
		return &Barrier{}
	case kindTouch:
		return &Touch{}
	case kindRevoke, kindRevokeBy:
		return r.revoke(kind == kindRevokeBy)
	case kindChange:
		return &Change{Data: r.bytes()}
	}
	r.fail("unknown command kind")
	return nil
}

// appendEnqueue takes the kind with partition keys only if there are some.
func appendEnqueue(dst []byte, c *Enqueue) []byte {
	kind := kindEnqueue
	dst = appendUploads(appendReserved(dst, c.Messages), c.Messages)
	for i := range c.Messages {
		if c.Messages[i].PartitionKey != "" {
			kind = kindEnqueueKeyed
		}
		if c.Origin != nil || c.Messages[i].Carried != nil {
			return appendMoved(append(dst, kindEnqueueMoved), c)
		}
	}
	dst = appendUint(append(dst, kind), uint64(len(c.Messages)))
	for i := range c.Messages {
		if kind == kindEnqueueKeyed {
			dst = appendString(dst, c.Messages[i].PartitionKey)
		}
		dst = appendMessage(dst, &c.Messages[i])
	}
	return dst
}

func (r *reader) enqueue(keyed bool) *Enqueue {
	c := &Enqueue{}
	if n := r.count(minMessageBytes); n > 0 {
		c.Messages = make([]Message, n)
	}
	for i := range c.Messages {
		key := ""
		if keyed {
			key = r.string()
		}
		c.Messages[i] = r.message()
		c.Messages[i].PartitionKey = key
	}
	return c
}

func appendMessage(dst []byte, m *Message) []byte {
	dst = appendString(appendBool(dst, m.HasSession), m.SessionID)
	dst = appendString(dst, m.MessageID)
	dst = appendTime(dst, m.TTL)
	dst = appendTime(dst, m.ScheduledAt)
	return appendBytes(dst, m.Body)
}

func (r *reader) message() Message {
	m := Message{HasSession: r.boolean(), SessionID: r.string(), MessageID: r.string(),
		TTL: r.millis(), ScheduledAt: r.wall()}
	m.Body = r.bytes()
	m.BodyOffset = uint32(r.pos - len(m.Body))
	return m
}

// minSettleBytes is the shortest encoded item: number, token, verdict, delay, two texts, a count.
const minSettleBytes = 22

func appendSettle(dst []byte, c *Settle) []byte {
	dst = appendProof(dst, c.Session)
	dst = appendUint(dst, uint64(len(c.Items)))
	for i := range c.Items {
		it := &c.Items[i]
		dst = appendUint(dst, uint64(it.Seq))
		dst = append(dst, it.Token[:]...)
		dst = append(dst, byte(it.Verdict))
		dst = appendTime(dst, it.Delay)
		dst = appendString(dst, it.Reason)
		dst = appendString(dst, it.Description)
		dst = appendProperties(dst, it.Properties)
	}
	return dst
}

func (r *reader) settle() *Settle {
	c := &Settle{Session: r.proof()}
	if n := r.count(minSettleBytes); n > 0 {
		c.Items = make([]SettleItem, n)
	}
	for i := range c.Items {
		it := &c.Items[i]
		it.Seq = SequenceNumber(r.uvarint())
		r.fixed(it.Token[:])
		if it.Verdict = Verdict(r.u8()); it.Verdict < Complete || it.Verdict > Return {
			r.fail("unknown verdict")
		}
		it.Delay = r.millis()
		it.Reason = r.string()
		it.Description = r.string()
		it.Properties = r.properties()
	}
	return c
}

func appendRevoke(dst []byte, c *Revoke) []byte {
	kind := kindRevoke
	if c.Operator != "" {
		kind = kindRevokeBy
	}
	dst = appendUint(append(dst, kind), uint64(c.Number))
	dst = appendUint(binary.LittleEndian.AppendUint64(dst, uint64(c.Node)), c.Pump)
	dst = appendString(appendBool(dst, c.HasSession), c.Session)
	if kind == kindRevokeBy {
		dst = appendString(dst, c.Operator)
	}
	return dst
}

func (r *reader) revoke(named bool) *Revoke {
	c := &Revoke{Number: SequenceNumber(r.uvarint()), Node: Incarnation(r.u64()), Pump: r.uvarint(),
		HasSession: r.boolean(), Session: r.string()}
	if named {
		if c.Operator = r.string(); c.Operator == "" {
			r.fail("no operator")
		}
	}
	return c
}
