package fsm

import (
	"encoding/binary"
	"slices"
)

// The shortest encoded record and lock; see the functions below.
const (
	minRecordBytes = 21
	minLockBytes   = 20
)

func appendID(dst []byte, id RequestID) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(id.Node))
	return appendUint(appendUint(dst, id.Pump), id.Counter)
}

func (r *reader) id() RequestID {
	return RequestID{Node: Incarnation(r.u64()), Pump: r.uvarint(), Counter: r.uvarint()}
}

func appendRef(dst []byte, ref BodyRef) []byte {
	dst = appendUint(dst, ref.Index)
	dst = appendUint(dst, uint64(ref.Offset))
	return appendUint(dst, uint64(ref.Length))
}

func (r *reader) ref() BodyRef {
	return BodyRef{Index: r.uvarint(), Offset: r.u32(), Length: r.u32()}
}

func appendHistory(dst []byte, h *HistoryRecord) []byte {
	dst = appendUint(dst, h.Order)
	dst = appendUint(dst, uint64(h.Number))
	dst = appendString(dst, h.MessageID)
	dst = appendString(dst, h.SessionID)
	dst = appendTime(dst, h.EnqueuedAt)
	dst = appendTime(dst, h.At)
	dst = appendUint(dst, uint64(h.Deliveries))
	dst = appendID(dst, h.By)
	dst = appendTime(append(dst, byte(h.End)), h.EndedAt)
	dst = appendRef(dst, h.Ref)
	if h.End == Released {
		dst = appendString(dst, h.Operator)
	}
	return dst
}

func (r *reader) history() HistoryRecord {
	h := HistoryRecord{
		Order: r.uvarint(), Number: SequenceNumber(r.uvarint()), MessageID: r.string(),
		SessionID: r.string(), EnqueuedAt: r.wall(), At: r.wall(), Deliveries: r.u32(), By: r.id(),
	}
	if h.End = HistoryEnd(r.u8()); h.End > Released {
		r.fail("unknown end of a message")
	}
	h.EndedAt = r.wall()
	h.Ref = r.ref()
	if h.End == Released {
		h.Operator = r.string()
	}
	return h
}

func appendLockInfo(dst []byte, l *LockInfo) []byte {
	dst = appendUint(dst, uint64(l.Number))
	dst = append(dst, l.Digits[:]...)
	dst = appendTime(dst, l.TakenAt)
	dst = appendTime(dst, l.LockedUntil)
	dst = appendBool(append(dst, byte(l.State)), l.HasSession)
	return appendID(appendString(dst, l.SessionID), l.By)
}

func (r *reader) lockInfo() LockInfo {
	l := LockInfo{Number: SequenceNumber(r.uvarint())}
	r.fixed(l.Digits[:])
	l.TakenAt, l.LockedUntil = r.wall(), r.wall()
	if l.State = MessageState(r.u8()); l.State > StateScheduled {
		r.fail("unknown message state")
	}
	l.HasSession, l.SessionID, l.By = r.boolean(), r.string(), r.id()
	return l
}

// appendMore appends what an answer of version 2 has more than one of version 1.
func appendMore(dst []byte, a *Answer) []byte {
	dst = appendUint(appendTime(dst, a.IdleFor), a.Next)
	dst = appendUint(dst, uint64(len(a.History)))
	for i := range a.History {
		dst = appendHistory(dst, &a.History[i])
	}
	dst = appendUint(dst, uint64(len(a.Locks)))
	for i := range a.Locks {
		dst = appendLockInfo(dst, &a.Locks[i])
	}
	return dst
}

// version is the oldest that can say what the answer has.
func (a *Answer) version() uint8 {
	switch {
	case slices.ContainsFunc(a.History, func(h HistoryRecord) bool { return h.End == Released }):
		return wireVersion7
	case slices.ContainsFunc(a.Locks, func(l LockInfo) bool { return l.Shared }):
		return wireVersion6
	case len(a.Parts) > 0 || anyRest(a.Messages):
		return wireVersion5
	case a.Counts.Dropped != (Drops{}):
		return wireVersion4
	case len(a.Moves) > 0 || anySystem(a.Messages):
		return wireVersion3
	case a.IdleFor != 0 || a.Next != 0 || len(a.History) > 0 || len(a.Locks) > 0:
		return wireVersion2
	}
	return wireVersion
}

func (r *reader) more(a *Answer) {
	a.IdleFor, a.Next = r.millis(), r.uvarint()
	if n := r.count(minRecordBytes); n > 0 {
		a.History = make([]HistoryRecord, n)
	}
	for i := range a.History {
		a.History[i] = r.history()
	}
	if n := r.count(minLockBytes); n > 0 {
		a.Locks = make([]LockInfo, n)
	}
	for i := range a.Locks {
		a.Locks[i] = r.lockInfo()
	}
}

// History and names in an image.
