package fsm

// The shortest encoded forms; see the functions below.
const (
	minBodyUseBytes  = 12
	minSessionBytes  = 8
	minSeenBytes     = 18
	minRestoredBytes = 22
	minOriginBytes   = 5
)

// appendBackup appends the commands of backups.
func appendBackup(dst []byte, c Command) []byte {
	switch c := c.(type) {
	case *HoldForwards:
		dst = appendUint(append(dst, kindHoldForwards), c.Hold)
		return appendBool(appendTime(dst, c.For), c.Renew)
	case *Restore:
		return appendRestore(append(dst, kindRestore), c)
	case *Rehome:
		return appendRehome(append(dst, kindRehome), c)
	}
	return appendInternal(dst, c)
}

func (r *reader) backup(kind uint8) Command {
	switch kind {
	case kindHoldForwards:
		return &HoldForwards{Hold: r.uvarint(), For: r.millis(), Renew: r.boolean()}
	case kindRestore:
		return r.restore()
	case kindRehome:
		return r.rehome()
	}
	return r.internal(kind)
}

func appendRestore(dst []byte, c *Restore) []byte {
	dst = append(dst, byte(c.Step))
	if c.Step == RestoreBegin {
		return appendShareCounters(dst, &c.Counters)
	}
	dst = appendUint(dst, uint64(len(c.Bodies)))
	for i := range c.Bodies {
		dst = appendBytes(appendUpload(dst, c.Bodies[i].Rest), c.Bodies[i].Body)
		dst = appendUint(dst, uint64(len(c.Uses[i])))
		for k := range c.Uses[i] {
			dst = appendUse(dst, &c.Uses[i][k])
		}
	}
	dst = appendUint(dst, uint64(len(c.Sessions)))
	for i := range c.Sessions {
		in := &c.Sessions[i]
		dst = appendBytes(appendBool(appendString(dst, in.ID), in.HasState), in.State)
		dst = appendTime(appendUpload(appendTime(dst, in.StateAt), in.Parts), in.Rest)
	}
	dst = appendUint(dst, uint64(len(c.IDs)))
	for i := range c.IDs {
		dst = appendUint(appendTime(append(dst, c.IDs[i].Hash[:]...), c.IDs[i].At), c.IDs[i].Arrival)
	}
	dst = appendUint(dst, uint64(len(c.Records)))
	for i := range c.Records {
		dst = appendRestoredRecord(dst, &c.Records[i])
	}
	dst = appendUint(dst, uint64(len(c.Origins)))
	for i := range c.Origins {
		o := &c.Origins[i]
		dst = append(appendUint(appendUint(dst, uint64(o.Entity)), uint64(o.Partition)), byte(o.Sub))
		dst = appendUint(appendUint(dst, o.Below), uint64(len(o.Decided)))
		for _, d := range o.Decided {
			dst = append(appendUint(dst, d.Number), byte(d.Refusal))
		}
	}
	return dst
}

func (r *reader) restore() *Restore {
	c := &Restore{Step: RestoreStep(r.u8())}
	switch {
	case c.Step < RestoreBegin || c.Step > RestoreEnd:
		r.fail("unknown step of a restore")
		return c
	case c.Step == RestoreBegin:
		c.Counters = r.shareCounters()
		return c
	}
	if n := r.count(5); n > 0 {
		c.Bodies, c.Uses = make([]Message, n), make([][]BodyUse, n)
	}
	for i := range c.Bodies {
		b := &c.Bodies[i]
		b.Rest = r.upload()
		b.Body = r.bytes()
		b.BodyOffset = uint32(r.pos - len(b.Body))
		if n := r.count(minBodyUseBytes); n > 0 {
			c.Uses[i] = make([]BodyUse, n)
		}
		for k := range c.Uses[i] {
			c.Uses[i][k] = r.use()
		}
	}
	c.Sessions = listOf(r, minSessionBytes, func() RestoredSession {
		return RestoredSession{ID: r.string(), HasState: r.boolean(), State: r.optional(), StateAt: r.wall(),
			Parts: r.upload(), Rest: r.millis()}
	})
	c.IDs = listOf(r, minSeenBytes, func() (in RestoredID) {
		r.fixed(in.Hash[:])
		in.At, in.Arrival = r.wall(), r.uvarint()
		return in
	})
	c.Records = listOf(r, minRestoredBytes, r.restoredRecord)
	c.Origins = listOf(r, minOriginBytes, func() RestoredOrigin {
		o := RestoredOrigin{Entity: EntityID(r.uvarint()), Partition: PartitionID(r.u16()), Sub: r.sub(),
			Below: r.uvarint()}
		o.Decided = listOf(r, 2, func() Moved { return Moved{Number: r.uvarint(), Refusal: r.refusal()} })
		return o
	})
	return c
}

