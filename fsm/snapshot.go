package fsm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"

	"github.com/tidwall/btree"
)

// The image is a header and frames: length (4 bytes, little endian), payload, checksum (4 bytes,
// CRC-32C of everything from the header to here). A frame of length 0 is the last. Payloads are
// whole records; what can be derived from others is not written.
const (
	imageMagic = "BBSTATE"
	// imageVersion is the newest. An image has the lowest version from 8 on that has a record for all that its state has,
	// so an older program reads it. Versions 1 to 7 are read, too.
	imageVersion  = 10
	imageVersion9 = 9
	imageVersion8 = 8
	// frameBytes is how much is gathered before it is written.
	frameBytes = 64 << 10
	// maxFrameBytes bounds what Restore reads at once. The longest record is a remembered
	// receive-and-delete of maxDeliveries messages with properties of maxExtraBytes each.
	maxFrameBytes = 1 << 30
)

// Kinds of record. Numbers are for ever.
const (
	recordState         uint8 = 1 + iota // first and once
	recordLost                           // one life of a node that is over
	recordShare                          // what follows belongs to it
	recordSession                        // before the messages
	recordMessage                        // by subqueue and arrival
	recordResult                         // after the shares
	recordSweep                          // of the share, behind its sessions; version 2
	recordSeen                           // of the share, in the order of acceptance; version 2
	recordHistory                        // of the share, in its order, behind the messages; version 2
	recordName                           // message id of a message of the share; version 2
	recordPause                          // of a message, behind the messages; version 2
	recordPauseSession                   // of a session, behind the sessions; version 2
	recordFirst                          // where a message of the share was first sent to; version 3
	recordHead                           // what a topic keeps of a scheduled message; version 3
	recordBody                           // with several references, behind the state record; version 3
	recordMoving                         // message in transit, behind the messages; version 3
	recordOrigin                         // what was moved here, with what is decided of it; version 3
	recordDrops                          // counters of a share, behind its record, or of the partition, before; version 4
	recordLarge                          // body in parts, behind the shared bodies; version 5
	recordUpload                         // what is staged of a body in the share; version 5
	recordParted                         // state of a session in parts, behind the sessions; version 5
	recordShared                         // of a session that is held without exclusion, behind the sessions; version 6
	recordHold                           // of forwards, behind the state record; version 9
	recordRestoring                      // the share is being restored; version 9
	recordHome                           // moves of the share, behind its record; version 10
	recordArriving                       // a share that moves here, ahead of the shares; version 10
	recordArrivingBody                   // body of it; version 10
	recordArrivingImage                  // piece of its image; version 10
)

// image is a state frozen at one index. It shares nodes with the living state, which copies what it
// changes.
type image struct {
	head    State
	shares  *btree.Map[EntityID, *share]
	dropped *btree.Map[EntityID, *share]
	lost    *btree.Map[uint64, Incarnation]
	results *btree.BTreeG[result]
	bodies  *btree.BTreeG[sharedBody]
	large   *btree.BTreeG[largeBody]

	arriving *btree.Map[EntityID, *arriving]
}

// Capture returns an image of the state as it is now. It takes microseconds whatever the backlog;
// the image may be written on another goroutine while Apply goes on, and more than once.
func (s *State) Capture() io.WriterTo {
	s.gen++ // from now on every share is cloned before it is written
	return &image{
		head: State{
			id: s.id, index: s.index, epoch: s.epoch, wall: s.wall, lease: s.lease,
			lostOrder: s.lostOrder, deleted: s.deleted, holding: s.holding, heldUntil: s.heldUntil,
		},
		shares:  s.shares.Copy(),
		dropped: s.dropped.Copy(),
		lost:    s.lost.Copy(),
		results: s.results.Copy(),
		bodies:  s.bodies.Copy(),
		large:   s.large.Copy(),

		arriving: s.arriving.Copy(),
	}
}

