package fsm

import "encoding/binary"

// minRequestBytes is the shortest encoded request: node 8, pump, counter, entity, sub, kind.
const minRequestBytes = 13

// AppendEntry appends the versioned binary form of e (docs/formats/entry.md).
func AppendEntry(dst []byte, e *Entry) []byte {
	dst = append(dst, entryMagic, EntryVersion)
	dst = appendTime(dst, e.Wall)
	dst = appendTime(dst, e.Lease)
	dst = appendUint(dst, e.Epoch)
	dst = append(dst, e.Seed[:]...)
	dst = appendUint(dst, uint64(len(e.Requests)))
	for i := range e.Requests {
		dst = appendRequest(dst, &e.Requests[i])
	}
	return dst
}

// DecodeEntry decodes what AppendEntry wrote. Byte fields of the result are views into b; message
// bodies get their BodyOffset in b.
func DecodeEntry(b []byte) (*Entry, error) {
	r := reader{b: b}
	if m := r.u8(); r.err == nil && m != entryMagic {
		r.pos--
		r.fail("not a log entry")
	}
	r.version(EntryVersion)
	e := &Entry{Wall: r.wall(), Lease: r.lease(), Epoch: r.uvarint()}
	r.fixed(e.Seed[:])
	if n := r.count(minRequestBytes); n > 0 {
		e.Requests = make([]Request, n)
	}
	for i := range e.Requests {
		if e.Requests[i] = r.request(); r.err != nil {
			break
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return e, nil
}

// AppendRequest appends one request alone, for another node.
func AppendRequest(dst []byte, q *Request) []byte {
	return appendRequest(append(dst, wireVersion), q)
}

// DecodeRequest decodes one request; byte fields are views into b.
func DecodeRequest(b []byte) (Request, error) {
	r := reader{b: b}
	r.version(wireVersion)
	q := r.request()
	return q, r.end()
}

func appendRequest(dst []byte, q *Request) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(q.ID.Node))
	dst = appendUint(dst, q.ID.Pump)
	dst = appendUint(dst, q.ID.Counter)
	dst = appendUint(dst, uint64(q.Entity))
	dst = append(dst, byte(q.Sub))
	return appendCommand(dst, q.Command)
}

func (r *reader) request() Request {
	q := Request{
		ID:     RequestID{Node: Incarnation(r.u64()), Pump: r.uvarint(), Counter: r.uvarint()},
		Entity: EntityID(r.uvarint()),
		Sub:    r.sub(),
	}
	q.Command = r.command()
	return q
}

// AppendQuery appends a query request.
func AppendQuery(dst []byte, q *QueryRequest) []byte {
	dst = append(dst, wireVersion)
	dst = appendUint(dst, uint64(q.Entity))
	dst = append(dst, byte(q.Sub))
	switch q := q.Query.(type) {
	case *Peek:
		dst = append(dst, 1)
		dst = appendUint(dst, uint64(q.From))
		dst = appendUint(dst, uint64(q.Max))
		dst = appendUint(dst, uint64(q.MaxBytes))
		dst = appendBool(dst, q.HasSession)
		return appendString(dst, q.Session)
	case *GetSessionState:
		return appendProof(append(dst, 2), q.Session)
	case *Counts:
		return append(dst, 3)
	case *ListSessions:
		dst = append(dst, 4)
		dst = appendString(dst, q.After)
		dst = appendBool(dst, q.HasAfter)
		dst = appendUint(dst, uint64(q.Max))
		return appendTime(dst, q.UpdatedAfter)
	case *Ask:
		return appendBytes(append(dst, 5), q.Data)
	case *Idle:
		return append(dst, 6)
	case *Browse:
		dst = appendUint(append(dst, 9), uint64(q.From))
		dst = appendUint(appendUint(dst, q.After), uint64(q.Max))
		dst = appendBool(append(appendUint(dst, uint64(q.MaxBytes)), q.States), q.HasSession)
		return appendString(dst, q.Session)
	case *ListLocks:
		return appendUint(appendUint(append(dst, 7), q.After), uint64(q.Max))
	case *History:
		dst = appendUint(append(dst, 8, byte(q.Kind)), q.After)
		return appendUint(appendUint(dst, uint64(q.Max)), uint64(q.MaxBytes))
	case *ReadBody:
		return appendRefs(append(dst, 11), q.Refs)
	case *Moving:
		return appendUint(appendUint(appendUint(append(dst, 10), q.After), uint64(q.Max)), uint64(q.MaxBytes))
	}
	panic("fsm: query of a foreign type")
}

// DecodeQuery decodes a query request; byte fields are views into b.
func DecodeQuery(b []byte) (QueryRequest, error) {
	r := reader{b: b}
	r.version(wireVersion)
	q := QueryRequest{Entity: EntityID(r.uvarint()), Sub: r.sub()}
	switch kind := r.u8(); kind {
	case 1:
		q.Query = &Peek{From: SequenceNumber(r.uvarint()), Max: r.u32(), MaxBytes: r.u32(),
			HasSession: r.boolean(), Session: r.string()}
	case 2:
		q.Query = &GetSessionState{Session: r.proof()}
	case 3:
		q.Query = &Counts{}
	case 4:
		q.Query = &ListSessions{After: r.string(), HasAfter: r.boolean(), Max: r.u32(),
			UpdatedAfter: r.wall()}
	case 5:
		q.Query = &Ask{Data: r.bytes()}
	case 6:
		q.Query = &Idle{}
	case 9:
		q.Query = &Browse{From: SequenceNumber(r.uvarint()), After: r.uvarint(), Max: r.u32(),
			MaxBytes: r.u32(), States: r.u8(), HasSession: r.boolean(), Session: r.string()}
	case 7:
		q.Query = &ListLocks{After: r.uvarint(), Max: r.u32()}
	case 8:
		q.Query = &History{Kind: HistoryKind(r.u8()), After: r.uvarint(), Max: r.u32(), MaxBytes: r.u32()}
	case 10:
		q.Query = &Moving{After: r.uvarint(), Max: r.u32(), MaxBytes: r.u32()}
	case 11:
		q.Query = &ReadBody{Refs: r.refs()}
	default:
		r.fail("unknown query kind")
	}
	return q, r.end()
}
