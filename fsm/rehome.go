package fsm

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/tidwall/btree"
)

// A share moves from one partition to another in steps (docs/decisions/0074-partitions-can-be-added.md). Its bodies are
// staged at the new home while the old one serves. Then the old home closes the share, and its image follows: the very
// records that a snapshot has of it. So nothing of a share is forgotten on the way, and no rule is written twice.

// phase is what a share is to its entity.
type phase uint8

const (
	atHome  phase = iota
	closed        // it moves to another partition, and nothing changes in it
	left          // it is served elsewhere
	arrived       // it has come, and is not served yet
)

// homing is what a share knows of its moves. It is zero in a share that never moved.
type homing struct {
	epoch uint64 // of the last move that it heard of
	phase phase
	// origin is the partition by which destinations know what comes from the share; 0 for this one.
	origin PartitionID
	// lease and wall are the clocks at which it was closed. In a share that has left, lease is when its content is
	// dropped, 0 once it is.
	lease Lease
	wall  Wall
}

// away reports whether the share is not served here.
func (sh *share) away() bool { return sh.home.phase != atHome }

// rests reports whether time does nothing in the share.
func (sh *share) rests() bool { return sh.restoring || sh.away() }

// arriving is what is staged of a share that moves here.
type arriving struct {
	gen    uint64
	epoch  uint64
	bodies *btree.BTreeG[stagedBody]
	image  *btree.Map[uint64, []byte] // pieces by their offset; never changed
	size   uint64
}

// bodyAt is where a body is at the old home.
type bodyAt struct {
	index  uint64
	offset uint32
}

// stagedBody is a body that is here already.
type stagedBody struct {
	bodyAt
	here BodyRef
}

func (a stagedBody) less(b stagedBody) bool {
	if a.index != b.index {
		return a.index < b.index
	}
	return a.offset < b.offset
}

// maxArriving bounds the image of a share: some million messages. It lies in memory until the share is sealed.
const maxArriving = 128 << 20

// rehome does a step of a move.
func (s *State) rehome(req *Request, c *Rehome, o *Outcome) {
	if c.Epoch == 0 || req.Entity == 0 || req.Sub != Main {
		o.refuse(InvalidArgument, "a move has an epoch, and an entity")
		return
	}
	switch c.Step {
	case RehomeBodies, RehomeImage:
		s.stageArrival(req.Entity, c, o)
		return
	case RehomeSeal:
		s.sealArrival(req.Entity, c, o)
		return
	case RehomeDiscard:
		s.discardArrival(req.Entity, c.Epoch)
		return
	}
	sh := s.write(req.Entity)
	if sh == nil {
		o.Refusal = Stale
		return
	}
	switch c.Step {
	case RehomeClose:
		s.closeShare(sh, c.Epoch, o)
	case RehomeReopen:
		s.reopenShare(sh, c.Epoch, o)
	case RehomeLeave:
		s.leaveShare(sh, c.Epoch, o)
	}
}

// closeShare stops a share at its old home.
func (s *State) closeShare(sh *share, epoch uint64, o *Outcome) {
	switch {
	case sh.home.phase == closed && sh.home.epoch == epoch:
		return
	case sh.d.Kind != Queue:
		o.refuse(InvalidOperation, "only a queue is moved to another partition")
		return
	case sh.restoring:
		o.refuse(Busy, restoringText)
		return
	case sh.away() || epoch <= sh.home.epoch:
		o.refuse(InvalidOperation, fmt.Sprintf("the move %d is over", epoch))
		return
	}
	s.expire(sh)
	sh.home.epoch, sh.home.phase, sh.home.lease, sh.home.wall = epoch, closed, s.lease, s.wall
	s.listening.Delete(sh.d.ID)
	s.wakeWaiters(sh)
	s.conclude(sh)
}

// wakeWaiters makes everybody who waits for anything of the share ask again.
func (s *State) wakeWaiters(sh *share) {
	s.wakeAll(sh)
	s.wake(WaitKey{Entity: sh.d.ID, Sub: TransferQueue, Kind: WaitMessage})
	sh.holders.Scan(func(no uint32, h holder) bool {
		id := sh.session(no).id
		s.wakeSession(sh, id)
		s.wakeLost(sh, id)
		return true
	})
}

// reopenShare gives a move up.
func (s *State) reopenShare(sh *share, epoch uint64, o *Outcome) {
	switch {
	case sh.home.phase == atHome:
		sh.home.epoch = max(sh.home.epoch, epoch)
	case sh.home.phase == closed && epoch >= sh.home.epoch:
		sh.home.epoch = epoch
		s.serveAgain(sh)
	default:
		o.refuse(InvalidOperation, "the share is not here")
	}
}

