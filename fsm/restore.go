package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/tidwall/btree"
)

// Restore replaces the state by an image. It reads the bytes of the image and no more. An error
// that comes of the bytes wraps ErrFormat; the state is then what it was before.
//
// Checksums find accidents, but an image may come from a faulty peer, so nothing in it is believed
// that a later Apply would rely on.
func (s *State) Restore(r io.Reader) error {
	l := loader{s: New(s.id)}
	l.s.gen = s.gen + 1
	l.s.maxResults, l.s.maxDue, l.s.maxSeen = s.maxResults, s.maxDue, s.maxSeen
	if err := l.frames(r); err != nil {
		return fmt.Errorf("restore partition %d: %w", s.id, err)
	}
	*s = *l.s
	return nil
}

// maxRestored bounds the counters of an image. None gets there by counting, and none may overflow
// by what is applied next.
const maxRestored = 1<<64 - 1<<32

// loader builds a state from records.
type loader struct {
	s        *State
	version  uint8  // of the image
	anyID    bool   // the image tells of which partition it is
	begun    bool   // the state record was read
	sh       *share // what sessions and messages belong to
	dropped  bool
	box      SubQueue // of the last message of the share
	arrival  uint64   // of the last message of box, 0 if there is none
	lastSeen idHash
	refs     map[sharedBody]uint64   // references to shared bodies that were read
	wanted   map[sharedBody]struct{} // large bodies that nothing has referred to yet

	// An image of a share that moves comes into another state, which has its bodies. Bodies that a record refers to
	// are used. The lease clock there is ahead by some time.
	into   *State
	staged *btree.BTreeG[stagedBody]
	used   map[bodyAt]struct{} // looked up, never ranged over
	ahead  Millis
}

func (l *loader) frames(r io.Reader) error {
	f := frameReader{r: r}
	if header := f.next(int64(len(imageMagic)) + 1); f.err == nil {
		l.version = header[len(imageMagic)]
		if string(header[:len(imageMagic)]) != imageMagic || l.version < 1 || l.version > imageVersion {
			return fmt.Errorf("%w: not an image of a version that this program reads", ErrFormat)
		}
	}
	for f.err == nil {
		payload := f.frame()
		if f.err != nil {
			break
		}
		if len(payload) == 0 {
			return l.end()
		}
		// A record copies what it keeps of the frame: strings are made anew, bytes are cloned.
		rd := reader{b: payload, ahead: l.ahead}
		for rd.err == nil && rd.left() > 0 {
			l.record(&rd)
			rd.ahead = l.ahead // known behind the first record
		}
		if rd.err != nil {
			return rd.err
		}
	}
	return f.err
}

// frameReader reads frames and compares checksums.
type frameReader struct {
	r   io.Reader
	buf bytes.Buffer
	sum uint32
	err error
}

// next reads n bytes; memory grows with what really comes, not with what was announced.
func (f *frameReader) next(n int64) []byte {
	f.buf.Reset()
	if got, err := io.CopyN(&f.buf, f.r, n); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: image ends after %d of %d bytes", ErrFormat, got, n)
		}
		f.err = err
		return nil
	}
	f.sum = crc32.Update(f.sum, castagnoli, f.buf.Bytes())
	return f.buf.Bytes()
}

// frame returns the payload of the next frame, valid until the next call.
func (f *frameReader) frame() []byte {
	head := f.next(4)
	if f.err != nil {
		return nil
	}
	n := binary.LittleEndian.Uint32(head)
	if n > maxFrameBytes {
		f.err = fmt.Errorf("%w: frame of %d bytes", ErrFormat, n)
		return nil
	}
	payload := slices.Clone(f.next(int64(n)))
	want := f.sum
	tail := f.next(4)
	if f.err == nil && binary.LittleEndian.Uint32(tail) != want {
		f.err = fmt.Errorf("%w: checksum of a frame", ErrFormat)
	}
	return payload
}

