package fsm

import "fmt"

const (
	// maxHops is how often a message may be moved (S-208).
	maxHops = 4
	// maxMoving bounds what is in transit from one queue, and so what a destination remembers of it.
	maxMoving = 4096
	// maxMoveBytes bounds the bodies of one Forward or Moving: an answer must fit a frame.
	maxMoveBytes = 4 << 20
)

// forwards reports whether the messages of the subqueue are moved to another entity.
func (sh *share) forwards(sub SubQueue) bool {
	switch sub {
	case Main:
		return sh.d.ForwardTo != "" && !sh.d.RequiresSession && sh.d.Kind != Topic
	case DeadLetter:
		return sh.d.ForwardDeadLettersTo != "" && sh.d.Kind != Topic
	}
	return sub == TransferQueue
}

// movable reports whether a Forward may find something to take.
func (sh *share) movable(sub SubQueue) bool {
	if !sh.forwards(sub) || sh.moves[sub].table.Len() >= maxMoving ||
		sub != TransferQueue && !sh.d.Status.receives() {
		return false
	}
	found := false
	sh.boxes[sub].ready.Ascend(placeKey{arrival: sh.moveFrom(sub)}, func(placeKey) bool {
		found = true
		return false
	})
	return found
}

// moveFrom is where to look for what can be moved: dead letters that were refused stay behind.
func (sh *share) moveFrom(sub SubQueue) uint64 {
	if sub == DeadLetter {
		return after1(sh.refusedTo)
	}
	return 0
}

// transfer stores messages that go to another entity (S-236). They take no number of this one.
func (s *State) transfer(sh *share, req *Request, c *Transfer, o *Outcome) {
	if !s.claim(sh, c.Messages, o) {
		return
	}
	var total uint64
	for i := range c.Messages {
		m := &c.Messages[i]
		if total += uint64(m.Size()); m.TTL < 0 || m.Carried != nil {
			o.refuse(InvalidArgument, "time to live is negative, or the message was moved before")
			return
		}
	}
	limit := uint64(sh.d.MaxMessageBytes) + uint64(len(c.Messages))*maxBodyOverheadBytes
	switch {
	case req.Sub != Main:
		o.refuse(InvalidOperation, "messages cannot be sent through a subqueue")
	case c.To == 0 || len(c.Messages) == 0:
		o.refuse(InvalidArgument, "no destination, or no message")
	case sh.d.MaxMessageBytes > 0 && total > limit:
		o.refuse(MessageSizeExceeded,
			fmt.Sprintf("size %d bytes, maximum %d bytes", total, sh.d.MaxMessageBytes))
	case !sh.fits(total, o):
	default:
		for i := range c.Messages {
			in := &c.Messages[i]
			m := message{
				index: s.index, offset: in.BodyOffset, length: uint32(in.Size()), at: s.wall,
				expires: Wall(in.TTL), // counts at the destination
			}
			s.sendAway(sh, m, &extra{scheduledAt: in.ScheduledAt, to: c.To, reserved: in.Reserved})
		}
		o.EnqueuedAt = s.wall
		sh.touched = s.wall
	}
}

// sendAway puts a message into the transfer queue.
func (s *State) sendAway(sh *share, m message, x *extra) {
	sh.lastTransfer++
	s.insert(sh, TransferQueue, sh.lastTransfer, m)
	sh.setExtra(TransferQueue, sh.lastTransfer, x)
}

// forward ends moves and takes further messages.
func (s *State) forward(sh *share, req *Request, c *Forward, o *Outcome) {
	if c.Epoch != s.epoch {
		o.Refusal = NotLeader
		return
	}
	if s.holding != 0 {
		o.refuse(Busy, "a backup holds forwards")
		return
	}
	if req.Sub == TransferDeadLetter {
		o.refuse(InvalidOperation, "nothing is forwarded from there")
		return
	}
	for i := range c.Done {
		s.endMove(sh, req.Sub, &c.Done[i])
	}
	if c.Max > 0 && sh.forwards(req.Sub) && (req.Sub == TransferQueue || sh.d.Status.receives()) {
		s.takeMoves(sh, req.Sub, c, o)
	}
	o.Next = sh.below(req.Sub)
}

// below is the smallest number in transit, or the next one to be given.
func (sh *share) below(sub SubQueue) uint64 {
	if first, _, ok := sh.moves[sub].table.Min(); ok {
		return first
	}
	return sh.moves[sub].last + 1
}

