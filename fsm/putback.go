package fsm

import (
	"fmt"
	"slices"
	"strings"
)

// restoringText tells an operator what to do about a restore that came to no end.
const restoringText = "the entity is being restored; a restore that does not go on ends with the deletion of the entity"

// restores reports whether a share that is being restored takes the command.
func restores(c Command) bool {
	switch c.(type) {
	case *Restore, *BodyPart:
		return true
	}
	return false
}

// putBack does a Restore.
func (s *State) putBack(sh *share, c *Restore, o *Outcome) {
	switch {
	case c.Step == RestoreBegin:
		s.beginRestore(sh, c, o)
	case c.Step == RestoreEnd:
		s.endRestore(sh)
	case !sh.restoring:
		o.refuse(InvalidOperation, "the entity is not being restored")
	default:
		s.putBackPage(sh, c, o)
	}
}

// beginRestore takes a share that was never used. In one that is being restored it raises the counters.
func (s *State) beginRestore(sh *share, c *Restore, o *Outcome) {
	n := &c.Counters
	largest := max(n.Arrival, n.LastTransfer, slices.Max(n.Moves[:]), slices.Max(n.Histories[:]), slices.Max(n.Drops[:]))
	switch {
	case !sh.restoring && sh.used():
		o.refuse(InvalidOperation, "the entity was used before, so nothing is restored into it")
	case largest > maxRestored:
		o.refuse(InvalidArgument, "counter too large")
	default:
		sh.restoring = true
		sh.arrival, sh.lastTransfer = max(sh.arrival, n.Arrival), max(sh.lastTransfer, n.LastTransfer)
		sh.touched, sh.forgotten = max(sh.touched, n.Touched), max(sh.forgotten, n.Forgotten)
		for sub := range sh.moves {
			sh.moves[sub].last = max(sh.moves[sub].last, n.Moves[sub])
		}
		for k := range sh.history {
			sh.history[k].last = max(sh.history[k].last, n.Histories[k])
		}
		for why := range sh.drops {
			sh.drops[why] = max(sh.drops[why], n.Drops[why])
		}
		if sh.drops != (Drops{}) {
			s.dropping.Set(sh.d.ID, struct{}{})
		}
	}
}

// used reports whether anything was ever in the share.
func (sh *share) used() bool {
	return sh.arrival != 0 || sh.lastTransfer != 0 || sh.lastNo != 0 || sh.origins.Len() > 0 || sh.uploads.Len() > 0
}

// endRestore makes the share an ordinary one, and tells everybody who waits.
func (s *State) endRestore(sh *share) {
	if !sh.restoring {
		return
	}
	sh.restoring = false
	for _, id := range sh.uploads.Keys() {
		s.dropUpload(sh, id)
	}
	sh.active = s.lease
	sh.watchIdle(s.lease.After(sh.d.AutoDeleteOnIdle))
	s.wakeAll(sh)
	s.wake(WaitKey{Entity: sh.d.ID, Sub: TransferQueue, Kind: WaitMessage})
}

// putBackPage stores a page, or nothing of it.
func (s *State) putBackPage(sh *share, c *Restore, o *Outcome) {
	if bad := s.checkPage(sh, c); bad != "" {
		o.refuse(InvalidArgument, "page of a restore: "+bad)
		return
	}
	s.putBackBodies(sh, c, o)
	if o.Refusal != None {
		return
	}
	for i := range c.Sessions {
		s.putBackSession(sh, &c.Sessions[i])
	}
	for i := range c.IDs {
		sh.putBackID(&c.IDs[i])
	}
	for i := range c.Records {
		sh.putBackRecord(&c.Records[i], BodyRef{})
	}
	for i := range c.Origins {
		sh.putBackOrigin(&c.Origins[i])
	}
}