func (l *loader) record(r *reader) {
	kind := r.u8()
	if l.begun == (kind == recordState) {
		r.fail("state record is not the first and only one")
		return
	}
	switch kind {
	case recordState:
		l.state(r)
	case recordLost:
		order, node := r.uvarint(), Incarnation(r.u64())
		_, known := l.s.lost.Get(order)
		if known || l.s.isLost(node) || order > l.s.lostOrder || l.s.lost.Len() >= maxLostNodes {
			r.fail("lost node out of order")
		}
		l.s.lost.Set(order, node)
		l.s.lostAt.Set(node, order)
	case recordShare:
		l.share(r)
	case recordBody:
		l.body(r)
	case recordDrops:
		l.drops(r)
	case recordHold, recordRestoring:
		l.backup(r, kind)
	case recordHome, recordArriving, recordArrivingBody, recordArrivingImage:
		l.move(r, kind)
	case recordLarge:
		l.large(r)
	case recordSession, recordMessage, recordSweep, recordSeen, recordHistory, recordName, recordPause,
		recordPauseSession, recordFirst, recordHead, recordMoving, recordOrigin, recordUpload, recordParted,
		recordShared:
		switch {
		case l.sh == nil:
			r.fail("record outside a share")
		case kind == recordMessage:
			l.message(r)
		case (kind == recordFirst || kind == recordHead) && !l.dropped:
			l.origin(r, kind)
		case kind == recordMoving && !l.dropped:
			l.moving(r)
		case kind == recordOrigin && !l.dropped:
			l.source(r)
		case kind == recordUpload && !l.dropped:
			l.upload(r)
		case kind == recordParted && !l.dropped:
			l.parted(r)
		case kind == recordShared && !l.dropped:
			l.shared(r)
		case (kind == recordPause || kind == recordPauseSession) && !l.dropped:
			l.pause(r, kind)
		case kind == recordHistory:
			l.past(r)
		case kind == recordName && !l.dropped:
			l.name(r)
		case kind == recordSeen && !l.dropped:
			l.seen(r)
		case kind == recordSweep && !l.dropped:
			l.sweep(r)
		case l.dropped:
			r.fail("session of a dropped entity")
		default:
			l.session(r)
		}
	case recordResult:
		l.result(r)
	default:
		r.fail("unknown record")
	}
}

func (l *loader) state(r *reader) {
	l.begun = true
	id := PartitionID(r.u16())
	if l.anyID {
		l.s.id = id
	}
	if id != l.s.id {
		r.fail("image of another partition")
	}
	l.s.index = r.uvarint()
	l.s.epoch = r.uvarint()
	l.s.wall = r.wall()
	l.s.lease = r.lease()
	if l.s.lostOrder = r.uvarint(); l.s.lostOrder > maxRestored {
		r.fail("counter too large")
	}
	if l.into != nil {
		l.s.index, l.ahead = l.into.index, l.into.lease.Since(l.s.lease)
	}
}

func (l *loader) share(r *reader) {
	l.finish(r)
	dropped := r.boolean()
	d, err := DecodeDescriptor(r.bytes())
	if r.err != nil {
		return
	}
	index := slices.Index(d.Partitions, l.s.id)
	if bad := malformed(&d, index); err != nil || bad != "" {
		r.fail("description of entity: " + bad)
		return
	}
	living, alive := l.s.shares.Get(d.ID)
	_, old := l.s.dropped.Get(d.ID)
	if old || alive && (!dropped || living.home.phase != left) {
		r.fail("entity occurs twice")
		return
	}
	sh := newShare(&d, index, l.s.gen)
	sh.arrival = r.uvarint()
	sh.touched = r.wall()
	sh.lastNo = r.u32()
	if sh.lastTicket = r.uvarint(); max(sh.arrival, sh.lastTicket) > maxRestored {
		r.fail("counter too large")
	}
	review := l.s.lease.After(d.AutoDeleteOnIdle)
	sh.active = l.s.lease
	if l.version >= 2 {
		sh.listening, sh.starved = r.boolean(), r.boolean()
		sh.forgotten, sh.active = r.wall(), r.lease()
		review = r.lease()
		for k := range sh.history[:Releases] {
			if sh.history[k].last = r.uvarint(); sh.history[k].last > maxRestored {
				r.fail("counter too large")
			}
		}
	}
	if l.version >= 3 {
		l.counters(r, sh)
	}
	if l.version >= 8 {
		if sh.history[Releases].last = r.uvarint(); sh.history[Releases].last > maxRestored {
			r.fail("counter too large")
		}
	}
	if !dropped {
		sh.watchIdle(review)
	}
	if sh.listening && !dropped {
		l.s.listening.Set(d.ID, struct{}{})
	}
	l.sh, l.dropped, l.box, l.arrival = sh, dropped, Main, 0
	if dropped {
		l.s.dropped.Set(d.ID, sh)
	} else {
		l.s.shares.Set(d.ID, sh)
		l.s.adopt(sh.d)
	}
}