// serveAgain lets a share do what was due meanwhile, and tells everybody who waits. A holder whose node was declared lost
// meanwhile holds nothing any more.
func (s *State) serveAgain(sh *share) {
	sh.home.phase, sh.home.lease, sh.home.wall = atHome, 0, 0
	if sh.listening {
		s.listening.Set(sh.d.ID, struct{}{})
	}
	s.wakeWaiters(sh)
	for _, no := range sh.holders.Keys() {
		h, _ := sh.holders.Get(no)
		switch {
		case s.isLost(h.node):
			s.releaseSession(sh, no, false)
		case h.pending() && s.isLost(h.shared.former.node):
			s.endFormer(sh, no, false)
		}
	}
	s.conclude(sh)
}

// leaveShare marks a share that is served elsewhere by now.
func (s *State) leaveShare(sh *share, epoch uint64, o *Outcome) {
	switch {
	case sh.home.phase == left && epoch <= sh.home.epoch:
	case sh.home.phase == closed && epoch == sh.home.epoch:
		sh.home.phase, sh.home.lease, sh.home.wall = left, s.lease.After(resultTime), 0
		s.leaving.Set(sh.d.ID, sh.home.lease)
		sh.drops = Drops{} // they are counted at the new home
		s.dropping.Delete(sh.d.ID)
	default:
		o.refuse(InvalidOperation, "the share is not closed for that move")
	}
}

// vacate drops what the shares hold that have left for long enough. Their descriptions stay, so that an old one that
// comes late makes no new share.
func (s *State) vacate() {
	for {
		var id EntityID
		s.leaving.Scan(func(e EntityID, at Lease) bool {
			if at <= s.lease {
				id = e
			}
			return id == 0
		})
		if id == 0 {
			return
		}
		s.leaving.Delete(id)
		s.hollow(s.write(id))
	}
}

// hollow leaves nothing of a share but its description.
func (s *State) hollow(sh *share) {
	s.empty(sh)
	husk := newShare(sh.d, max(0, slices.Index(sh.d.Partitions, s.id)), s.gen)
	husk.home, husk.active = sh.home, s.lease
	husk.home.phase, husk.home.lease = left, 0
	s.shares.Set(sh.d.ID, husk)
}

// empty has the bodies of a share freed by this Tick and later ones.
func (s *State) empty(sh *share) {
	s.dropParts(sh)
	old := newShare(sh.d, max(0, slices.Index(sh.d.Partitions, s.id)), s.gen)
	old.arrival, old.lastTransfer = sh.arrival, sh.lastTransfer
	for i := range old.boxes {
		old.boxes[i].messages = sh.boxes[i].messages
	}
	old.history[Processed] = sh.history[Processed]
	if !old.reclaimed() {
		s.dropped.Set(sh.d.ID, old)
	}
}

// arrival returns what is staged of a share under an epoch, for writing. It is nil if the step has nothing to do, or is
// refused.
func (s *State) arrival(id EntityID, epoch uint64, o *Outcome) *arriving {
	if sh, ok := s.shares.Get(id); ok {
		switch {
		case sh.home.phase == arrived && epoch == sh.home.epoch:
			return nil
		case sh.home.phase == arrived && epoch > sh.home.epoch:
			s.discardArrival(id, sh.home.epoch)
		case sh.home.phase != left || epoch <= sh.home.epoch:
			o.refuse(InvalidOperation, "the share is here, or the move is over")
			return nil
		case sh.home.lease != 0:
			o.refuse(Busy, "the share has left this partition a moment ago")
			return nil
		}
	}
	if _, dropped := s.dropped.Get(id); dropped {
		o.refuse(Busy, "what the share held here before is not dropped yet")
		return nil
	}
	a, ok := s.arriving.Get(id)
	switch {
	case ok && a.epoch > epoch:
		o.refuse(InvalidOperation, "a later move is under way")
		return nil
	case ok && a.epoch < epoch:
		s.freeArrival(id)
		fallthrough
	case !ok:
		a = &arriving{gen: s.gen, epoch: epoch, bodies: newTable(stagedBody.less), image: new(btree.Map[uint64, []byte])}
		s.arriving.Set(id, a)
	case a.gen != s.gen:
		c := *a
		c.gen, c.bodies, c.image = s.gen, a.bodies.Copy(), a.image.Copy()
		a = &c
		s.arriving.Set(id, a)
	}
	return a
}

// freeArrival frees what is staged of a share.
func (s *State) freeArrival(id EntityID) {
	if a, ok := s.arriving.Delete(id); ok {
		a.bodies.Scan(func(b stagedBody) bool {
			s.free(b.here)
			return true
		})
	}
}

