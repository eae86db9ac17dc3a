package model

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// line is one record of a history. The model forgets none; it knows which may be gone.
type line struct {
	fsm.HistoryRecord
	message *message // while it is there
	mayGo   bool
	freed   bool // its body
	body    fsm.BodyRef
}

func (m *Model) accepted(q *queue, x *message) {
	if q.d.AcceptedHistory {
		q.history[fsm.Accepted] = append(q.history[fsm.Accepted], &line{message: x,
			HistoryRecord: fsm.HistoryRecord{Number: x.number, MessageID: x.named(q), SessionID: x.sessionID(),
				EnqueuedAt: m.wall, At: m.wall, By: m.by}})
	}
}

// named is what a history knows of the message's id: nothing if all were off when it came.
func (x *message) named(q *queue) string {
	if x.known {
		return x.id
	}
	return ""
}

func (x *message) sessionID() string {
	if x.session == nil {
		return ""
	}
	return x.session.id
}

// left ends the record of a message that leaves.
func (m *Model) left(q *queue, x *message, end fsm.HistoryEnd) {
	for _, l := range q.history[fsm.Accepted] {
		if l.message == x {
			l.message, l.End, l.EndedAt = nil, end, m.wall
		}
	}
}

// processed records a completion and says whether the body stays.
func (m *Model) processed(q *queue, x *message, body bool) {
	if q.d.ProcessedHistory {
		l := &line{HistoryRecord: fsm.HistoryRecord{Number: x.number, MessageID: x.named(q),
			SessionID: x.sessionID(), EnqueuedAt: x.enqueued, At: m.wall, Deliveries: x.finished + 1,
			By: m.by, End: fsm.Completed}}
		if body && q.d.ProcessedHistoryBody {
			l.Ref, l.body = x.body, x.body
			l.Ref.Length = x.size()
		}
		q.history[fsm.Processed] = append(q.history[fsm.Processed], l)
	}
	m.left(q, x, fsm.Completed)
}

// grow notes which records may be gone from now on.
func (m *Model) grow() {
	for _, q := range m.queues {
		for k, lines := range q.history {
			off := k == 0 && !q.d.ProcessedHistory || k == 1 && !q.d.AcceptedHistory
			for i, l := range lines {
				newer := len(lines) - 1 - i
				if off || newer >= int(q.d.HistoryCount) && m.wall >= l.At.After(q.d.HistoryAge) {
					l.mayGo = true
				}
			}
		}
	}
}

// fromHistory takes note of a freed body that a history kept.
func (m *Model) fromHistory(r fsm.BodyRef) error {
	for _, q := range m.queues {
		for _, l := range q.history[fsm.Processed] {
			if l.body == r && r.Length > 0 {
				if !l.mayGo {
					return fmt.Errorf("body %v is freed while its record must stay", r)
				}
				l.freed = true
			}
		}
	}
	return nil
}

// History compares a whole history with what it must and may hold.
func (m *Model) History(id fsm.EntityID, k fsm.HistoryKind, got []fsm.HistoryRecord) error {
	q := m.queue(id)
	if q == nil || q.closed {
		return nil
	}
	lines := q.history[k]
	if len(got) > len(lines) {
		return fmt.Errorf("%d records, %d were written", len(got), len(lines))
	}
	cut := len(lines) - len(got)
	for i, l := range lines {
		if i < cut {
			if !l.mayGo {
				return fmt.Errorf("record of message %d is gone", l.Number)
			}
			continue
		}
		want, have := l.HistoryRecord, got[i-cut]
		have.Order = 0
		if !reflect.DeepEqual(want, have) || l.freed {
			return fmt.Errorf("record\nwant %+v\ngot  %+v", want, have)
		}
	}
	return nil
}

// locks lists the locks of a subqueue.
func (m *Model) locks(q *queue, sub fsm.SubQueue, c *fsm.ListLocks) fsm.Answer {
	var a fsm.Answer
	for _, x := range q.messages {
		if x.sub != sub || x.token.IsZero() {
			continue
		}
		if len(a.Locks) == int(c.Max) {
			a.Next = x.before(q, sub)
			break
		}
		a.Locks = append(a.Locks, fsm.LockInfo{Number: x.number, Digits: [4]byte(x.token[2:6]),
			TakenAt: x.taken, LockedUntil: m.delivery(x).LockedUntil, State: x.state,
			HasSession: x.session != nil, SessionID: x.sessionID(), By: x.by,
			Shared: x.session != nil && !x.session.shared.IsZero()})
	}
	return a
}

// before is the arrival of the locked message before x.
func (x *message) before(q *queue, sub fsm.SubQueue) (arrival uint64) {
	for _, o := range q.messages[:slices.Index(q.messages, x)] {
		if o.sub == sub && !o.token.IsZero() {
			arrival = o.arrival
		}
	}
	return arrival
}
