package model

import (
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
)

// refusedForQuota counts the messages of a send that the quota refused.
func (q *queue) refusedForQuota(messages []fsm.Message, o fsm.Outcome) {
	if q != nil && o.Refusal == fsm.QuotaExceeded {
		q.drops[fsm.DropQuota] += uint64(len(messages))
	}
}

// refusedIn counts the messages of an operation for which a transaction was undone.
func (m *Model) refusedIn(op *fsm.Op, o fsm.Outcome) {
	switch c := op.Command.(type) {
	case *fsm.Enqueue:
		m.queue(op.Entity).refusedForQuota(c.Messages, o)
	case *fsm.Transfer:
		m.queue(op.Entity).refusedForQuota(c.Messages, o)
	}
}

// Drops compares what a replica dropped with what it should have, entity by entity.
func (m *Model) Drops(got []fsm.EntityDrops, others fsm.Drops) error {
	if others != (fsm.Drops{fsm.DropWithEntity: m.deleted}) {
		return fmt.Errorf("dropped with their entities: want %d, got %v", m.deleted, others)
	}
	for _, q := range m.queues {
		have := fsm.Drops{}
		if len(got) > 0 && got[0].Entity == q.d.ID {
			have, got = got[0].Drops, got[1:]
		}
		if have != q.drops {
			return fmt.Errorf("drops of entity %d: want %v, got %v", q.d.ID, q.drops, have)
		}
	}
	if len(got) > 0 {
		return fmt.Errorf("drops of an unknown entity %d", got[0].Entity)
	}
	return nil
}
