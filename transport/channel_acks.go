package transport

import (
	"bytes"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// ack answers one delivery: a client's transfer, or a client's disposition.
type ack struct {
	id    uint32
	state amqp.DeliveryState
	// open says that the delivery is not settled by the answer: a transaction will, or will not (RUL-30).
	open bool
	by   settledBy // of a client's disposition
}

// flushAcks writes the answers of this turn, equal neighbours as one range.
func (ch *channel) flushAcks() {
	ch.c.onLoop()
	ch.writeAcks(amqp.RoleReceiver, ch.acks)
	ch.writeAcks(amqp.RoleSender, ch.dones)
	ch.acks, ch.dones = ch.acks[:0], ch.dones[:0]
}

func (ch *channel) writeAcks(role amqp.Role, acks []ack) {
	ch.c.onLoop()
	if ch.ended {
		return
	}
	for i := 0; i < len(acks); {
		j := i + 1
		for j < len(acks) && acks[j].id == acks[j-1].id+1 && acks[i].open == acks[j].open && sameState(acks[i].state, acks[j].state) {
			j++
		}
		ch.c.out = amqp.AppendDisposition(ch.c.out, ch.number, &amqp.Disposition{
			Role: role, First: acks[i].id, Last: amqp.Some(acks[j-1].id), Settled: !acks[i].open, State: acks[i].state,
		})
		for ; i < j; i++ {
			if role == amqp.RoleSender && !acks[i].open && acks[i].by.how != undecided {
				ch.answered.add(acks[i].id, acks[i].by)
			}
		}
	}
}

// sameState reports whether two answers may share a frame.
func sameState(a, b amqp.DeliveryState) bool {
	if a.StateCode() != b.StateCode() {
		return false
	}
	switch a := a.(type) {
	case amqp.Accepted, amqp.Released:
		return true
	case amqp.Rejected:
		return a.Error == nil && b.(amqp.Rejected).Error == nil
	case *amqp.TransactionalState:
		b := b.(*amqp.TransactionalState)
		return bytes.Equal(a.TxnID, b.TxnID) && sameState(a.Outcome, b.Outcome)
	case amqp.Modified:
		return a.UndeliverableHere == b.(amqp.Modified).UndeliverableHere
	}
	return false
}