// listOf reads a count and so many values, each of at least min bytes; nil for none.
func listOf[T any](r *reader, min int, read func() T) []T {
	n := r.count(min)
	if n == 0 {
		return nil
	}
	list := make([]T, n)
	for i := range list {
		list[i] = read()
	}
	return list
}

func appendShareCounters(dst []byte, n *ShareCounters) []byte {
	dst = appendUint(appendUint(dst, n.Arrival), n.LastTransfer)
	for _, last := range n.Moves {
		dst = appendUint(dst, last)
	}
	for _, last := range n.Histories {
		dst = appendUint(dst, last)
	}
	dst = appendTime(appendTime(dst, n.Touched), n.Forgotten)
	return appendCounters(dst, &n.Drops)
}

func (r *reader) shareCounters() (n ShareCounters) {
	n.Arrival, n.LastTransfer = r.uvarint(), r.uvarint()
	for i := range n.Moves {
		n.Moves[i] = r.uvarint()
	}
	for i := range n.Histories {
		n.Histories[i] = r.uvarint()
	}
	n.Touched, n.Forgotten = r.wall(), r.wall()
	n.Drops = r.drops()
	return n
}

func appendUse(dst []byte, u *BodyUse) []byte {
	dst = appendBool(appendUint(dst, uint64(u.Entity)), u.IsRecord)
	if u.IsRecord {
		return appendRestoredRecord(dst, &u.Record)
	}
	m := &u.Message
	dst = appendUint(append(dst, byte(m.Sub)), m.Arrival)
	dst = appendUint(append(dst, byte(m.State)), uint64(m.Attempts))
	dst = appendTime(appendTime(dst, m.At), m.Expires)
	dst = appendString(appendBool(appendString(dst, m.MessageID), m.HasSession), m.SessionID)
	dst = appendBool(appendBool(appendTime(dst, m.Rest), m.HasFirst), m.Carried != nil)
	if m.Carried != nil {
		dst = appendCarried(dst, m.Carried)
	}
	dst = appendString(appendBool(appendTime(dst, m.ScheduledAt), m.InSession), m.DiedIn)
	dst = appendBool(appendUint(appendUint(dst, uint64(m.To)), uint64(m.Reserved)), m.Stuck)
	return appendUint(appendUint(dst, m.Transit), uint64(m.TransitTo))
}

func (r *reader) use() BodyUse {
	u := BodyUse{Entity: EntityID(r.uvarint()), IsRecord: r.boolean()}
	if u.IsRecord {
		u.Record = r.restoredRecord()
		return u
	}
	m := &u.Message
	m.Sub, m.Arrival = r.sub(), r.uvarint()
	if m.State = MessageState(r.u8()); m.State > StateScheduled {
		r.fail("unknown message state")
	}
	m.Attempts, m.At, m.Expires = r.u32(), r.wall(), r.wall()
	m.MessageID, m.HasSession, m.SessionID = r.string(), r.boolean(), r.string()
	m.Rest, m.HasFirst = r.millis(), r.boolean()
	if r.boolean() {
		m.Carried = r.carried()
	}
	m.ScheduledAt, m.InSession, m.DiedIn = r.wall(), r.boolean(), r.string()
	m.To, m.Reserved, m.Stuck = EntityID(r.uvarint()), SequenceNumber(r.uvarint()), r.boolean()
	m.Transit, m.TransitTo = r.uvarint(), EntityID(r.uvarint())
	return u
}

func appendRestoredRecord(dst []byte, in *RestoredRecord) []byte {
	return appendUint(appendHistory(append(dst, byte(in.Kind)), &in.HistoryRecord), in.Arrival)
}

func (r *reader) restoredRecord() RestoredRecord {
	in := RestoredRecord{Kind: HistoryKind(r.u8()), HistoryRecord: r.history(), Arrival: r.uvarint()}
	if in.Kind > Releases || in.Ref != (BodyRef{}) {
		r.fail("record of a restore")
	}
	return in
}