// endMove ends one move; a number that is not in transit has ended before.
func (s *State) endMove(sh *share, sub SubQueue, done *Moved) {
	mv, ok := sh.moves[sub].table.Get(done.Number)
	switch done.Refusal {
	case Stale, NotLeader, Busy, NodeExpired, NoSession:
		ok = false // these do not say that the destination will not have it
	}
	if !ok {
		return
	}
	m, _ := sh.boxes[sub].messages.Get(mv.arrival)
	if done.Refusal != None {
		s.refused(sh, sub, mv.arrival, &m, refusedReason(done.Refusal), done.Detail, DeathForward)
		return
	}
	s.tally(sh).Forwarded++
	s.leave(sh, sub, mv.arrival, &m)
	s.free(m.ref())
}

// leave removes a message that is somewhere else now.
func (s *State) leave(sh *share, sub SubQueue, arrival uint64, m *message) {
	if sub != TransferQueue {
		s.gone(sh, arrival, Forwarded)
	}
	s.remove(sh, sub, arrival, m)
}

func refusedReason(r Refusal) string {
	if r == SessionRequired {
		return "Session ID is null." // S-174
	}
	return r.String()
}

// refused dead-letters a message that its destination refuses, or that may not be moved once more. It goes from the
// main queue to the DLQ (S-208, S-209), and from the transfer queue to its own (S-237). A dead letter stays where it
// is and is not tried again.
func (s *State) refused(sh *share, sub SubQueue, arrival uint64, m *message, reason, text string, why Death) {
	if sub == DeadLetter {
		x := *sh.boxes[sub].extra(arrival, m)
		x.stuck = true
		from := sh.refusedTo
		s.unplace(sh, sub, arrival, m)
		sh.setExtra(sub, arrival, &x)
		m.bits |= extraBit
		s.place(sh, sub, arrival, m)
		sh.refusedTo = from // it is not looked at again
		return
	}
	if sh.d.NoDeadLetter { // S-169
		s.dropStored(sh, DropForward, sub, arrival, m)
		if sub == Main {
			s.gone(sh, arrival, Deleted)
		}
		s.remove(sh, sub, arrival, m)
		s.free(m.ref())
		return
	}
	if sub == Main {
		s.left(sh, arrival, DeadLettered)
		s.died(sh, why)
		s.deadLetter(sh, arrival, m, reason, text)
		return
	}
	s.died(sh, why)
	x := *sh.boxes[sub].extra(arrival, m)
	s.remove(sh, sub, arrival, m)
	x.to, x.reserved, x.reason, x.description = 0, 0, reason, text
	dead := *m
	dead.bits = 0
	dead.expires = 0
	next := sh.nextArrival()
	s.insert(sh, TransferDeadLetter, next, dead)
	sh.setExtra(TransferDeadLetter, next, &x)
}

// circles reports whether what goes there comes back: to the entity itself, or from a subscription to its
// own topic (RUL-24).
func (sh *share) circles(to EntityID) bool {
	return to == sh.d.ID || sh.d.Kind == Subscription && to == sh.d.Parent
}

// circled ends a message that went in a circle. It goes to the transfer dead-letter queue, where it
// keeps its number: from the DLQ it could be forwarded into the same circle.
func (s *State) circled(sh *share, sub SubQueue, arrival uint64, m *message, reason, text string) {
	x := *sh.boxes[sub].extra(arrival, m)
	s.died(sh, DeathHops)
	origin, moved := sh.firsts.Get(arrival)
	if sub == Main {
		s.left(sh, arrival, DeadLettered)
	}
	s.remove(sh, sub, arrival, m)
	if moved {
		sh.firsts.Set(arrival, origin)
	}
	x.reason, x.description = reason, text
	dead := *m
	dead.bits &^= extraBit | lockedBit
	dead.setState(StateActive)
	s.insert(sh, TransferDeadLetter, arrival, dead)
	sh.setExtra(TransferDeadLetter, arrival, &x)
}

