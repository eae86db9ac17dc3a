package fsm

// minDeliveryBytes is the shortest encoded delivery; see appendDelivery.
const minDeliveryBytes = 30

// AppendOutcome appends an outcome. Bodies of deliveries travel with it if withBodies is set; the
// remembered form of a result is written without.
func AppendOutcome(dst []byte, o *Outcome, withBodies bool) []byte {
	version := o.version()
	dst = append(dst, version, byte(o.Refusal))
	dst = appendString(dst, o.Detail)
	dst = appendBool(dst, o.Repeated)
	dst = appendUint(dst, uint64(len(o.Duplicate)))
	for _, d := range o.Duplicate {
		dst = appendBool(dst, d)
	}
	dst = appendNumbers(dst, o.Numbers)
	dst = appendTime(dst, o.EnqueuedAt)
	dst = appendDeliveries(dst, o.Locked, withBodies, version)
	dst = appendUint(dst, uint64(len(o.Refusals)))
	for _, f := range o.Refusals {
		dst = append(dst, byte(f))
	}
	dst = appendTime(dst, o.LockedUntil)
	dst = appendProof(dst, o.Session)
	dst = appendBytes(dst, o.Data)
	if version >= wireVersion2 {
		dst = appendUint(appendUint(dst, o.Count), o.Next)
	}
	if version >= wireVersion3 {
		dst = appendUint(dst, uint64(len(o.Ops)))
		for i := range o.Ops {
			dst = appendBytes(dst, AppendOutcome(nil, &o.Ops[i], withBodies))
		}
		dst = appendMoves(dst, o.Moves)
	}
	if version >= wireVersion6 {
		dst = append(dst, o.Shared[:]...)
	}
	return dst
}

// version is the oldest that can say what the outcome has.
func (o *Outcome) version() uint8 {
	switch {
	case !o.Shared.IsZero():
		return wireVersion6
	case anyRest(o.Locked):
		return wireVersion5
	case len(o.Ops) > 0 || len(o.Moves) > 0 || anySystem(o.Locked):
		return wireVersion3
	case o.Count != 0 || o.Next != 0:
		return wireVersion2
	}
	return wireVersion
}

func anySystem(ds []Delivery) bool {
	for i := range ds {
		if len(ds[i].System) > 0 {
			return true
		}
	}
	return false
}

// DecodeOutcome decodes an outcome; byte fields are views into b.
func DecodeOutcome(b []byte) (Outcome, error) { return decodeOutcome(b, true) }

// decodeOutcome decodes an outcome; only one of a commit may hold others.
func decodeOutcome(b []byte, nested bool) (Outcome, error) {
	r := reader{b: b}
	version := r.versions(wireVersion, wireVersion6)
	o := Outcome{Refusal: r.refusal(), Detail: r.string(), Repeated: r.boolean()}
	if n := r.count(1); n > 0 {
		o.Duplicate = make([]bool, n)
	}
	for i := range o.Duplicate {
		o.Duplicate[i] = r.boolean()
	}
	o.Numbers = r.numbers()
	o.EnqueuedAt = r.wall()
	o.Locked = r.deliveries(version)
	if n := r.count(1); n > 0 {
		o.Refusals = make([]Refusal, n)
	}
	for i := range o.Refusals {
		o.Refusals[i] = r.refusal()
	}
	o.LockedUntil = r.wall()
	o.Session = r.proof()
	o.Data = r.optional()
	if version >= wireVersion2 {
		o.Count, o.Next = r.uvarint(), r.uvarint()
	}
	if version >= wireVersion3 {
		o.Ops = r.outcomes(nested)
		o.Moves = r.moves()
	}
	if version >= wireVersion6 {
		r.fixed(o.Shared[:])
	}
	return o, r.end()
}

// optional reads bytes and gives nil for none.
func (r *reader) optional() []byte {
	if b := r.bytes(); len(b) > 0 {
		return b
	}
	return nil
}

func (r *reader) refusal() Refusal {
	f := Refusal(r.u8())
	if f >= lastRefusal {
		r.fail("unknown refusal")
	}
	return f
}

func appendDeliveries(dst []byte, ds []Delivery, withBodies bool, version uint8) []byte {
	dst = appendBool(dst, withBodies)
	dst = appendUint(dst, uint64(len(ds)))
	for i := range ds {
		dst = appendDelivery(dst, &ds[i])
		if version >= wireVersion3 {
			dst = appendSystem(dst, ds[i].System)
		}
		if version >= wireVersion5 {
			dst = appendRefs(dst, ds[i].Rest)
		}
		if withBodies {
			dst = appendBytes(dst, ds[i].Body)
		}
	}
	return dst
}

func (r *reader) deliveries(version uint8) []Delivery {
	withBodies := r.boolean()
	n := r.count(minDeliveryBytes)
	if n == 0 {
		return nil
	}
	ds := make([]Delivery, n)
	for i := range ds {
		if ds[i] = r.delivery(); r.err != nil {
			return nil
		}
		if version >= wireVersion3 {
			ds[i].System = r.system()
		}
		if version >= wireVersion5 {
			ds[i].Rest = r.refs()
		}
		if withBodies {
			ds[i].Body = r.optional()
		}
	}
	return ds
}