// putBackBodies stores bodies with all that refers to them. A body of which all is there already is free.
func (s *State) putBackBodies(sh *share, c *Restore, o *Outcome) {
	there := make([]bool, len(c.Bodies))
	fresh := make([]Message, 0, len(c.Bodies))
	for i := range c.Bodies {
		there[i] = !slices.ContainsFunc(c.Uses[i], func(u BodyUse) bool { return !s.has(s.restored(sh, &u), &u) })
		if !there[i] {
			fresh = append(fresh, c.Bodies[i])
		}
	}
	if !s.claim(sh, fresh, o) {
		return
	}
	for i := range c.Bodies {
		b := &c.Bodies[i]
		if there[i] {
			s.free(BodyRef{Index: s.index, Offset: b.BodyOffset, Length: uint32(len(b.Body))})
			if b.Rest.ID != 0 {
				s.dropUpload(sh, b.Rest.ID)
			}
			continue
		}
		n := 0
		for k := range c.Uses[i] {
			u := &c.Uses[i][k]
			to := s.restored(sh, u)
			if s.has(to, u) {
				continue
			}
			n++
			if u.IsRecord {
				to.putBackRecord(&u.Record, s.bodyRef(b))
				continue
			}
			s.putBackMessage(to, b, &u.Message)
		}
		s.reuse(s.bodyRef(b), n)
	}
}

// restored returns the share that a use of a body is in, nil if that is not being restored.
func (s *State) restored(root *share, u *BodyUse) *share {
	to := root
	if u.Entity != 0 && u.Entity != root.d.ID {
		if to = s.write(u.Entity); to == nil || to.d.Parent != root.d.ID {
			return nil
		}
	}
	if !to.restoring {
		return nil
	}
	return to
}

// has reports whether a use of a body was put back before.
func (s *State) has(sh *share, u *BodyUse) (there bool) {
	if u.IsRecord {
		_, there = sh.history[u.Record.Kind].records.Get(u.Record.Order)
		return there
	}
	_, there = sh.boxes[u.Message.Sub].messages.Get(u.Message.Arrival)
	return there
}

// extra is what only few messages have.
func (in *RestoredMessage) extra() extra {
	x := carriedExtra(in.Carried, 0)
	x.scheduledAt, x.inSession, x.session = in.ScheduledAt, in.InSession, strings.Clone(in.DiedIn)
	x.to, x.reserved, x.stuck = in.To, in.Reserved, in.Stuck
	return x
}

// putBackMessage stores one message that was checked.
func (s *State) putBackMessage(sh *share, body *Message, in *RestoredMessage) {
	ref := s.bodyRef(body)
	m := message{index: ref.Index, offset: ref.Offset, length: ref.Length, at: in.At, expires: in.Expires,
		bits: min(in.Attempts, maxAttempts) << countShift}
	m.setState(in.State)
	if sh.sessionful(in.Sub) {
		m.session = s.intern(sh, in.SessionID)
	}
	s.insert(sh, in.Sub, in.Arrival, m)
	if x := in.extra(); x.matters() || x.reserved != 0 {
		sh.setExtra(in.Sub, in.Arrival, &x)
	}
	if in.HasFirst {
		sh.firsts.Set(in.Arrival, first{number: in.Carried.EnqueuedSeq, hops: in.Carried.Hops})
	}
	if in.State == StateScheduled {
		sh.wallDue.Set(wallDue{at: m.at, kind: dueActivate, id: in.Arrival})
	}
	switch {
	case sh.d.Kind == Topic && in.Sub == Main:
		s.keepHead(sh, &Message{Body: body.Body, MessageID: in.MessageID, HasSession: in.HasSession,
			SessionID: in.SessionID}, in.Arrival)
	case in.MessageID != "" && in.Sub != TransferQueue:
		sh.names.Set(in.Arrival, strings.Clone(in.MessageID))
	}
	m, _ = sh.boxes[in.Sub].messages.Get(in.Arrival)
	switch {
	case in.Transit != 0:
		s.unplace(sh, in.Sub, in.Arrival, &m)
		sh.moves[in.Sub].table.Set(in.Transit, moving{arrival: in.Arrival, to: in.TransitTo})
		sh.boxes[in.Sub].moving.Set(in.Arrival, in.Transit)
	case in.Rest > 0 && m.session == 0:
		s.unplace(sh, in.Sub, in.Arrival, &m)
		s.rest(sh, in.Sub, in.Arrival, &m, in.Rest)
		s.place(sh, in.Sub, in.Arrival, &m)
	}
}

