package fsm

import (
	"io"

	"github.com/tidwall/btree"
)

// ShareImage is a share frozen at one entry, as it moves to another partition. Its methods may be called on another
// goroutine while Apply goes on.
type ShareImage struct {
	Index    uint64 // of the last entry in it
	Closed   bool   // nothing changes in the share any more
	Messages int
	sh       *share
	one      State // that has the share alone
}

// CaptureShare returns an image of the share of an entity. With an epoch the share must be closed for the move of that
// epoch; else it must be at home here, or closed. It takes microseconds.
func (s *State) CaptureShare(id EntityID, epoch uint64) (*ShareImage, bool) {
	sh, ok := s.shares.Get(id)
	is := ok && sh.home.phase == closed && sh.home.epoch == epoch
	if !ok || epoch != 0 && !is || sh.home.phase != atHome && sh.home.phase != closed {
		return nil, false
	}
	s.gen++ // from now on every share is cloned before it is written
	img := &ShareImage{Index: s.index, Closed: sh.home.phase == closed, sh: sh, one: *New(s.id)}
	img.one.shares.Set(id, sh)
	img.one.wall, img.one.lease = sh.home.wall, sh.home.lease
	img.one.bodies, img.one.large = s.bodies.Copy(), s.large.Copy()
	for i := range sh.boxes {
		img.Messages += sh.boxes[i].messages.Len()
	}
	return img, true
}

// EachBody calls f with the place of every body of the share, as State.EachBody does.
func (img *ShareImage) EachBody(f func(BodyRef)) { img.one.EachBody(f) }

// WriteTo writes the image of a closed share. It is the same as often as it is written, wherever.
func (img *ShareImage) WriteTo(w io.Writer) (int64, error) {
	refs := map[sharedBody]uint32{} // looked up, never ranged over
	bodies, large := newTable(sharedBody.less), newTable(largeBody.less)
	img.sh.eachBody(func(ref BodyRef) {
		at := sharedBody{index: ref.Index, offset: ref.Offset}
		if _, shared := img.one.bodies.Get(at); shared && ref.Length > 0 {
			if refs[at]++; refs[at] > 1 {
				bodies.Set(sharedBody{at.index, at.offset, refs[at] - 1})
			}
		}
		if b, ok := img.one.large.Get(largeBody{index: ref.Index, offset: ref.Offset}); ok {
			large.Set(b)
		}
	})
	out := image{head: State{id: img.one.id, wall: img.one.wall, lease: img.one.lease}, shares: img.one.shares,
		dropped: img.one.dropped, lost: img.one.lost, results: img.one.results, bodies: bodies, large: large,
		arriving: img.one.arriving}
	return out.WriteTo(w)
}

// OriginOf returns the partition by which destinations know what comes from the share of an entity: the first one that
// the share was in. It is false if there is no share here.
func (s *State) OriginOf(id EntityID) (PartitionID, bool) {
	sh, ok := s.shares.Get(id)
	if ok && sh.home.origin != 0 {
		return sh.home.origin, true
	}
	return s.id, ok
}

func (sh *share) appendHome(b []byte) []byte {
	if sh.home == (homing{}) {
		return b
	}
	b = append(appendUint(append(b, recordHome), sh.home.epoch), byte(sh.home.phase))
	return appendTime(appendTime(appendUint(b, uint64(sh.home.origin)), sh.home.lease), sh.home.wall)
}

// arriving writes what is staged of a share.
func (f *frameWriter) arriving(id EntityID, a *arriving) bool {
	if !f.done(appendUint(appendUint(append(f.buf, recordArriving), uint64(id)), a.epoch)) {
		return false
	}
	a.bodies.Scan(func(s stagedBody) bool {
		b := appendUint(appendUint(append(f.buf, recordArrivingBody), s.index), uint64(s.offset))
		return f.done(appendUint(appendUint(appendUint(b, s.here.Index), uint64(s.here.Offset)), uint64(s.here.Length)))
	})
	a.image.Scan(func(_ uint64, piece []byte) bool {
		return f.done(appendBytes(append(f.buf, recordArrivingImage), piece))
	})
	return f.err == nil
}

// move reads what a share knows of its moves, or what is staged of one that moves here.
func (l *loader) move(r *reader, kind uint8) {
	switch {
	case kind == recordHome:
		if l.sh == nil || l.dropped || l.sh.home != (homing{}) {
			r.fail("moves of no share")
			return
		}
		h := homing{epoch: r.uvarint(), phase: phase(r.u8()), origin: PartitionID(r.u16()), lease: r.lease(), wall: r.wall()}
		if h == (homing{}) || h.phase > arrived {
			r.fail("impossible move of a share")
		}
		if l.sh.home = h; h.phase == left && h.lease != 0 {
			l.s.leaving.Set(l.sh.d.ID, h.lease)
		}
		if l.sh.away() {
			l.s.listening.Delete(l.sh.d.ID)
		}
		return
	case l.sh != nil || l.into != nil:
		r.fail("a share that arrives, behind the others")
		return
	case kind == recordArriving:
		id, a := EntityID(r.uvarint()), &arriving{gen: l.s.gen, epoch: r.uvarint(), bodies: newTable(stagedBody.less),
			image: new(btree.Map[uint64, []byte])}
		if last, _, any := l.s.arriving.Max(); id == 0 || a.epoch == 0 || any && id <= last {
			r.fail("shares that arrive out of order")
			return
		}
		l.s.arriving.Set(id, a)
		return
	}
	_, a, ok := l.s.arriving.Max()
	if !ok {
		r.fail("body of no share that arrives")
		return
	}
	if kind == recordArrivingImage {
		piece := append([]byte(nil), r.bytes()...)
		if len(piece) == 0 || a.size+uint64(len(piece)) > maxArriving {
			r.fail("impossible piece of an image")
			return
		}
		a.image.Set(a.size, piece)
		a.size += uint64(len(piece))
		return
	}
	b := stagedBody{bodyAt{r.uvarint(), r.u32()}, BodyRef{Index: r.uvarint(), Offset: r.u32(), Length: r.u32()}}
	if _, twice := a.bodies.Get(b); twice || b.here.Length == 0 || b.here.Index > l.s.index {
		r.fail("body of a share that arrives contradicts others")
		return
	}
	a.bodies.Set(b)
}

// translate puts the place of a body here in the place of that at the old home.
func (l *loader) translate(r *reader, index *uint64, offset *uint32, length uint32) {
	if l.into == nil || r.err != nil {
		return
	}
	at := bodyAt{*index, *offset}
	if length == 0 {
		*index, *offset = 0, 0
		return
	}
	b, ok := l.staged.Get(stagedBody{bodyAt: at})
	if !ok {
		r.fail("a body of the share is not here")
		return
	}
	l.used[at] = struct{}{}
	*index, *offset = b.here.Index, b.here.Offset
}
