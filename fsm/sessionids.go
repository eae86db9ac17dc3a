package fsm

import (
	"encoding/binary"

	"github.com/tidwall/btree"
)

const (
	// idPageBytes are those of a page with its head: half of a page of memory.
	idPageBytes = 2048
	idPageRoom  = idPageBytes - 12
	// idHead is what stands before each id on a page: its number and its length.
	idHead = 4 + 2
)

// sessionIDs are the ids of the sessions of a share in their order, with their numbers (S-83). The ids stand one
// behind the other on pages, because a page of a listing reads a hundred of them. Ids on their own would lie anywhere
// in memory, and no cache has the ids of a million sessions.
type sessionIDs struct {
	pages *btree.BTreeG[idPageRef]
	count int
}

// idPageRef is a page with the bound from which on ids are there, up to the bound of the next one. The
// bound of the first is empty.
type idPageRef struct {
	from idBound
	page *idPage
}

// idBound is an id with its first 16 bytes as numbers, so most comparisons need not look at the text.
type idBound struct {
	head [2]uint64
	id   string
}

// idPage holds ids in their order: each is its number, its length and its text.
type idPage struct {
	gen   uint64 // of the share that may write to it: see share.change
	used  uint32 // bytes
	bytes [idPageRoom]byte
}

func newSessionIDs() sessionIDs {
	return sessionIDs{pages: newTable(func(a, b idPageRef) bool { return a.from.less(b.from) })}
}

func (x sessionIDs) copy() sessionIDs { return sessionIDs{pages: x.pages.Copy(), count: x.count} }

func (x sessionIDs) len() int { return x.count }

func bound(id string) idBound {
	var b [16]byte
	copy(b[:], id)
	return idBound{head: [2]uint64{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}, id: id}
}

func (a idBound) less(b idBound) bool {
	switch {
	case a.head[0] != b.head[0]:
		return a.head[0] < b.head[0]
	case a.head[1] != b.head[1]:
		return a.head[1] < b.head[1]
	}
	return a.id < b.id
}

// ref returns the page on which an id is, if it is there; false only if there is no page.
func (x sessionIDs) ref(id string) (ref idPageRef, ok bool) {
	x.pages.Descend(idPageRef{from: bound(id)}, func(r idPageRef) bool {
		ref, ok = r, true
		return false
	})
	return ref, ok
}

// writable returns the page of ref for writing.
func (x sessionIDs) writable(ref idPageRef, gen uint64) *idPage {
	if ref.page.gen == gen {
		return ref.page
	}
	c := *ref.page
	c.gen = gen
	x.pages.Set(idPageRef{from: ref.from, page: &c})
	return &c
}

// get returns the number of a session.
func (x sessionIDs) get(id string) (no uint32, ok bool) {
	ref, ok := x.ref(id)
	if !ok {
		return 0, false
	}
	at, ok := ref.page.find(id)
	if !ok {
		return 0, false
	}
	return ref.page.number(at), true
}

// add adds an id that is not there; it is not longer than validSessionID allows, so three fit a page.
func (x *sessionIDs) add(id string, no uint32, gen uint64) {
	x.count++
	ref, ok := x.ref(id)
	if !ok {
		ref.page = &idPage{gen: gen}
		x.pages.Set(ref)
	}
	p := x.writable(ref, gen)
	at, _ := p.find(id)
	for int(p.used)+idHead+len(id) > idPageRoom { // twice, if a long id is in the middle of the page
		right := p.split(at)
		x.pages.Set(idPageRef{from: bound(right.firstOr(id)), page: right})
		if right.used == 0 || id >= right.first() {
			p = right
		}
		at, _ = p.find(id)
	}
	p.insert(at, id, no)
}

// remove removes an id that may be there.
func (x *sessionIDs) remove(id string, gen uint64) {
	ref, ok := x.ref(id)
	if !ok {
		return
	}
	at, ok := ref.page.find(id)
	if !ok {
		return
	}
	x.count--
	p := x.writable(ref, gen)
	p.cut(at)
	if p.used > idPageRoom/4 {
		return
	}
	if p.used == 0 && (x.count == 0 || ref.from.id != "") {
		x.pages.Delete(ref)
		return
	}
	// Little is left: it takes over what the next one has, if that is not much. The first page does
	// so in any case when it is empty, for its bound stays.
	var next idPageRef
	x.pages.Ascend(ref, func(r idPageRef) bool {
		next = r
		return r.from == ref.from
	})
	if next.from == ref.from || p.used > 0 && p.used+next.page.used > idPageRoom*3/4 {
		return
	}
	copy(p.bytes[p.used:], next.page.bytes[:next.page.used])
	p.used += next.page.used
	x.pages.Delete(next)
}

// from calls f with each id not before first, in order, until it says no. The text is the table's: it is
// not kept and not changed.
func (x sessionIDs) from(first string, f func(id []byte, no uint32) bool) {
	ref, ok := x.ref(first)
	if !ok {
		return
	}
	at, _ := ref.page.find(first)
	if !ref.page.scan(at, f) {
		return
	}
	x.pages.Ascend(ref, func(r idPageRef) bool { return r.page == ref.page || r.page.scan(0, f) })
}

func (p *idPage) number(at int) uint32 { return binary.LittleEndian.Uint32(p.bytes[at:]) }

func (p *idPage) text(at int) []byte {
	n := int(binary.LittleEndian.Uint16(p.bytes[at+4:]))
	return p.bytes[at+idHead : at+idHead+n]
}

func (p *idPage) first() string { return string(p.text(0)) }

func (p *idPage) firstOr(id string) string {
	if p.used == 0 {
		return id
	}
	return p.first()
}

// find returns where the id is or belongs.
func (p *idPage) find(id string) (at int, ok bool) {
	for at < int(p.used) {
		t := p.text(at)
		if string(t) >= id {
			return at, string(t) == id
		}
		at += idHead + len(t)
	}
	return at, false
}

// scan calls f with the ids from that place on, until f returns false.
func (p *idPage) scan(at int, f func(id []byte, no uint32) bool) bool {
	for at < int(p.used) {
		t := p.text(at)
		if !f(t, p.number(at)) {
			return false
		}
		at += idHead + len(t)
	}
	return true
}

func (p *idPage) insert(at int, id string, no uint32) {
	size := idHead + len(id)
	copy(p.bytes[at+size:], p.bytes[at:p.used])
	binary.LittleEndian.PutUint32(p.bytes[at:], no)
	binary.LittleEndian.PutUint16(p.bytes[at+4:], uint16(len(id)))
	copy(p.bytes[at+idHead:], id)
	p.used += uint32(size)
}

func (p *idPage) cut(at int) {
	size := idHead + len(p.text(at))
	copy(p.bytes[at:], p.bytes[at+size:p.used])
	p.used -= uint32(size)
}

// split moves the upper half to a new page; nothing, if what is to be inserted belongs behind the last
// one: ids that come in their order fill pages.
func (p *idPage) split(insertAt int) *idPage {
	right := &idPage{gen: p.gen}
	at := insertAt
	if at < int(p.used) {
		for at = 0; at < int(p.used)/2; {
			at += idHead + len(p.text(at))
		}
	}
	right.used = uint32(copy(right.bytes[:], p.bytes[at:p.used]))
	p.used = uint32(at)
	return right
}
