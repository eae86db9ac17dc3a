package model

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// revoke ends locks at an operator's wish, as if they had run out.
func (m *Model) revoke(q *queue, sub fsm.SubQueue, c *fsm.Revoke) fsm.Outcome {
	defer q.tidy()
	if c.HasSession {
		if !q.sessionful(sub) {
			return refused(fsm.SessionNotSupported)
		}
		s := q.session(c.Session)
		if s == nil || !s.held() {
			return refused(fsm.MessageNotFound)
		}
		q.noteRelease(c, fsm.HistoryRecord{SessionID: s.id, At: m.wall, By: fsm.RequestID{Node: s.node}})
		m.release(q, s, true)
		return fsm.Outcome{Count: 1}
	}
	if q.sessionful(sub) {
		return refused(fsm.InvalidOperation)
	}
	if c.Number == 0 && c.Node == 0 {
		return refused(fsm.InvalidArgument)
	}
	var o fsm.Outcome
	for _, x := range slices.Clone(q.messages) {
		named := x.number == c.Number
		if c.Number == 0 {
			named = x.by.Node == c.Node && x.by.Pump == c.Pump
		}
		if named && x.sub == sub && !x.token.IsZero() {
			q.noteRelease(c, fsm.HistoryRecord{Number: x.number, MessageID: x.named(q), SessionID: x.sessionID(),
				EnqueuedAt: x.enqueued, At: m.wall, Deliveries: x.finished + 1,
				By: fsm.RequestID{Node: x.by.Node, Pump: x.by.Pump}})
			m.giveBack(q, x, true, 0)
			o.Count++
		}
	}
	if o.Count == 0 {
		return refused(fsm.MessageNotFound)
	}
	return o
}

// noteRelease records what an operator has taken back.
func (q *queue) noteRelease(c *fsm.Revoke, r fsm.HistoryRecord) {
	if c.Operator == "" {
		return
	}
	r.End, r.Operator = fsm.Released, c.Operator
	q.history[fsm.Releases] = append(q.history[fsm.Releases], &line{HistoryRecord: r})
}
