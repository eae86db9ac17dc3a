package fsm

// minDeliveryBytes is the shortest encoded delivery; see appendDelivery.
const minDeliveryBytes = 30

// AppendOutcome appends an outcome. Bodies of deliveries travel with it if withBodies is set; the
// remembered form of a result is written without.
func AppendOutcome(dst []byte, o *Outcome, withBodies bool) []byte {
	more := o.Count != 0 || o.Next != 0
	dst = append(dst, versionWith(more), byte(o.Refusal))
	dst = appendString(dst, o.Detail)
	dst = appendBool(dst, o.Repeated)
	dst = appendUint(dst, uint64(len(o.Duplicate)))
	for _, d := range o.Duplicate {
		dst = appendBool(dst, d)
	}
	dst = appendNumbers(dst, o.Numbers)
	dst = appendMillis(dst, o.EnqueuedAt)
	dst = appendDeliveries(dst, o.Locked, withBodies)
	dst = appendUint(dst, uint64(len(o.Refusals)))
	for _, f := range o.Refusals {
		dst = append(dst, byte(f))
	}
	dst = appendMillis(dst, o.LockedUntil)
	dst = appendProof(dst, o.Session)
	dst = appendBytes(dst, o.Data)
	if more {
		dst = appendUint(appendUint(dst, o.Count), o.Next)
	}
	return dst
}

func versionWith(more bool) uint8 {
	if more {
		return wireVersion2
	}
	return wireVersion
}

// DecodeOutcome decodes an outcome; byte fields are views into b.
func DecodeOutcome(b []byte) (Outcome, error) {
	r := reader{b: b}
	version := r.versions(wireVersion, wireVersion2)
	o := Outcome{Refusal: r.refusal(), Detail: r.string(), Repeated: r.boolean()}
	if n := r.count(1); n > 0 {
		o.Duplicate = make([]bool, n)
	}
	for i := range o.Duplicate {
		o.Duplicate[i] = r.boolean()
	}
	o.Numbers = r.numbers()
	o.EnqueuedAt = r.millis()
	o.Locked = r.deliveries()
	if n := r.count(1); n > 0 {
		o.Refusals = make([]Refusal, n)
	}
	for i := range o.Refusals {
		o.Refusals[i] = r.refusal()
	}
	o.LockedUntil = r.millis()
	o.Session = r.proof()
	o.Data = r.optional()
	if version == wireVersion2 {
		o.Count, o.Next = r.uvarint(), r.uvarint()
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
	if f > NodeExpired {
		r.fail("unknown refusal")
	}
	return f
}

func appendDeliveries(dst []byte, ds []Delivery, withBodies bool) []byte {
	dst = appendBool(dst, withBodies)
	dst = appendUint(dst, uint64(len(ds)))
	for i := range ds {
		dst = appendDelivery(dst, &ds[i])
		if withBodies {
			dst = appendBytes(dst, ds[i].Body)
		}
	}
	return dst
}

func (r *reader) deliveries() []Delivery {
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
	dst = appendMillis(dst, d.LockedUntil)
	dst = appendMillis(dst, d.EnqueuedAt)
	dst = appendMillis(dst, d.ExpiresAt)
	dst = appendMillis(dst, d.ScheduledAt)
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
	d.LockedUntil = r.millis()
	d.EnqueuedAt = r.millis()
	d.ExpiresAt = r.millis()
	d.ScheduledAt = r.millis()
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
	more := a.hasMore()
	dst = append(dst, versionWith(more), byte(a.Refusal))
	dst = appendString(dst, a.Detail)
	dst = appendDeliveries(dst, a.Messages, true)
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
	dst = appendMillis(dst, c.AccessedAt)
	dst = appendBytes(dst, a.Data)
	if more {
		dst = appendMore(dst, a)
	}
	return dst
}

// DecodeAnswer decodes an answer; byte fields are views into b.
func DecodeAnswer(b []byte) (Answer, error) {
	r := reader{b: b}
	version := r.versions(wireVersion, wireVersion2)
	a := Answer{Refusal: r.refusal(), Detail: r.string(), Messages: r.deliveries(),
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
	c.AccessedAt = r.millis()
	a.Data = r.optional()
	if version == wireVersion2 {
		r.more(&a)
	}
	return a, r.end()
}
