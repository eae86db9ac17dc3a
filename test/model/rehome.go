package model

import "github.com/busbar-mq/busbar/fsm"

// rehome closes a queue that moves to another partition, and opens it again. The model has one partition, so nothing
// comes from elsewhere, and nothing leaves.
func (m *Model) rehome(r *fsm.Request, c *fsm.Rehome) fsm.Outcome {
	q := m.queue(r.Entity)
	switch {
	case c.Epoch == 0 || r.Entity == 0 || r.Sub != fsm.Main:
		return refused(fsm.InvalidArgument)
	case c.Step == fsm.RehomeDiscard:
		return fsm.Outcome{}
	case q == nil:
		return refused(fsm.Stale)
	case c.Step == fsm.RehomeReopen && (!q.closed || c.Epoch >= q.epoch):
		q.closed, q.epoch = false, max(q.epoch, c.Epoch)
		return fsm.Outcome{}
	case c.Step == fsm.RehomeClose && q.closed && q.epoch == c.Epoch:
		return fsm.Outcome{}
	case c.Step == fsm.RehomeClose && q.restored && q.d.Kind == fsm.Queue:
		return refused(fsm.Busy)
	case c.Step == fsm.RehomeClose && q.d.Kind == fsm.Queue && !q.closed && c.Epoch > q.epoch:
		m.expire(q)
		q.closed, q.epoch = true, c.Epoch
		return fsm.Outcome{}
	}
	return refused(fsm.InvalidOperation)
}

// rests reports whether time does nothing in a queue.
func (q *queue) rests() bool { return q.restored || q.closed }