// takeMoves takes messages in order. A message without a move left is dead-lettered on the way (S-208).
func (s *State) takeMoves(sh *share, sub SubQueue, c *Forward, o *Outcome) {
	if sub == Main {
		s.enforce(sh, s.maxDue)
		if sh.overdue(s.wall) {
			sh.starved = true
			return // a Tick wakes when what has expired is out of the way
		}
	}
	b := &sh.boxes[sub]
	left := min(int(c.Max), maxMoving-sh.moves[sub].table.Len(), maxDeliveries)
	room := int(min(c.MaxBytes, maxMoveBytes))
	if room == 0 {
		room = maxMoveBytes
	}
	picks, worn := s.run.picks[:0], []pick(nil)
	scanned, from := 0, sh.moveFrom(sub)
	b.ready.Ascend(placeKey{arrival: from}, func(k placeKey) bool {
		m, _ := b.messages.Get(k.arrival)
		if left == 0 || scanned == maxRedriveScan || len(picks) > 0 && int(m.length) > room {
			return false
		}
		scanned++
		from = k.arrival
		switch origin, _ := sh.firsts.Get(k.arrival); {
		case sub == DeadLetter && b.extra(k.arrival, &m).stuck:
		case sub != TransferQueue && origin.hops >= maxHops:
			worn = append(worn, pick{k.arrival, m})
		default:
			left--
			room -= int(m.length)
			picks = append(picks, pick{k.arrival, m})
		}
		return true
	})
	s.run.picks = picks
	for i := range picks {
		s.takeMove(sh, sub, c.To, picks[i].arrival, &picks[i].m, o)
	}
	for i := range worn {
		const reason = "MaxTransferHopCountExceeded"
		text := fmt.Sprintf("The message was moved %d times, the maximum.", maxHops)
		if sh.circles(c.To) && !sh.d.NoDeadLetter {
			s.circled(sh, sub, worn[i].arrival, &worn[i].m, reason, text)
		} else {
			s.refused(sh, sub, worn[i].arrival, &worn[i].m, reason, text, DeathHops)
		}
	}
	if sub == DeadLetter && scanned > 0 {
		sh.refusedTo = from
	}
}

func (s *State) takeMove(
	sh *share, sub SubQueue, to EntityID, arrival uint64, m *message, o *Outcome,
) {
	if sub == TransferQueue {
		to = sh.boxes[sub].extra(arrival, m).to
	}
	s.unplace(sh, sub, arrival, m)
	mv := &sh.moves[sub]
	mv.last++
	mv.table.Set(mv.last, moving{arrival: arrival, to: to})
	sh.boxes[sub].moving.Set(arrival, mv.last)
	o.Locked = append(o.Locked, s.movingDelivery(sh, sub, arrival, m))
	o.Moves = append(o.Moves, s.move(sh, sub, mv.last))
}

// movingDelivery describes a message in transit.
func (s *State) movingDelivery(sh *share, sub SubQueue, arrival uint64, m *message) Delivery {
	d := s.delivery(sh, sub, arrival, m)
	switch sub {
	case TransferQueue: // numbers and times begin at the destination
		d.Seq, d.EnqueuedSeq, d.ExpiresAt = sh.boxes[sub].extra(arrival, m).reserved, 0, 0
	case DeadLetter:
		if d.Source == "" {
			d.Source = sh.d.Name // S-177
		}
	}
	return d
}

func (s *State) move(sh *share, sub SubQueue, number uint64) Move {
	mv, _ := sh.moves[sub].table.Get(number)
	m, _ := sh.boxes[sub].messages.Get(mv.arrival)
	out := Move{Number: number, To: mv.to}
	switch sub {
	case TransferQueue:
		out.TTL = m.life()
		return out
	case Main:
		if m.expires != 0 {
			out.TTL = max(1, m.expires.Since(s.wall))
		}
	}
	origin, _ := sh.firsts.Get(mv.arrival)
	out.Hops = origin.hops
	return out
}

// inTransit lists what is in transit, for a new leader.
func (s *State) inTransit(sh *share, sub SubQueue, c *Moving) Answer {
	var a Answer
	room := int(min(c.MaxBytes, maxMoveBytes))
	if room == 0 {
		room = maxMoveBytes
	}
	most := int(min(max(c.Max, 1), maxMoving))
	sh.moves[sub].table.Ascend(after1(c.After), func(number uint64, mv moving) bool {
		m, _ := sh.boxes[sub].messages.Get(mv.arrival)
		if n := len(a.Moves); n == most || n > 0 && int(m.length) > room {
			a.Next = a.Moves[n-1].Number
			return false
		}
		room -= int(m.length)
		a.Messages = append(a.Messages, s.movingDelivery(sh, sub, mv.arrival, &m))
		a.Moves = append(a.Moves, s.move(sh, sub, number))
		return true
	})
	return a
}
