package model

import (
	"maps"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// commit tries the operations on a copy of everything, and becomes the copy if all succeed.
func (m *Model) commit(r *fsm.Request, c *fsm.Commit) fsm.Outcome {
	messages := 0
	for _, op := range c.Ops {
		switch cmd := op.Command.(type) {
		case *fsm.Enqueue:
			messages += len(cmd.Messages)
		case *fsm.Transfer:
			messages += len(cmd.Messages)
		case *fsm.Cancel, *fsm.Settle, *fsm.Renew, *fsm.SetSessionState:
		default:
			return refused(fsm.InvalidOperation)
		}
	}
	if messages > 100 {
		return refused(fsm.TransactionTooLarge)
	}
	for _, op := range c.Ops { // it comes again where the share is
		if q := m.queue(op.Entity); q != nil && q.closed {
			return refused(fsm.Stale)
		}
	}
	trial := m.copy()
	var o fsm.Outcome
	for _, op := range c.Ops {
		one := trial.ask(&fsm.Request{ID: r.ID, Entity: op.Entity, Sub: op.Sub, Command: op.Command}, nil)
		o.Ops = append(o.Ops, one)
		if one.Refusal != fsm.None || slices.ContainsFunc(one.Refusals, func(r fsm.Refusal) bool { return r != fsm.None }) {
			o.Refusal = fsm.TransactionAborted
			m.refusedIn(&op, one)
			return o
		}
	}
	m.queues = trial.queues
	return o
}

// copy returns a model that shares nothing with m which an operation of a transaction changes.
func (m *Model) copy() *Model {
	c := *m
	c.issued = maps.Clone(m.issued)
	c.queues = nil
	for _, q := range m.queues {
		c.queues = append(c.queues, q.copy())
	}
	return &c
}

func (q *queue) copy() *queue {
	c := *q
	sessions := map[*session]*session{nil: nil}
	messages := map[*message]*message{nil: nil}
	c.sessions, c.ready, c.messages, c.known = nil, nil, nil, nil
	for _, s := range q.sessions {
		again := *s
		sessions[s] = &again
		c.sessions = append(c.sessions, &again)
	}
	for _, s := range q.ready {
		c.ready = append(c.ready, sessions[s])
	}
	same := func(x *message) *message {
		again, ok := messages[x]
		if !ok {
			again = new(message)
			*again = *x
			again.session = sessions[x.session]
			messages[x] = again
		}
		return again
	}
	for _, x := range q.messages {
		c.messages = append(c.messages, same(x))
	}
	c.away = nil
	for _, x := range q.away {
		c.away = append(c.away, same(x))
	}
	for i := range q.moves {
		c.moves[i].list = slices.Clone(q.moves[i].list)
		for j := range c.moves[i].list {
			c.moves[i].list[j].x = same(c.moves[i].list[j].x)
		}
	}
	for _, k := range q.known {
		k.message = same(k.message)
		c.known = append(c.known, k)
	}
	for kind := range q.history {
		c.history[kind] = nil
		for _, l := range q.history[kind] {
			again := *l
			again.message = same(l.message)
			c.history[kind] = append(c.history[kind], &again)
		}
	}
	return &c
}