// putBackSession gives a session its state and its pause.
func (s *State) putBackSession(sh *share, in *RestoredSession) {
	se := sh.lookup(in.ID)
	has := false
	if se != nil {
		_, has = sh.states.Get(se.no)
	}
	switch {
	case !in.HasState:
	case has:
		s.dropUpload(sh, in.Parts.ID)
	default:
		no := s.intern(sh, in.ID)
		se = sh.session(no)
		sh.states.Set(no, sessionState{data: append([]byte{}, in.State...), at: in.StateAt})
		sh.size += uint64(len(in.State) + len(in.ID))
		if in.Parts.ID != 0 {
			up := s.unstage(sh, in.Parts.ID)
			sh.parted.Set(no, parted{bytes: up.bytes, parts: up.parts})
			sh.size += up.bytes
		}
	}
	if in.Rest > 0 && se != nil && !sh.paused(se.no) {
		m := message{session: se.no}
		s.rest(sh, Main, 0, &m, in.Rest)
	}
}

func (sh *share) putBackID(in *RestoredID) {
	e := seen{hash: in.Hash, at: in.At, arrival: in.Arrival}
	if _, there := sh.seen.Get(e); there {
		return
	}
	sh.lastSeen++
	e.order = sh.lastSeen
	sh.seen.Set(e)
	sh.seenOrder.Set(e.order, e.hash)
}

func (sh *share) putBackRecord(in *RestoredRecord, body BodyRef) {
	c := &sh.history[in.Kind]
	if _, there := c.records.Get(in.Order); there {
		return
	}
	p := &past{HistoryRecord: in.HistoryRecord, arrival: in.Arrival}
	p.MessageID, p.SessionID, p.Operator = strings.Clone(in.MessageID), strings.Clone(in.SessionID), strings.Clone(in.Operator)
	p.Ref = body
	if p.arrival != 0 && !sh.stored(p.arrival) {
		p.arrival = 0
	}
	c.records.Set(p.Order, p)
	c.size += p.bytes()
	if p.Ref.Length > 0 {
		c.bodies++
	}
	if p.arrival != 0 {
		sh.entered.Set(p.arrival, p.Order)
	}
}

func (sh *share) putBackOrigin(in *RestoredOrigin) {
	key := originKey{in.Entity, in.Partition, in.Sub}
	known, _ := sh.origins.Get(origin{originKey: key})
	below := max(known.below, in.Below)
	sh.origins.Set(origin{key, below})
	for _, d := range in.Decided {
		if d.Number >= below {
			sh.decided.Set(decided{key, d.Number, d.Refusal})
		}
	}
}

// checkPage says what of a page cannot be put back.
func (s *State) checkPage(sh *share, c *Restore) string {
	if len(c.Uses) != len(c.Bodies) {
		return "bodies without uses"
	}
	known := map[usedPlace]struct{}{} // looked up, never ranged over
	for i := range c.Uses {
		if len(c.Uses[i]) == 0 {
			return "body that nothing refers to"
		}
		for k := range c.Uses[i] {
			if bad := s.checkUse(sh, &c.Bodies[i], &c.Uses[i][k], known); bad != "" {
				return bad
			}
		}
	}
	for i := range c.Sessions {
		in := &c.Sessions[i]
		if !sh.d.RequiresSession || !validSessionID(in.ID) || in.Parts.ID != 0 && (len(in.State) > 0 || !in.HasState) {
			return fmt.Sprintf("session %q", in.ID)
		}
		if se := sh.lookup(in.ID); in.Parts.ID != 0 && !sh.staged(in.Parts) {
			if se == nil {
				return fmt.Sprintf("parts of the state of session %q are missing", in.ID)
			}
			if _, has := sh.states.Get(se.no); !has {
				return fmt.Sprintf("parts of the state of session %q are missing", in.ID)
			}
		}
	}
	last := Wall(0)
	if h, ok := sh.newestSeen(); ok {
		last = h.at
	}
	for i := range c.IDs {
		in := &c.IDs[i]
		if _, there := sh.seen.Get(seen{hash: in.Hash}); there {
			continue
		}
		if !sh.d.DetectDuplicates || in.At < last || in.Arrival > sh.arrival {
			return "message id out of order"
		}
		last = in.At
	}
	for i := range c.Records {
		if bad := sh.checkRecord(&c.Records[i]); bad != "" {
			return bad
		}
	}
	return sh.checkOriginsOf(c)
}

