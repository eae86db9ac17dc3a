package fsm

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// maxPeek and maxListed bound one answer, whatever was asked for.
const (
	maxPeek   = 10_000
	maxListed = 1000
	// shortID is for how many bytes of an id there is room before it is known.
	shortID = 16
)

// Query answers a question and changes nothing (S-248). The clocks are those of the last entry.
func (s *State) Query(q QueryRequest) Answer {
	sh, ok := s.shares.Get(q.Entity)
	_, moving := q.Query.(*Moving)
	switch {
	case !ok || sh.away():
		return Answer{Refusal: Stale}
	case q.Sub > TransferDeadLetter && !moving:
		return Answer{Refusal: InvalidArgument, Detail: "no such subqueue"}
	case moving && sh.restoring: // not all that is in transit is there yet
		return Answer{Refusal: Busy, Detail: restoringText}
	case q.Sub != Main && sh.d.NoDeadLetter && !moving:
		return Answer{Refusal: EntityNotFound, Detail: "the entity has no dead-letter queue"}
	}
	switch c := q.Query.(type) {
	case *Peek:
		return s.peek(sh, q.Sub, c)
	case *GetSessionState:
		return s.sessionState(sh, q.Sub, c)
	case *Counts:
		return Answer{Counts: s.counts(sh)}
	case *ListSessions:
		return sh.listSessions(c)
	case *Browse:
		return s.browse(sh, q.Sub, c)
	case *ListLocks:
		return s.listLocks(sh, q.Sub, c)
	case *History:
		return s.readHistory(sh, c)
	case *Moving:
		return s.inTransit(sh, q.Sub, c)
	case *Idle:
		return Answer{IdleFor: s.idleFor(sh)}
	}
	return Answer{
		Refusal: InvalidOperation,
		Detail:  fmt.Sprintf("%T is not a question to a data partition", q.Query),
	}
}

// peek browses in the order of arrival (S-246, S-247).
func (s *State) peek(sh *share, sub SubQueue, c *Peek) Answer {
	if c.Max == 0 {
		return Answer{Refusal: InvalidArgument, Detail: "no message is asked for"}
	}
	start, ok := sh.browseFrom(sub, c.From)
	if !ok {
		return Answer{}
	}
	most := int(min(c.Max, maxPeek))
	if c.HasSession {
		if !sh.sessionful(sub) {
			return Answer{Refusal: SessionNotSupported, Detail: "the entity has no sessions"}
		}
		se := sh.lookup(c.Session)
		if se == nil {
			return Answer{}
		}
		return s.peeked(sh, sub, sh.inSession(se.no, start, most), c.MaxBytes)
	}
	arrivals := make([]uint64, 0, min(most, sh.boxes[sub].messages.Len()))
	sh.boxes[sub].messages.Ascend(start, func(a uint64, _ message) bool {
		arrivals = append(arrivals, a)
		return len(arrivals) < most
	})
	return s.peeked(sh, sub, arrivals, c.MaxBytes)
}

// browseFrom turns the number to start at into an arrival index; false means there is nothing.
func (sh *share) browseFrom(sub SubQueue, from SequenceNumber) (uint64, bool) {
	if from == 0 {
		return 0, true
	}
	if sh.d.Partitioned {
		if p := from.Prefix(); p != sh.prefix {
			return 0, p < sh.prefix // S-247: partition by partition
		}
	}
	if a, _, ok := sh.find(sub, from); ok {
		return a, true
	}
	a, ok := sh.from(from)
	if ok && sh.arrival-a > sh.mask/2 && sh.arrival > sh.mask {
		// Nearer to what comes next than to what was: a cursor behind the last message of numbers that
		// have begun anew (S-95, S-247).
		return 0, false
	}
	return a, ok
}

// inSession lists the arrival indexes of a session's messages from start on, in order.
func (sh *share) inSession(no uint32, start uint64, most int) []uint64 {
	var arrivals []uint64
	tables := [...]interface {
		Ascend(placeKey, func(placeKey) bool)
	}{sh.boxes[Main].ready, sh.aside}
	for _, t := range tables {
		left := most
		t.Ascend(placeKey{session: no, arrival: start}, func(k placeKey) bool {
			if k.session != no || left == 0 {
				return false
			}
			left--
			arrivals = append(arrivals, k.arrival)
			return true
		})
	}
	left := most
	sh.session(no).eachLocked(start, func(arrival uint64) bool {
		if left == 0 {
			return false
		}
		left--
		arrivals = append(arrivals, arrival)
		return true
	})
	slices.Sort(arrivals)
	return arrivals[:min(most, len(arrivals))]
}

func (s *State) peeked(sh *share, sub SubQueue, arrivals []uint64, maxBytes uint32) Answer {
	room := uint64(maxBytes)
	if room == 0 {
		room = math.MaxUint64
	}
	var a Answer
	for i, arrival := range arrivals {
		m, _ := sh.boxes[sub].messages.Get(arrival)
		if i > 0 && uint64(m.length) > room {
			break
		}
		room -= min(room, uint64(m.length))
		a.Messages = append(a.Messages, s.delivery(sh, sub, arrival, &m))
	}
	return a
}

