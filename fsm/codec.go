package fsm

import "errors"

// ErrFormat is wrapped by every decoding error: the bytes are not of this format or version.
var ErrFormat = errors.New("malformed bytes")

// Versions of the binary forms (docs/formats/entry.md). A change of a form needs a new number, and
// the old one stays readable as long as a log or snapshot may hold it.
const (
	entryMagic   = 0xB5
	EntryVersion = 1 // of log entries; a hard setting of a data directory
	wireVersion  = 1 // requests, outcomes, queries and answers between nodes
	// wireVersion2 is that of outcomes and answers with what version 1 has no field for. They are
	// written so only if one of these fields is set.
	wireVersion2 = 2
	wireVersion3 = 3
	wireVersion4 = 4 // of answers alone
	wireVersion5 = 5 // of what lies in parts
	wireVersion6 = 6 // of sessions without exclusion
	wireVersion7 = 7 // of locks that an operator took back
)

func (r *reader) sub() SubQueue {
	s := SubQueue(r.u8())
	if s > TransferQueue {
		r.fail("unknown subqueue")
	}
	return s
}

func appendProof(dst []byte, p SessionProof) []byte {
	dst = appendString(dst, p.ID)
	if p.Token.IsZero() {
		return append(dst, 0)
	}
	return append(append(dst, 1), p.Token[:]...)
}

func (r *reader) proof() SessionProof {
	p := SessionProof{ID: r.string()}
	if r.boolean() {
		r.fixed(p.Token[:])
	}
	return p
}

func appendProperties(dst []byte, ps []Property) []byte {
	dst = appendUint(dst, uint64(len(ps)))
	for i := range ps {
		dst = appendString(dst, ps[i].Key)
		dst = appendBytes(dst, ps[i].Value)
	}
	return dst
}

func (r *reader) properties() []Property {
	n := r.count(2)
	if n == 0 {
		return nil
	}
	ps := make([]Property, n)
	for i := range ps {
		ps[i] = Property{Key: r.string(), Value: r.optional()}
	}
	return ps
}

func appendTokens(dst []byte, ts []LockToken) []byte {
	dst = appendUint(dst, uint64(len(ts)))
	for i := range ts {
		dst = append(dst, ts[i][:]...)
	}
	return dst
}

func (r *reader) tokens() []LockToken {
	n := r.count(len(LockToken{}))
	if n == 0 {
		return nil
	}
	ts := make([]LockToken, n)
	for i := range ts {
		r.fixed(ts[i][:])
	}
	return ts
}

func appendNumbers(dst []byte, ns []SequenceNumber) []byte {
	dst = appendUint(dst, uint64(len(ns)))
	for _, n := range ns {
		dst = appendUint(dst, uint64(n))
	}
	return dst
}

func (r *reader) numbers() []SequenceNumber {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	ns := make([]SequenceNumber, n)
	for i := range ns {
		ns[i] = SequenceNumber(r.uvarint())
	}
	return ns
}
