package fsm

import (
	"encoding/binary"
)

// appendDrops appends counters, and nothing if all are zero. In an image they belong to the share
// before, and ahead of all shares to the partition.
func appendDrops(b []byte, d *Drops) []byte {
	if *d == (Drops{}) {
		return b
	}
	return appendCounters(append(b, recordDrops), d)
}

func (sh *share) appendRestoring(b []byte) []byte {
	if sh.restoring {
		b = append(b, recordRestoring)
	}
	return b
}

func appendSeen(b []byte, e *seen) []byte {
	b = append(append(b, recordSeen), e.hash[:]...)
	return binary.AppendUvarint(appendTime(b, e.at), e.arrival)
}

func appendPause(b []byte, kind uint8, sub SubQueue, id uint64, at Lease) []byte {
	return appendTime(appendUint(append(b, kind, byte(sub)), id), at)
}

func appendPast(b []byte, k HistoryKind, p *past) []byte {
	b = appendHistory(append(b, recordHistory, byte(k)), &p.HistoryRecord)
	return appendUint(b, p.arrival)
}

// shared appends the record of a session that is held without exclusion.
func (f *frameWriter) shared(no uint32, h holder) []byte {
	b := append(appendUint(append(f.buf, recordShared), uint64(no)), h.shared.token[:]...)
	b = appendBool(b, h.pending())
	if h.pending() {
		f := &h.shared.former
		b = appendTime(append(b, f.token[:]...), f.until)
		b = appendUint(b, uint64(f.node))
	}
	return b
}
