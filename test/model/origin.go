package model

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// source is a queue from which messages were moved here.
type source struct {
	entity    fsm.EntityID
	partition fsm.PartitionID
	sub       fsm.SubQueue
}

// arrivals is what a destination remembers of a source: nothing below is asked for again, and what was
// decided about the others.
type arrivals struct {
	below   uint64
	decided map[uint64]fsm.Refusal
}

// enqueueMoved takes messages that were moved here, each once, judged as if it were sent alone.
func (m *Model) enqueueMoved(q *queue, sub fsm.SubQueue, c *fsm.Enqueue) fsm.Outcome {
	g := c.Origin
	rising := slices.IsSorted(g.Numbers) && len(slices.Compact(slices.Clone(g.Numbers))) == len(g.Numbers)
	if sub != fsm.Main || len(g.Numbers) == 0 || len(g.Numbers) != len(c.Messages) || !rising || g.Numbers[0] == 0 {
		return refused(fsm.InvalidArgument)
	}
	key := source{g.Entity, g.Partition, g.Sub}
	if q.origins == nil {
		q.origins = map[source]*arrivals{}
	}
	from := q.origins[key]
	if from == nil {
		from = &arrivals{decided: map[uint64]fsm.Refusal{}}
		q.origins[key] = from
	}
	from.below = max(from.below, g.Below)
	n := len(c.Messages)
	o := fsm.Outcome{
		EnqueuedAt: m.wall, Refusals: make([]fsm.Refusal, n), Numbers: make([]fsm.SequenceNumber, n),
	}
	waits := false
	for i, number := range g.Numbers {
		was, known := from.decided[number]
		switch {
		case waits:
			o.Refusals[i] = fsm.Busy
		case number < from.below: // forgotten
		case known:
			o.Refusals[i] = was
		default:
			alone := m.takeIn(q, &fsm.Enqueue{Messages: c.Messages[i : i+1]})
			if alone.Refusal == fsm.QuotaExceeded && g.Sub == fsm.TransferQueue {
				o.Refusals[i], waits = fsm.Busy, true
				continue
			}
			from.decided[number] = alone.Refusal
			o.Refusals[i] = alone.Refusal
			if alone.Refusal == fsm.None {
				o.Numbers[i] = alone.Numbers[0]
			}
		}
	}
	return o
}

func (m *Model) takeIn(q *queue, c *fsm.Enqueue) fsm.Outcome {
	if q.d.Status != fsm.Active && q.d.Status != fsm.ReceiveDisabled {
		return refused(fsm.EntityDisabled)
	}
	alone := *c
	alone.Messages = slices.Clone(c.Messages)
	if q.reserved(alone.Messages[0].Reserved) == 0 {
		alone.Messages[0].Reserved = 0
	}
	return m.enqueue(q, fsm.Main, &alone)
}

// brings gives a message what it brings along from where it was.
func (x *message) brings(c *fsm.Carried) {
	if c != nil {
		x.first, x.hops = c.EnqueuedSeq, c.Hops
		x.reason, x.text, x.source, x.props = c.Reason, c.Description, c.Source, c.Properties
	}
}

// luggage is how many bytes of it count.
func (x *message) luggage() int {
	n := len(x.reason) + len(x.text) + len(x.source)
	for _, p := range x.props {
		n += len(p.Key) + len(p.Value)
	}
	return n
}