func appendDelivery(dst []byte, d *Delivery) []byte {
	dst = appendUint(dst, uint64(d.Seq))
	dst = appendUint(dst, uint64(d.EnqueuedSeq))
	dst = append(dst, d.Token[:]...)
	dst = appendTime(dst, d.LockedUntil)
	dst = appendTime(dst, d.EnqueuedAt)
	dst = appendTime(dst, d.ExpiresAt)
	dst = appendTime(dst, d.ScheduledAt)
	dst = appendUint(dst, uint64(d.Attempts))
	dst = append(dst, byte(d.State))
	dst = appendString(dst, d.Reason)
	dst = appendString(dst, d.Description)
	dst = appendString(dst, d.Source)
	dst = appendProperties(dst, d.Properties)
	dst = appendUint(dst, d.Ref.Index)
	dst = appendUint(dst, uint64(d.Ref.Offset))
	return appendUint(dst, uint64(d.Ref.Length))
}

func (r *reader) delivery() Delivery {
	d := Delivery{Seq: SequenceNumber(r.uvarint()), EnqueuedSeq: SequenceNumber(r.uvarint())}
	r.fixed(d.Token[:])
	d.LockedUntil = r.wall()
	d.EnqueuedAt = r.wall()
	d.ExpiresAt = r.wall()
	d.ScheduledAt = r.wall()
	d.Attempts = r.u32()
	if d.State = MessageState(r.u8()); d.State > StateScheduled {
		r.fail("unknown message state")
	}
	d.Reason = r.string()
	d.Description = r.string()
	d.Source = r.string()
	d.Properties = r.properties()
	d.Ref = BodyRef{Index: r.uvarint(), Offset: r.u32(), Length: r.u32()}
	return d
}

// AppendAnswer appends an answer with its bodies.
func AppendAnswer(dst []byte, a *Answer) []byte {
	version := a.version()
	dst = append(dst, version, byte(a.Refusal))
	dst = appendString(dst, a.Detail)
	dst = appendDeliveries(dst, a.Messages, true, version)
	dst = appendBool(dst, a.HasState)
	dst = appendBytes(dst, a.State)
	dst = appendUint(dst, uint64(len(a.Sessions)))
	for _, s := range a.Sessions {
		dst = appendString(dst, s)
	}
	c := &a.Counts
	for _, v := range [...]uint64{c.Active, c.Scheduled, c.DeadLetter, c.TransferDeadLetter, c.Transfer,
		c.Locked, c.Deferred, c.Sessions, c.SizeBytes} {
		dst = appendUint(dst, v)
	}
	dst = appendTime(dst, c.AccessedAt)
	dst = appendBytes(dst, a.Data)
	if version >= wireVersion2 {
		dst = appendMore(dst, a)
	}
	if version >= wireVersion3 {
		dst = appendMoves(dst, a.Moves)
	}
	if version >= wireVersion4 {
		dst = appendCounters(dst, &a.Counts.Dropped)
	}
	if version >= wireVersion5 {
		dst = appendRefs(dst, a.Parts)
	}
	if version >= wireVersion6 {
		for i := range a.Locks {
			dst = appendBool(dst, a.Locks[i].Shared)
		}
	}
	return dst
}

// DecodeAnswer decodes an answer; byte fields are views into b.
func DecodeAnswer(b []byte) (Answer, error) {
	r := reader{b: b}
	version := r.versions(wireVersion, wireVersion7)
	a := Answer{Refusal: r.refusal(), Detail: r.string(), Messages: r.deliveries(version),
		HasState: r.boolean(), State: r.bytes()}
	if !a.HasState {
		a.State = nil
	}
	if n := r.count(1); n > 0 {
		a.Sessions = make([]string, n)
	}
	for i := range a.Sessions {
		a.Sessions[i] = r.string()
	}
	c := &a.Counts
	for _, v := range [...]*uint64{&c.Active, &c.Scheduled, &c.DeadLetter, &c.TransferDeadLetter,
		&c.Transfer, &c.Locked, &c.Deferred, &c.Sessions, &c.SizeBytes} {
		*v = r.uvarint()
	}
	c.AccessedAt = r.wall()
	a.Data = r.optional()
	if version >= wireVersion2 {
		r.more(&a)
	}
	if version >= wireVersion3 {
		a.Moves = r.moves()
	}
	if version >= wireVersion4 {
		a.Counts.Dropped = r.drops()
	}
	if version >= wireVersion5 {
		a.Parts = r.refs()
	}
	if version >= wireVersion6 {
		for i := range a.Locks {
			a.Locks[i].Shared = r.boolean()
		}
	}
	return a, r.end()
}

func appendCounters(b []byte, d *Drops) []byte {
	b = appendUint(b, uint64(len(d)))
	for _, n := range d {
		b = appendUint(b, n)
	}
	return b
}

// drops reads what appendCounters wrote. An older version knew fewer reasons.
func (r *reader) drops() (d Drops) {
	n := r.count(1)
	if n > len(d) {
		r.fail("unknown reason of a drop")
		return d
	}
	for i := range n {
		if d[i] = r.uvarint(); d[i] > maxRestored {
			r.fail("counter too large")
		}
	}
	return d
}