func (l *loader) session(r *reader) {
	sh := l.sh
	no, id, ticket := r.u32(), r.string(), r.uvarint()
	twice := sh.session(no) != nil
	_, named := sh.ids.get(id)
	_, queued := sh.tickets.Get(ticket)
	if no == 0 || no > sh.lastNo || twice || named || queued || ticket > sh.lastTicket ||
		!sh.d.RequiresSession || !validSessionID(id) {
		r.fail("session contradicts others")
		return
	}
	se := &session{id: id, gen: sh.gen, no: no, ticket: ticket}
	sh.ids.add(id, no, sh.gen)
	sh.sessionHints.add(se)
	sh.sessions.Set(no, se)
	if ticket != 0 {
		sh.tickets.Set(ticket, no)
	}
	if r.boolean() {
		var h holder
		r.fixed(h.token[:])
		h.deadline = r.lease()
		h.node = Incarnation(r.u64())
		if h.token.IsZero() || h.deadline <= 0 {
			r.fail("session lock without token or end")
			return
		}
		sh.holders.Set(no, h)
		se.held = true
		sh.leaseDue.Set(leaseDue{at: h.deadline, kind: dueSession, id: uint64(no)})
	}
	if r.boolean() {
		st := sessionState{data: append([]byte{}, r.bytes()...), at: r.wall()}
		sh.states.Set(no, st)
		sh.size += uint64(len(st.data) + len(id))
	}
}

func (l *loader) message(r *reader) {
	sh := l.sh
	sub := r.sub()
	arrival := r.uvarint()
	m := message{
		index: r.uvarint(), offset: r.u32(), length: r.u32(), session: r.u32(), bits: r.u32(),
		at: r.wall(), expires: r.wall(),
	}
	l.translate(r, &m.index, &m.offset, m.length)
	if r.err != nil {
		return
	}
	b := &sh.boxes[sub]
	if sub < l.box || sub == l.box && arrival <= l.arrival || arrival == 0 ||
		arrival > sh.lastKey(sub) || m.index > l.s.index {
		r.fail("message out of order")
		return
	}
	l.box, l.arrival = sub, arrival
	scheduled := m.state() == StateScheduled
	if m.expires < 0 || l.dropped && m.bits != 0 || m.state() > StateScheduled || scheduled && (sub != Main || m.locked() || m.at <= 0) {
		r.fail("impossible message state")
		return
	}
	se, known := sh.sessions.Get(m.session)
	if !l.dropped && known != sh.sessionful(sub) || !known && m.session != 0 && !l.dropped {
		r.fail("message of an unknown session")
		return
	}
	l.refer(m.ref())
	b.count(m.state(), 1)
	sh.size += uint64(m.length)
	if x := l.extra(r, &m); x != nil {
		b.extras.Load(arrival, x)
		sh.size += x.bytes()
	}
	b.messages.Set(arrival, m)
	if l.dropped {
		return
	}
	if !known {
		se = new(session) // nobody's
	}
	se.messages++
	switch {
	case m.locked():
		l.lock(r, sub, arrival, &m, se)
	case m.state() == StateActive:
		if sub == Main && m.expires != 0 {
			sh.expiring.Load(expiry{at: m.expires, arrival: arrival})
		}
		se.ready++
		b.ready.Load(placeKey{session: m.session, arrival: arrival})
	case known:
		sh.aside.Load(placeKey{session: m.session, arrival: arrival})
	}
	if scheduled {
		sh.wallDue.Load(wallDue{at: m.at, kind: dueActivate, id: arrival})
	}
}

