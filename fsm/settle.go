package fsm

import (
	"bytes"
	"fmt"
	"strings"
)

// maxExtraBytes bounds what settlements may hang on one message: reason, description, properties.
// It is the limit of all properties of a message (S-227).
const maxExtraBytes = 64 << 10

// settle ends locks, item by item.
func (s *State) settle(sh *share, req *Request, c *Settle, o *Outcome) {
	o.Refusals = make([]Refusal, len(c.Items))
	no := uint32(0)
	if sh.sessionful(req.Sub) {
		se := sh.holds(c.Session)
		if se == nil {
			o.Refusal = SessionLockLost
			for i := range o.Refusals {
				o.Refusals[i] = SessionLockLost
			}
			return
		}
		sh.keep(se)
		no = se.no
	}
	for i := range c.Items {
		o.Refusals[i] = s.settleItem(sh, req.Sub, no, &c.Items[i])
	}
}

// settleItem ends one lock, of a message of the session of that number; 0 is that of none. A holder of the session
// that names a token that is gone has lost that message alone (RUL-31).
func (s *State) settleItem(sh *share, sub SubQueue, session uint32, it *SettleItem) Refusal {
	arrival, ok := sh.locked(sub, it.Token)
	if !ok || it.Seq != 0 && it.Seq != sh.number(arrival) {
		return MessageLockLost
	}
	b := &sh.boxes[sub]
	m, _ := b.messages.Get(arrival)
	if m.session != session {
		return MessageLockLost
	}
	if it.Delay != 0 && (it.Verdict != Abandon || it.Delay < 0 || it.Delay > maxRetryDelay) {
		return InvalidArgument
	}
	switch it.Verdict {
	case Complete:
		kept := s.processed(sh, arrival, &m, true)
		s.remove(sh, sub, arrival, &m)
		if !kept {
			s.free(m.ref())
		}
		s.tally(sh).Completed[sub.side()]++
	case Return:
		s.giveBack(sh, sub, arrival, &m, false, 0)
	case Abandon:
		if r := sh.amend(sub, arrival, &m, it); r != None {
			return r
		}
		s.tally(sh).Abandoned[sub.side()]++
		s.giveBack(sh, sub, arrival, &m, true, it.Delay)
	case Defer:
		if r := sh.amend(sub, arrival, &m, it); r != None {
			return r
		}
		b.count(m.state(), -1)
		m.setState(StateDeferred)
		b.count(m.state(), 1)
		s.tally(sh).Deferred[sub.side()]++
		s.giveBack(sh, sub, arrival, &m, true, 0) // S-184: a deferral counts
	case Kill:
		if sub != Main || sh.d.NoDeadLetter {
			return InvalidOperation // S-172, S-169
		}
		if r := sh.amend(sub, arrival, &m, it); r != None {
			return r
		}
		s.left(sh, arrival, DeadLettered)
		s.died(sh, DeathReceiver)
		s.deadLetter(sh, arrival, &m, it.Reason, it.Description)
	default:
		return InvalidArgument
	}
	return None
}

// amend merges the item's properties over those of the message (S-154). The stored message is
// changed only if all fits, and m with it.
func (sh *share) amend(sub SubQueue, arrival uint64, m *message, it *SettleItem) Refusal {
	if len(it.Properties) == 0 && it.Reason == "" && it.Description == "" {
		return None
	}
	b := &sh.boxes[sub]
	if len(it.Properties) > maxExtraBytes {
		return MessageSizeExceeded
	}
	x := *b.extra(arrival, m)
	x.properties = merge(x.properties, it.Properties)
	if x.bytes()+uint64(len(it.Reason)+len(it.Description)) > maxExtraBytes {
		return MessageSizeExceeded
	}
	if len(it.Properties) > 0 {
		sh.setExtra(sub, arrival, &x)
		m.bits |= extraBit
	}
	return None
}

// merge returns a new list: what was set before in its place, new keys behind, in the order given.
// Values are copied, for those given are views into a log entry.
func merge(old, set []Property) []Property {
	if len(set) == 0 {
		return old
	}
	list := append(make([]Property, 0, len(old)+len(set)), old...)
	place := make(map[string]int, len(old)+len(set)) // looked up, never ranged over
	for i := range list {
		place[list[i].Key] = i
	}
	for _, p := range set {
		p = Property{Key: strings.Clone(p.Key), Value: bytes.Clone(p.Value)}
		if i, ok := place[p.Key]; ok {
			list[i] = p
			continue
		}
		place[p.Key] = len(list)
		list = append(list, p)
	}
	return list
}

// deadLetter moves a message of the main queue to the DLQ, where it keeps its number, place and
// count (S-11, S-155).
func (s *State) deadLetter(sh *share, arrival uint64, m *message, reason, description string) {
	x := *sh.boxes[Main].extra(arrival, m)
	if se := sh.session(m.session); se != nil {
		x.session, x.inSession = se.id, true
	}
	origin, moved := sh.firsts.Get(arrival)
	s.remove(sh, Main, arrival, m)
	if moved {
		sh.firsts.Set(arrival, origin)
	}
	if reason != "" || description != "" {
		x.reason, x.description = strings.Clone(reason), strings.Clone(description)
	}
	dead := *m
	dead.session = 0 // S-78: a DLQ has no sessions
	dead.bits &^= extraBit | lockedBit
	dead.setState(StateActive)
	s.insert(sh, DeadLetter, arrival, dead)
	if x.matters() {
		sh.setExtra(DeadLetter, arrival, &x)
	}
}

// exhaust handles a message whose deliveries are used up (S-14, S-169).
func (s *State) exhaust(sh *share, arrival uint64, m *message) {
	if sh.d.NoDeadLetter {
		s.dropStored(sh, DropMaxDelivery, Main, arrival, m)
		s.gone(sh, arrival, Deleted)
		s.remove(sh, Main, arrival, m)
		s.free(m.ref())
		return
	}
	s.left(sh, arrival, DeadLettered)
	s.died(sh, DeathMaxDelivery)
	s.deadLetter(sh, arrival, m, "MaxDeliveryCountExceeded",
		fmt.Sprintf("Message could not be consumed after %d delivery attempts.", m.attempts()))
}
