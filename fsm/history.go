package fsm

import (
	"strings"

	"github.com/tidwall/btree"
)

const (
	defaultHistoryCount        = 100                 // S-276
	defaultHistoryAge   Millis = 24 * 60 * 60 * 1000 // S-276
	defaultHistoryBytes        = 16 << 20
	// historyRecordBytes is what a record costs beside its texts and body.
	historyRecordBytes = 160
	// historySlack is how long a record that may go is kept at most, so that a quiet share needs a
	// Tick only now and then; S-276 asks for three minutes.
	historySlack Millis = 60_000
)

// past is one stored record. It is never changed, only replaced.
type past struct {
	HistoryRecord
	arrival uint64 // accepted: of the message while it is there, else 0
}

func (p *past) bytes() uint64 {
	return historyRecordBytes + uint64(len(p.MessageID)+len(p.SessionID)+len(p.Operator)) + uint64(p.Ref.Length)
}

// chronicle is one history, in its order.
type chronicle struct {
	records *btree.Map[uint64, *past]
	last    uint64 // order given last
	size    uint64 // bytes, counted apart from the entity's quota (S-274)
	bodies  int    // records with one
}

func (sh *share) keeps(k HistoryKind) bool {
	return k == Processed && sh.d.ProcessedHistory || k == Accepted && sh.d.AcceptedHistory || k == Releases
}

// name remembers the message id of a stored message, which only histories want to know.
func (s *State) name(sh *share, in *Message, arrival uint64) {
	if (sh.d.ProcessedHistory || sh.d.AcceptedHistory) && in.MessageID != "" {
		sh.names.Set(arrival, strings.Clone(in.MessageID))
	}
}

// enter begins the record of an accepted message.
func (s *State) enter(sh *share, arrival uint64, m *message) {
	if !sh.d.AcceptedHistory {
		return
	}
	id, _ := sh.names.Get(arrival)
	p := &past{arrival: arrival, HistoryRecord: HistoryRecord{
		Number: sh.number(arrival), MessageID: id, SessionID: sh.sessionID(m), EnqueuedAt: s.wall, At: s.wall,
		By: s.run.by,
	}}
	s.record(sh, Accepted, p)
}

// record appends a record and keeps the history within its bytes.
func (s *State) record(sh *share, k HistoryKind, p *past) {
	c := &sh.history[k]
	c.last++
	p.Order = c.last
	c.records.Set(p.Order, p)
	c.size += p.bytes()
	if p.Ref.Length > 0 {
		c.bodies++
	}
	if p.arrival != 0 {
		sh.entered.Set(p.arrival, p.Order)
	}
	s.purgeHistory(sh, k, s.maxDue)
}

// moved follows a message that activates under a new number.
func (s *State) moved(sh *share, from, to uint64) {
	if id, ok := sh.names.Delete(from); ok {
		sh.names.Set(to, id)
	}
	if order, ok := sh.entered.Delete(from); ok {
		sh.entered.Set(to, order)
		old, _ := sh.history[Accepted].records.Get(order)
		p := *old
		p.arrival, p.Number, p.EnqueuedAt = to, sh.number(to), s.wall
		sh.history[Accepted].records.Set(order, &p)
	}
}

// left ends the accepted record of a message.
func (s *State) left(sh *share, arrival uint64, end HistoryEnd) {
	order, ok := sh.entered.Delete(arrival)
	if !ok {
		return
	}
	old, _ := sh.history[Accepted].records.Get(order)
	p := *old
	p.arrival, p.End, p.EndedAt = 0, end, s.wall
	sh.history[Accepted].records.Set(order, &p)
}

// gone ends the accepted record of a message that is nowhere any more.
func (s *State) gone(sh *share, arrival uint64, end HistoryEnd) {
	s.left(sh, arrival, end)
	sh.names.Delete(arrival)
}

// sessionID is the id of a message's session, "" if it is in none.
func (sh *share) sessionID(m *message) string {
	if se := sh.session(m.session); se != nil {
		return se.id
	}
	return ""
}

// processed records that a message was completed, or received and deleted, and reports whether its
// body stays with the record. It is called while the message is still there.
func (s *State) processed(sh *share, arrival uint64, m *message, mayKeep bool) (kept bool) {
	if sh.d.ProcessedHistory {
		id, _ := sh.names.Get(arrival)
		p := &past{HistoryRecord: HistoryRecord{
			Number: sh.number(arrival), MessageID: id, SessionID: sh.sessionID(m), EnqueuedAt: m.at, At: s.wall,
			Deliveries: m.attempts() + 1, By: s.run.by, End: Completed,
		}}
		if kept = mayKeep && sh.d.ProcessedHistoryBody && m.length > 0; kept {
			p.Ref = m.ref()
		}
		s.record(sh, Processed, p)
	}
	s.gone(sh, arrival, Completed)
	return kept
}