// sessionState reads the state of a session for its holder (S-64, S-68).
func (s *State) sessionState(sh *share, sub SubQueue, c *GetSessionState) Answer {
	if !sh.sessionful(sub) {
		return Answer{Refusal: SessionNotSupported, Detail: "the entity has no sessions"}
	}
	if !sh.d.Status.receives() {
		return Answer{Refusal: EntityDisabled, Detail: "the status of the entity forbids it"}
	}
	se := sh.holds(c.Session)
	if se == nil {
		return Answer{Refusal: SessionLockLost}
	}
	if h, _ := sh.holders.Get(se.no); h.deadline <= s.lease {
		return Answer{Refusal: SessionLockLost}
	}
	st, has := sh.states.Get(se.no)
	large, _ := sh.parted.Get(se.no)
	return Answer{State: slices.Clone(st.data), HasState: has, Parts: large.parts}
}

// counts counts; a topic's size is that of its subscriptions' copies, too (S-225).
func (s *State) counts(sh *share) EntityCounts {
	b := &sh.boxes[Main]
	size := sh.size
	if sh.d.Kind == Topic {
		for _, sub := range s.children(sh.d.ID, nil) {
			size += sub.size
		}
	}
	transfer := uint64(sh.boxes[TransferQueue].messages.Len())
	forwarded := uint64(0)
	if sh.forwards(Main) { // these are on their way, not there to be received (S-277)
		forwarded = uint64(b.ready.Len() + b.paused.Len() + b.moving.Len())
	}
	return EntityCounts{
		Active:             uint64(b.messages.Len()) - b.scheduled - forwarded,
		Transfer:           transfer + forwarded,
		Scheduled:          b.scheduled,
		DeadLetter:         uint64(sh.boxes[DeadLetter].messages.Len()),
		TransferDeadLetter: uint64(sh.boxes[TransferDeadLetter].messages.Len()),
		Locked:             uint64(b.locks.Len()),
		Deferred:           b.deferred,
		Sessions:           uint64(sh.sessions.Len()),
		SizeBytes:          size,
		AccessedAt:         sh.touched,
		Dropped:            sh.drops,
	}
}

// listSessions pages through the sessions with something to find, in the order of ids (S-83, S-84).
func (sh *share) listSessions(c *ListSessions) Answer {
	if !sh.d.RequiresSession {
		return Answer{Refusal: SessionNotSupported, Detail: "the entity has no sessions"}
	}
	most := int(min(max(c.Max, 1), maxListed))
	var a Answer
	var text strings.Builder // of many ids, that stand on it one behind the other
	first := true
	sh.ids.from(c.After, func(id []byte, no uint32) bool {
		before := first && c.HasAfter && string(id) == c.After
		first = false
		if before {
			return true
		}
		if c.UpdatedAfter != 0 {
			if st, has := sh.states.Get(no); !has || st.at <= c.UpdatedAfter {
				return true
			}
		} else if !sh.found(id, no) {
			return true
		}
		if text.Cap()-text.Len() < len(id) {
			text = strings.Builder{}
			text.Grow(max(len(id), (most-len(a.Sessions))*shortID))
		}
		if a.Sessions == nil {
			a.Sessions = make([]string, 0, min(most, sh.ids.len()))
		}
		from := text.Len()
		text.Write(id)
		a.Sessions = append(a.Sessions, text.String()[from:])
		return len(a.Sessions) < most
	})
	return a
}

// found reports whether a session has a state, or a message that is neither deferred nor scheduled. Most
// are not looked at for that: one that nobody holds has messages, and if none is deferred or scheduled
// anywhere they can be had. So a page does not cost more with a million sessions than with a thousand.
func (sh *share) found(id []byte, no uint32) bool {
	if _, has := sh.states.Get(no); has {
		return true
	}
	if _, held := sh.holders.Get(no); !held && sh.aside.Len() == 0 {
		return true
	}
	se := sh.sessionOf(no, id)
	return se.ready > 0 || se.locked() > 0
}

// Parent returns the topic that the messages of a subscription are sent to. It returns any other id as it is.
func (s *State) Parent(id EntityID) EntityID {
	if sh, ok := s.shares.Get(id); ok && sh.d.Parent != 0 {
		return sh.d.Parent
	}
	return id
}

// Deliverable tells the leader whether a parked request for the key would be answered now: with
// something to take, or with a refusal. It is a hint.
func (s *State) Deliverable(k WaitKey) bool {
	sh, ok := s.shares.Get(k.Entity)
	if !ok || sh.away() || k.Sub > TransferQueue {
		return true
	}
	if sh.restoring {
		return !sh.forwards(k.Sub) // receivers hear the refusal, forwarders wait for the end
	}
	if k.Kind == WaitMessage && !k.HasSession && sh.forwards(k.Sub) {
		return sh.movable(k.Sub)
	}
	if !sh.d.Status.receives() {
		return true
	}
	if k.Kind == WaitSession || !k.HasSession && sh.sessionful(k.Sub) {
		return sh.tickets.Len() > 0
	}
	if !k.HasSession {
		return sh.boxes[k.Sub].ready.Len() > 0
	}
	se := sh.lookup(k.Session)
	if se == nil {
		return true
	}
	if _, held := sh.holders.Get(se.no); !held {
		return true
	}
	return se.ready > 0 && !sh.paused(se.no) && !sh.passing(se.no)
}