func (l *loader) extra(r *reader, m *message) *extra {
	if m.bits&extraBit == 0 {
		return nil
	}
	x := &extra{
		reason: r.string(), description: r.string(), source: r.string(), scheduledAt: r.wall(),
		properties: r.properties(),
	}
	if l.version >= 2 {
		x.inSession, x.session = r.boolean(), r.string()
	}
	if l.version >= 3 {
		x.system = mergeSystem(nil, r.system())
		x.to, x.stuck = EntityID(r.uvarint()), r.boolean()
	}
	if l.version >= 7 {
		x.reserved = SequenceNumber(r.uvarint())
	}
	if !validSessionID(x.session) || x.bytes() > 3*maxExtraBytes {
		r.fail("extras too large")
	}
	x.properties = merge(nil, x.properties)
	return x
}

func (l *loader) lock(r *reader, sub SubQueue, arrival uint64, m *message, se *session) {
	sh := l.sh
	var k lock
	r.fixed(k.token[:])
	k.deadline = r.lease()
	if l.version >= 2 {
		k.taken, k.node, k.pump = r.wall(), Incarnation(r.u64()), r.uvarint()
	}
	_, twice := sh.tokens.get(k.token)
	_, held := sh.holders.Get(m.session)
	if k.token.IsZero() || twice || held != (m.session != 0) || held == (k.deadline > 0) {
		r.fail("lock contradicts others")
		return
	}
	sh.boxes[sub].locks.Set(arrival, k)
	sh.tokens.add(k.token.key(), k.token.ref(arrival, sub))
	if held {
		se.hand(arrival)
	} else {
		sh.leaseDue.Load(leaseDue{at: k.deadline, kind: dueLock, sub: sub, id: arrival})
	}
}

// finish checks a share of which all is read.
func (l *loader) finish(r *reader) {
	if l.sh == nil {
		return
	}
	if err := l.sh.checkSessions(); err != nil {
		r.fail(err.Error())
	}
	if !l.dropped {
		for _, check := range [...]func() error{l.sh.checkOrigins, l.sh.checkMoves} {
			if err := check(); err != nil {
				r.fail(err.Error())
			}
		}
		l.s.reschedule(l.sh)
	}
	l.sh = nil
}

func (l *loader) result(r *reader) {
	l.finish(r)
	res := result{
		node: Incarnation(r.u64()), pump: r.uvarint(), counter: r.uvarint(),
		until: r.lease(), review: r.lease(),
	}
	if r.boolean() {
		a := &answer{entity: EntityID(r.uvarint()), sub: r.sub(), removed: r.boolean()}
		a.locked = r.tokens()
		o, err := DecodeOutcome(bytes.Clone(r.bytes()))
		if err != nil && r.err == nil {
			r.fail("remembered outcome: " + err.Error())
		}
		a.outcome = o
		res.answer = a
		if a.removed {
			for i := range o.Locked {
				l.refer(o.Locked[i].Ref)
			}
		}
	}
	if _, twice := l.s.results.Get(res); twice || l.s.results.Len() >= l.s.maxResults || res.review > res.until {
		r.fail("result of a pump contradicts another")
		return
	}
	l.s.results.Set(res)
	l.s.resultDue.Set(resultDue{at: res.review, node: res.node, pump: res.pump})
}

func (l *loader) end() error {
	var r reader
	l.finish(&r)
	if !l.begun {
		r.fail("no state record")
	}
	l.s.bodies.Scan(func(e sharedBody) bool {
		if got := l.refs[e.key()]; got != uint64(e.more)+1 {
			r.fail(fmt.Sprintf("%d references to body %d/%d, found %d", e.more+1, e.index, e.offset, got))
		}
		return r.err == nil
	})
	if len(l.wanted) > 0 {
		r.fail("large body of nobody")
	}
	return r.err
}
