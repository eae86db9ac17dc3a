package model

import (
	"cmp"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// forwardsHeld is the hold of forwards, 0 for none.
type forwardsHeld struct {
	holding   uint64
	heldUntil fsm.Lease
}

// marks are what a restore looks at and leaves in a queue.
type marks struct {
	sentAway int    // messages that were ever in the transfer queue
	restored bool   // it is being restored
	closed   bool   // it moves to another partition
	epoch    uint64 // of the last move that it heard of
}

func (q *queue) sessionful(sub fsm.SubQueue) bool { return q.d.RequiresSession && sub == fsm.Main }

// holdForwards begins, lengthens or ends a hold of forwards.
func (m *Model) holdForwards(c *fsm.HoldForwards) fsm.Outcome {
	m.holdEnds()
	mine := m.holding == c.Hold
	switch {
	case c.Hold == 0, c.For < 0, c.For > 30_000, c.Renew && c.For == 0:
		return refused(fsm.InvalidArgument)
	case c.Renew && !mine:
		return refused(fsm.InvalidOperation)
	case c.For == 0 && mine:
		m.holding = 0
	case c.For == 0:
	case m.holding != 0 && !mine:
		return refused(fsm.Busy)
	default:
		m.holding, m.heldUntil = c.Hold, m.lease.After(c.For)
	}
	return fsm.Outcome{}
}

func (m *Model) holdEnds() {
	if m.heldUntil <= m.lease {
		m.holding = 0
	}
}

// mayRestore reports whether a queue that is being restored takes a command.
func mayRestore(c fsm.Command) bool {
	switch c.(type) {
	case *fsm.Restore, *fsm.BodyPart:
		return true
	}
	return false
}

// silent reports whether a command is nobody's use of a queue.
func silent(c fsm.Command) bool {
	switch c.(type) {
	case *fsm.DropLocks, *fsm.Restore, *fsm.WatchSession:
		return true
	}
	return false
}

// restore begins and ends a restore. Restored says by itself what pages put back.
func (m *Model) restore(q *queue, c *fsm.Restore) fsm.Outcome {
	switch {
	case c.Step == fsm.RestoreBegin && !q.restored &&
		q.arrivals+uint64(q.born)+uint64(q.sentAway)+uint64(len(q.origins))+uint64(len(q.uploads)) > 0:
		return refused(fsm.InvalidOperation)
	case c.Step == fsm.RestoreBegin:
		q.restored = true
	case c.Step == fsm.RestoreEnd && q.restored:
		q.restored, q.uploads, q.active = false, nil, m.lease
	case c.Step == fsm.RestorePage && !q.restored:
		return refused(fsm.InvalidOperation)
	}
	return fsm.Outcome{}
}

// Restored makes the model what a backup of it becomes in an empty partition. Locks, remembered answers, uploads and lives
// of nodes are gone; all else is as it was. refs tells where each body is now. Bodies are put back in the order in which
// they came, and that is the order in which sessions are made and become ready.
func (m *Model) Restored(refs func(fsm.BodyRef) fsm.BodyRef) {
	m.pumps, m.lost, m.holding, m.deleted = map[pump]*memory{}, map[fsm.Incarnation]bool{}, 0, 0
	m.reclaimed = map[fsm.EntityID][]fsm.BodyRef{}
	was := m.parts
	m.parts, m.bodies = map[fsm.BodyRef][]fsm.BodyRef{}, map[fsm.BodyRef]bool{}
	moved := func(ref fsm.BodyRef) fsm.BodyRef {
		now := refs(ref)
		m.bodies[now] = true
		if parts, large := was[ref]; large {
			m.parts[now] = nil
			for _, p := range parts {
				m.bodies[refs(p)] = true
				m.parts[now] = append(m.parts[now], refs(p))
			}
		}
		return now
	}
	for _, q := range m.queues {
		q.hears, q.uploads, q.active = false, nil, m.lease
		first := map[*session]fsm.BodyRef{}
		ready := map[*session]fsm.BodyRef{}
		for _, x := range slices.Concat(q.messages, q.away) {
			if s := x.session; s != nil {
				s.token, s.shared, s.left = fsm.LockToken{}, fsm.LockToken{}, leaver{}
				earliest(first, s, x.body)
				if x.state == fsm.StateActive {
					earliest(ready, s, x.body)
				}
			}
			x.token, x.taken, x.by, x.deadline = fsm.LockToken{}, 0, fsm.RequestID{}, 0
		}
		for _, s := range q.sessions {
			s.token, s.shared, s.left = fsm.LockToken{}, fsm.LockToken{}, leaver{}
			for i, p := range s.parts {
				s.parts[i] = refs(p)
				m.bodies[s.parts[i]] = true
			}
		}
		slices.SortStableFunc(q.sessions, func(a, b *session) int { return before(first, a, b) })
		for i, s := range q.sessions {
			s.order = i + 1
		}
		q.born = len(q.sessions)
		slices.SortStableFunc(q.sessions, func(a, b *session) int { return before(ready, a, b) })
		q.ready = nil
		for _, x := range slices.Concat(q.messages, q.away) {
			x.body = moved(x.body)
			x.parts = m.parts[x.body]
		}
		for _, l := range q.history[fsm.Processed] {
			if l.Ref.Length > 0 && !l.freed {
				l.body = moved(l.body)
				l.Ref.Index, l.Ref.Offset = l.body.Index, l.body.Offset
			}
		}
		q.tidy()
		slices.SortStableFunc(q.sessions, func(a, b *session) int { return a.order - b.order })
	}
}

func earliest(of map[*session]fsm.BodyRef, s *session, ref fsm.BodyRef) {
	if was, there := of[s]; !there || precedes(ref, was) < 0 {
		of[s] = ref
	}
}

func precedes(a, b fsm.BodyRef) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Offset, b.Offset))
}

// before orders sessions by a body of theirs; those without one come last.
func before(of map[*session]fsm.BodyRef, a, b *session) int {
	x, there := of[a]
	y, too := of[b]
	switch {
	case there && too:
		return precedes(x, y)
	case there:
		return -1
	case too:
		return 1
	}
	return 0
}