// stageArrival takes bodies, or a piece of the image.
func (s *State) stageArrival(id EntityID, c *Rehome, o *Outcome) {
	if len(c.Places) != len(c.Bodies) {
		o.refuse(InvalidArgument, "bodies without places")
		return
	}
	a := s.arrival(id, c.Epoch, o)
	switch {
	case o.Refusal != None:
		return
	case a == nil: // the share is sealed already
		EachMessage(c, s.freeBody)
		return
	case c.Step == RehomeImage && (c.At > a.size || c.At < a.size && c.At+uint64(len(c.Image)) > a.size):
		o.refuse(InvalidArgument, fmt.Sprintf("piece of an image at %d, %d bytes are here", c.At, a.size))
		return
	case c.Step == RehomeImage && c.At+uint64(len(c.Image)) > maxArriving:
		o.refuse(QuotaExceeded, fmt.Sprintf("the image of a share has %d bytes at most", maxArriving))
		return
	case c.Step == RehomeImage && c.At == a.size && len(c.Image) > 0:
		a.image.Set(c.At, bytes.Clone(c.Image))
		a.size += uint64(len(c.Image))
	}
	for i := range c.Bodies {
		at := bodyAt{c.Places[i].Index, c.Places[i].Offset}
		ref := s.bodyRef(&c.Bodies[i])
		if _, twice := a.bodies.Get(stagedBody{bodyAt: at}); twice || ref.Length == 0 {
			s.free(ref)
			continue
		}
		a.bodies.Set(stagedBody{at, ref})
	}
}

// sealArrival makes a share of what is staged.
func (s *State) sealArrival(id EntityID, c *Rehome, o *Outcome) {
	a := s.arrival(id, c.Epoch, o)
	if a == nil {
		return
	}
	whole := make([]byte, 0, a.size)
	a.image.Scan(func(_ uint64, piece []byte) bool {
		whole = append(whole, piece...)
		return true
	})
	if a.size != c.Size || crc32.Checksum(whole, castagnoli) != c.Sum {
		o.refuse(InvalidOperation, fmt.Sprintf("the image of the share has %d bytes here, and is not the one of %d bytes",
			a.size, c.Size))
		return
	}
	l := loader{s: New(0), anyID: true, into: s, staged: a.bodies, used: map[bodyAt]struct{}{}}
	l.s.gen = s.gen
	if err := l.frames(bytes.NewReader(whole)); err != nil {
		o.refuse(InvalidArgument, err.Error())
		return
	}
	sh, ok := l.s.shares.Get(id)
	share := -1
	if ok {
		share = slices.Index(sh.d.Partitions, l.s.id)
	}
	if !ok || l.s.shares.Len() != 1 || l.s.dropped.Len() > 0 || l.s.results.Len() > 0 || l.s.arriving.Len() > 0 ||
		sh.home.phase != closed || sh.home.epoch != c.Epoch || sh.d.Kind != Queue || slices.Contains(sh.d.Partitions, s.id) {
		o.refuse(InvalidArgument, "the image is not that of the closed share")
		return
	}
	if sh.home.origin == 0 {
		sh.home.origin = l.s.id
	}
	sh.home.phase, sh.home.lease, sh.home.wall = arrived, 0, 0
	sh.describe(sh.d.Rehomed(share, s.id))
	s.arriving.Delete(id)
	a.bodies.Scan(func(b stagedBody) bool {
		if _, used := l.used[b.bodyAt]; !used {
			s.free(b.here)
		}
		return true
	})
	l.s.bodies.Scan(func(b sharedBody) bool { s.bodies.Set(b); return true })
	l.s.large.Scan(func(b largeBody) bool { s.large.Set(b); return true })
	s.staged += l.s.staged
	if sh.drops != (Drops{}) {
		s.dropping.Set(id, struct{}{})
	}
	s.wall = max(s.wall, l.s.wall) // no message gets an earlier time than those before it
	s.shares.Set(id, sh)
}

// discardArrival drops a share that has come, and what is staged of it. The share may have been served here before, so
// its description stays.
func (s *State) discardArrival(id EntityID, epoch uint64) {
	if a, ok := s.arriving.Get(id); ok && a.epoch <= epoch {
		s.freeArrival(id)
	}
	if sh, ok := s.shares.Get(id); ok && sh.home.phase == arrived && sh.home.epoch <= epoch {
		s.hollow(s.write(id))
		s.dropping.Delete(id)
	}
}

// Rehomed returns the description of an entity of which one share is in another partition. Numbers and tokens keep what
// they carry.
func (d *Descriptor) Rehomed(share int, to PartitionID) *Descriptor {
	c := d.clone()
	if c.Partitioned && len(c.Prefixes) == 0 {
		c.Prefixes = slices.Clone(d.Partitions)
	}
	c.Partitions[share] = to
	return c
}