// Digest is a hash over everything that the state holds but the index of the last entry. It takes as
// long as writing an image.
func (s *State) Digest() uint64 {
	img := s.Capture().(*image)
	img.head.index = 0
	h := fnv.New64a()
	if _, err := img.WriteTo(h); err != nil {
		panic(err) // a hash takes everything
	}
	return h.Sum64()
}

// WriteTo writes the image.
func (img *image) WriteTo(w io.Writer) (int64, error) {
	f := frameWriter{w: w, buf: make([]byte, 4, 4+frameBytes+4096)}
	f.raw(append([]byte(imageMagic), img.version()))
	h := &img.head
	b := append(f.buf, recordState)
	b = appendUint(b, uint64(h.id))
	b = appendUint(b, h.index)
	b = appendUint(b, h.epoch)
	b = appendTime(b, h.wall)
	b = appendTime(b, h.lease)
	f.buf = appendUint(b, h.lostOrder)
	if h.holding != 0 {
		f.done(appendTime(appendUint(append(f.buf, recordHold), h.holding), h.heldUntil))
	}
	img.lost.Scan(func(order uint64, node Incarnation) bool {
		b := appendUint(append(f.buf, recordLost), order)
		return f.done(binary.LittleEndian.AppendUint64(b, uint64(node)))
	})
	img.bodies.Scan(func(e sharedBody) bool {
		b := appendUint(append(f.buf, recordBody), e.index)
		return f.done(appendUint(appendUint(b, uint64(e.offset)), uint64(e.more)))
	})
	f.done(appendDrops(f.buf, &Drops{DropWithEntity: h.deleted}))
	img.large.Scan(func(b largeBody) bool { return f.done(f.large(&b)) })
	img.arriving.Scan(func(id EntityID, a *arriving) bool { return f.arriving(id, a) })
	img.shares.Scan(func(_ EntityID, sh *share) bool { return f.share(sh, false) })
	img.dropped.Scan(func(_ EntityID, sh *share) bool { return f.share(sh, true) })
	img.results.Scan(func(r result) bool { return f.done(appendResult(f.buf, &r)) })
	if len(f.buf) > 4 { // else the last record has filled its frame
		f.flush()
	}
	f.flush() // the empty frame ends the image
	if f.err != nil {
		return f.n, fmt.Errorf("write image of partition %d: %w", h.id, f.err)
	}
	return f.n, nil
}

// version is the oldest that can say what the image has.
func (img *image) version() byte {
	version := byte(imageVersion8)
	if img.head.holding != 0 {
		version = imageVersion9
	}
	if img.arriving.Len() > 0 {
		return imageVersion
	}
	img.shares.Scan(func(_ EntityID, sh *share) bool {
		if sh.restoring {
			version = imageVersion9
		}
		if sh.home != (homing{}) {
			version = imageVersion
		}
		return version != imageVersion
	})
	return version
}

