package model

import (
	"fmt"
	"reflect"

	"github.com/busbar-mq/busbar/fsm"
)

// bounded is step for a replica whose Ticks do only so much. What is due is done before the entry and
// behind it, in as many Ticks as that takes, with somebody listening everywhere; the twin and the model
// do it in one. Then nobody can tell the difference: S-79, S-82, S-288.
func (x *run) bounded(e *fsm.Entry) error {
	alone(e)
	before, err := x.settled(e)
	if err != nil {
		return err
	}
	x.next(e)
	did := Step{x.index, e, x.apply(x.a, x.index, e)}
	twin := x.b.Apply(x.index, e)
	if !reflect.DeepEqual(did.Result.Outcomes, twin.Outcomes) {
		return fmt.Errorf("replicas answer differently:\n%+v\n%+v", did.Result.Outcomes, twin.Outcomes)
	}
	behind, err := x.settled(e)
	if err != nil {
		return err
	}
	if err := x.model.Apply(before, did, behind); err != nil {
		return err
	}
	x.learnAll(e, &did.Result)
	return x.a.CheckInvariants()
}

// alone leaves one request of an entry, and of a transaction one operation: what the first dooms is gone
// in part only when the second comes.
func alone(e *fsm.Entry) {
	e.Requests = e.Requests[:1]
	switch c := e.Requests[0].Command.(type) {
	case *fsm.Commit:
		e.Requests[0].Command = &fsm.Commit{ID: c.ID, Ops: c.Ops[:min(1, len(c.Ops))]}
	case *fsm.PutEntity:
		again := *c
		d := &again.Descriptor
		d.RetryBackoff.Jitter = 0 // its chance is that of the entry
		// Old records and old ids go when it is convenient.
		d.ProcessedHistory, d.AcceptedHistory, d.DetectDuplicates = false, false, false
		e.Requests[0].Command = &again
	}
}

// settled does what is due by the clocks of an entry and returns it as one Tick.
func (x *run) settled(e *fsm.Entry) (Step, error) {
	c := &fsm.Tick{}
	for id := fsm.EntityID(1); id < 8; id++ {
		c.Listeners = append(c.Listeners, id)
	}
	tick := &fsm.Entry{Wall: e.Wall, Lease: e.Lease, Epoch: x.epoch, Requests: []fsm.Request{{Command: c}}}
	all := Step{Entry: tick}
	for range 10_000 {
		x.next(tick)
		r := x.apply(x.a, x.index, tick)
		all.Result.Outcomes = r.Outcomes
		all.Result.Wake = append(all.Result.Wake, r.Wake...)
		all.Result.Freed = append(all.Result.Freed, r.Freed...)
		wall, lease := x.a.NextDeadline()
		nowWall, nowLease := x.a.Clocks()
		if (wall == 0 || wall > nowWall) && (lease == 0 || lease > nowLease) {
			all.Index = x.index
			x.b.Apply(x.index, tick)
			return all, nil
		}
	}
	return all, fmt.Errorf("the Ticks do not come to an end")
}