// newestSeen returns the id that was accepted last.
func (sh *share) newestSeen() (seen, bool) {
	_, h, ok := sh.seenOrder.Max()
	if !ok {
		return seen{}, false
	}
	return sh.seen.Get(seen{hash: h})
}

func (sh *share) checkRecord(in *RestoredRecord) string {
	if in.Kind > Releases || in.Order == 0 || in.Order > sh.history[in.Kind].last || in.Arrival > sh.arrival ||
		(in.Kind == Releases) != (in.End == Released) || in.Arrival != 0 && (in.Kind != Accepted || in.End != StillThere) {
		return fmt.Sprintf("record %d of history %d", in.Order, in.Kind)
	}
	if at, twice := sh.entered.Get(in.Arrival); twice && in.Arrival != 0 && at != in.Order {
		return fmt.Sprintf("record %d of a message that has another", in.Order)
	}
	return ""
}

func (sh *share) checkOriginsOf(c *Restore) string {
	if sh.origins.Len()+len(c.Origins) > maxOrigins {
		return "too many origins"
	}
	for i := range c.Origins {
		for _, d := range c.Origins[i].Decided {
			if d.Number < c.Origins[i].Below || d.Refusal >= lastRefusal {
				return "decision about a number that is settled"
			}
		}
	}
	return ""
}

// usedPlace is a place, or a number in transit, that a page names.
type usedPlace struct {
	entity  EntityID
	sub     SubQueue
	key     uint64
	transit bool
}

// checkUse checks one use of a body, whose share must be known and being restored. A page names each place once.
func (s *State) checkUse(root *share, body *Message, u *BodyUse, known map[usedPlace]struct{}) string {
	sh := s.restored(root, u)
	switch {
	case sh == nil:
		return fmt.Sprintf("entity %d is not being restored with %d", u.Entity, root.d.ID)
	case u.IsRecord:
		if u.Record.Kind != Processed || body.Size() == 0 {
			return "record with a body in a history without"
		}
		return sh.checkRecord(&u.Record)
	}
	m := &u.Message
	if bad := sh.checkRestored(m); bad != "" {
		return fmt.Sprintf("message %d of %q: %s", m.Arrival, m.Sub, bad)
	}
	for _, at := range [...]usedPlace{{sh.d.ID, m.Sub, m.Arrival, false}, {sh.d.ID, m.Sub, m.Transit, true}} {
		if _, twice := known[at]; twice && at.key != 0 {
			return fmt.Sprintf("message %d twice", m.Arrival)
		}
		known[at] = struct{}{}
	}
	return ""
}

// checkRestored says why a message cannot stand in the share as it is.
func (sh *share) checkRestored(in *RestoredMessage) string {
	if in.Sub > TransferQueue {
		return "no such subqueue"
	}
	taken, moves := sh.moves[in.Sub].table.Get(in.Transit)
	x := in.extra()
	switch {
	case in.Arrival == 0 || in.Arrival > sh.lastKey(in.Sub):
		return "its number was never given"
	case in.State > StateScheduled || in.State == StateScheduled && (in.Sub != Main || in.At <= 0) || in.Expires < 0:
		return "impossible state"
	case sh.d.Kind == Topic && in.Sub != TransferQueue && in.State != StateScheduled:
		return "a topic keeps scheduled messages only"
	case sh.sessionful(in.Sub) && (!in.HasSession || !validSessionID(in.SessionID)):
		return "no valid session"
	case in.Sub == TransferQueue && in.To == 0:
		return "it goes nowhere"
	case !validSessionID(in.DiedIn) || x.bytes() > 3*maxExtraBytes:
		return "extras too large"
	case in.HasFirst && (in.Carried == nil || in.Sub == TransferQueue) || in.Rest < 0 || in.Rest > maxRetryDelay:
		return "impossible past"
	case in.Transit != 0 && (in.State != StateActive || sh.sessionful(in.Sub) || in.Sub == TransferDeadLetter ||
		in.Transit > sh.moves[in.Sub].last || moves && taken.arrival != in.Arrival ||
		!moves && sh.moves[in.Sub].table.Len() >= maxMoving):
		return "impossible transit"
	}
	return ""
}