// frameWriter gathers records in buf, behind four bytes for the length.
type frameWriter struct {
	w   io.Writer
	buf []byte
	sum uint32
	n   int64
	err error
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (f *frameWriter) raw(b []byte) {
	if f.err != nil {
		return
	}
	f.sum = crc32.Update(f.sum, castagnoli, b)
	n, err := f.w.Write(b)
	f.n += int64(n)
	f.err = err
}

// done takes the buffer back with one more record and reports whether to go on.
func (f *frameWriter) done(buf []byte) bool {
	f.buf = buf
	if len(f.buf) >= frameBytes {
		f.flush()
	}
	return f.err == nil
}

func (f *frameWriter) flush() {
	binary.LittleEndian.PutUint32(f.buf, uint32(len(f.buf)-4))
	f.raw(f.buf)
	f.raw(binary.LittleEndian.AppendUint32(nil, f.sum))
	f.buf = f.buf[:4]
}

func (f *frameWriter) share(sh *share, dropped bool) bool {
	b := appendBool(append(f.buf, recordShare), dropped)
	b = appendBytes(b, AppendDescriptor(nil, sh.d))
	b = appendUint(b, sh.arrival)
	b = appendTime(b, sh.touched)
	b = appendUint(b, uint64(sh.lastNo))
	b = appendUint(b, sh.lastTicket)
	b = appendBool(b, sh.listening)
	b = appendBool(b, sh.starved)
	b = appendTime(b, sh.forgotten)
	b = appendTime(b, sh.active)
	b = appendTime(b, sh.idleReview)
	b = appendUint(b, sh.history[Processed].last)
	b = appendUint(b, sh.history[Accepted].last)
	b = appendUint(appendUint(b, sh.lastTransfer), sh.refusedTo)
	for sub := range sh.moves {
		b = appendUint(b, sh.moves[sub].last)
	}
	b = appendUint(b, sh.history[Releases].last)
	if !dropped {
		b = sh.appendHome(sh.appendRestoring(appendDrops(b, &sh.drops)))
	}
	if !f.done(b) {
		return false
	}
	sh.sessions.Scan(func(no uint32, se *session) bool { return f.done(f.session(sh, no, se)) })
	if !dropped && !f.uploads(sh) {
		return false
	}
	sh.holders.Scan(func(no uint32, h holder) bool { return h.shared == nil || f.done(f.shared(no, h)) })
	sh.sweeps.Scan(func(no uint32, sw sweep) bool { return f.done(f.sweep(sh, no, sw)) })
	sh.pauses.Scan(func(no uint32, at Lease) bool {
		return f.done(appendPause(f.buf, recordPauseSession, Main, uint64(no), at))
	})
	if !dropped {
		sh.seenOrder.Scan(func(_ uint64, h idHash) bool {
			e, _ := sh.seen.Get(seen{hash: h})
			return f.done(appendSeen(f.buf, &e))
		})
	}
	for sub := range sh.boxes {
		box := &sh.boxes[sub]
		box.messages.Scan(func(arrival uint64, m message) bool {
			if dropped { // only the body counts still
				m.bits, m.session = 0, 0
			}
			return f.done(f.message(box, SubQueue(sub), arrival, &m))
		})
	}
	for sub := range sh.boxes {
		if dropped {
			break
		}
		sh.boxes[sub].paused.Scan(func(arrival uint64, at Lease) bool {
			return f.done(appendPause(f.buf, recordPause, SubQueue(sub), arrival, at))
		})
	}
	for k := range sh.history {
		sh.history[k].records.Scan(func(_ uint64, p *past) bool {
			return f.done(appendPast(f.buf, HistoryKind(k), p))
		})
	}
	if !dropped && !f.origins(sh) {
		return false
	}
	sh.names.Scan(func(arrival uint64, id string) bool {
		return f.done(appendString(appendUint(append(f.buf, recordName), arrival), id))
	})
	return f.err == nil
}

// origins writes what messages remember of where they come from, and what waits at a topic.
func (f *frameWriter) origins(sh *share) bool {
	sh.firsts.Scan(func(arrival uint64, o first) bool {
		b := appendUint(append(f.buf, recordFirst), arrival)
		return f.done(append(appendUint(b, uint64(o.number)), o.hops))
	})
	sh.heads.Scan(func(arrival uint64, w waiting) bool {
		b := appendString(appendUint(append(f.buf, recordHead), arrival), w.head)
		b = appendBool(appendString(b, w.messageID), w.hasSession)
		return f.done(appendString(b, w.sessionID))
	})
	for sub := range sh.moves {
		sh.moves[sub].table.Scan(func(number uint64, mv moving) bool {
			b := appendUint(append(f.buf, recordMoving, byte(sub)), number)
			return f.done(appendUint(appendUint(b, mv.arrival), uint64(mv.to)))
		})
	}
	sh.origins.Scan(func(o origin) bool { return f.done(f.origin(sh, o)) })
	return f.err == nil
}

func (f *frameWriter) origin(sh *share, o origin) []byte {
	b := appendUint(append(f.buf, recordOrigin), uint64(o.entity))
	b = appendUint(append(appendUint(b, uint64(o.partition)), byte(o.sub)), o.below)
	var list []decided
	sh.decided.Ascend(decided{originKey: o.originKey}, func(e decided) bool {
		if e.originKey == o.originKey {
			list = append(list, e)
		}
		return e.originKey == o.originKey
	})
	b = appendUint(b, uint64(len(list)))
	for _, e := range list {
		b = append(appendUint(b, e.number), byte(e.refusal))
	}
	return b
}

func (f *frameWriter) session(sh *share, no uint32, se *session) []byte {
	b := appendUint(append(f.buf, recordSession), uint64(no))
	b = appendString(b, se.id)
	b = appendUint(b, se.ticket)
	h, held := sh.holders.Get(no)
	b = appendBool(b, held)
	if held {
		b = append(b, h.token[:]...)
		b = appendTime(b, h.deadline)
		b = binary.LittleEndian.AppendUint64(b, uint64(h.node))
	}
	st, has := sh.states.Get(no)
	b = appendBool(b, has)
	if has {
		b = appendBytes(b, st.data)
		b = appendTime(b, st.at)
	}
	return b
}

func (f *frameWriter) sweep(sh *share, no uint32, sw sweep) []byte {
	b := appendUint(append(f.buf, recordSweep), uint64(no))
	b = appendUint(b, sw.done)
	b = appendUint(b, sw.limit)
	var spared []SequenceNumber
	sh.spared.Ascend(placeKey{session: no}, func(k placeKey) bool {
		if k.session == no {
			spared = append(spared, SequenceNumber(k.arrival))
		}
		return k.session == no
	})
	return appendNumbers(b, spared)
}

func (f *frameWriter) message(box *box, sub SubQueue, arrival uint64, m *message) []byte {
	b := appendUint(append(f.buf, recordMessage, byte(sub)), arrival)
	b = appendUint(b, m.index)
	b = appendUint(b, uint64(m.offset))
	b = appendUint(b, uint64(m.length))
	b = appendUint(b, uint64(m.session))
	b = appendUint(b, uint64(m.bits))
	b = appendTime(b, m.at)
	b = appendTime(b, m.expires)
	if m.bits&extraBit != 0 {
		x := box.extra(arrival, m)
		b = appendString(b, x.reason)
		b = appendString(b, x.description)
		b = appendString(b, x.source)
		b = appendTime(b, x.scheduledAt)
		b = appendProperties(b, x.properties)
		b = appendString(appendBool(b, x.inSession), x.session)
		b = appendBool(appendUint(appendSystem(b, x.system), uint64(x.to)), x.stuck)
		b = appendUint(b, uint64(x.reserved))
	}
	if m.locked() {
		l, _ := box.locks.Get(arrival)
		b = append(b, l.token[:]...)
		b = appendTime(b, l.deadline)
		b = appendTime(b, l.taken)
		b = binary.LittleEndian.AppendUint64(b, uint64(l.node))
		b = appendUint(b, l.pump)
	}
	return b
}

func appendResult(b []byte, r *result) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, recordResult), uint64(r.node))
	b = appendUint(b, r.pump)
	b = appendUint(b, r.counter)
	b = appendTime(b, r.until)
	b = appendTime(b, r.review)
	b = appendBool(b, r.answer != nil)
	if a := r.answer; a != nil {
		b = appendUint(b, uint64(a.entity))
		b = append(b, byte(a.sub))
		b = appendBool(b, a.removed)
		b = appendTokens(b, a.locked)
		b = appendBytes(b, AppendOutcome(nil, &a.outcome, false))
	}
	return b
}