// purgeable reports whether the oldest record of a history may go. It must if the history is off or has too many
// bytes. It need not stay if it is old and not among the newest (S-276).
func (sh *share) purgeable(k HistoryKind, wall Wall) (order uint64, ok bool) {
	c := &sh.history[k]
	order, first, any := c.records.Min()
	if !any {
		return 0, false
	}
	return order, sh.purgeAt(k, first) <= wall
}

// purgeAt is when a history's oldest record may go.
func (sh *share) purgeAt(k HistoryKind, first *past) Wall {
	count, age, size := uint32(defaultHistoryCount), defaultHistoryAge, uint64(defaultHistoryBytes)
	if sh.d.HistoryCount > 0 {
		count = sh.d.HistoryCount
	}
	if sh.d.HistoryAge > 0 {
		age = sh.d.HistoryAge
	}
	if sh.d.HistoryMaxBytes > 0 {
		size = sh.d.HistoryMaxBytes
	}
	switch c := &sh.history[k]; {
	case !sh.keeps(k) || c.size > size:
		return 1
	case c.records.Len() > int(count):
		return max(1, first.At.After(age))
	}
	return 1<<63 - 1
}

// nextPurge is when a history is to be purged, 0 if never.
func (sh *share) nextPurge() (next Wall) {
	for k := range sh.history {
		_, first, ok := sh.history[k].records.Min()
		if !ok {
			continue
		}
		at := sh.purgeAt(HistoryKind(k), first)
		if at == 1<<63-1 {
			continue
		}
		if at > 1 {
			at = at.After(historySlack)
		}
		if next == 0 || at < next {
			next = at
		}
	}
	return next
}

// purgeHistory drops the oldest records that may go, at most budget, and returns what is left of it.
func (s *State) purgeHistory(sh *share, k HistoryKind, budget int) int {
	c := &sh.history[k]
	for ; budget > 0; budget-- {
		order, ok := sh.purgeable(k, s.wall)
		if !ok {
			break
		}
		p, _ := c.records.Delete(order)
		c.size -= p.bytes()
		if p.Ref.Length > 0 {
			c.bodies--
			s.free(p.Ref)
		}
		if p.arrival != 0 {
			sh.entered.Delete(p.arrival)
		}
	}
	return budget
}

// purgeHistories does so for all.
func (s *State) purgeHistories(sh *share, budget int) int {
	for k := range sh.history {
		budget = s.purgeHistory(sh, HistoryKind(k), budget)
	}
	return budget
}

// pages of histories and locks.
const maxPage = 1000

// readHistory pages through a history; bodies come with Answer.Messages, parallel to the records.
func (s *State) readHistory(sh *share, c *History) Answer {
	if c.Kind > Releases {
		return Answer{Refusal: InvalidArgument, Detail: "no such history"}
	}
	var a Answer
	room := uint64(c.MaxBytes)
	sh.history[c.Kind].records.Ascend(after1(c.After), func(_ uint64, p *past) bool {
		full := c.MaxBytes > 0 && uint64(p.Ref.Length) > room
		if n := len(a.History); n == int(min(max(c.Max, 1), maxPage)) || n > 0 && full {
			a.Next = a.History[n-1].Order
			return false
		}
		room -= min(room, uint64(p.Ref.Length))
		a.History = append(a.History, p.HistoryRecord)
		d := Delivery{Seq: p.Number, EnqueuedAt: p.EnqueuedAt, Ref: p.Ref}
		s.whole(&d)
		a.Messages = append(a.Messages, d)
		return true
	})
	return a
}

// after1 is the first place behind a cursor.
func after1(cursor uint64) uint64 {
	if cursor == 1<<64-1 {
		return cursor
	}
	return cursor + 1
}

// listLocks pages through the locks of a subqueue in the order of arrival.
func (s *State) listLocks(sh *share, sub SubQueue, c *ListLocks) Answer {
	var a Answer
	b := &sh.boxes[sub]
	last := uint64(0)
	b.locks.Ascend(after1(c.After), func(arrival uint64, l lock) bool {
		if len(a.Locks) == int(min(max(c.Max, 1), maxPage)) {
			a.Next = last
			return false
		}
		last = arrival
		m, _ := b.messages.Get(arrival)
		info := LockInfo{
			Number: sh.number(arrival), TakenAt: l.taken, State: m.state(),
			By:          RequestID{Node: l.node, Pump: l.pump},
			LockedUntil: s.lockedDelivery(sh, sub, arrival, &m, l).LockedUntil,
		}
		copy(info.Digits[:], l.token[2:])
		if se := sh.session(m.session); se != nil {
			info.HasSession, info.SessionID = true, se.id
			h, _ := sh.holders.Get(se.no)
			info.Shared = h.shared != nil
		}
		a.Locks = append(a.Locks, info)
		return true
	})
	return a
}
