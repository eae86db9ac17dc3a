package partition

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// EntityMetrics is what this node knows of one entity. The levels are of the shares whose partitions the node leads, and
// the tally is what the node counted of them since it started.
type EntityMetrics struct {
	fsm.EntityLevels
	Tally fsm.Tally
}

// levelsAtOnce is how many entities are looked at while no entry is applied: a fraction of a millisecond.
const levelsAtOnce = 256

// leveler is a Machine that knows how much there is of its entities; fsm.State is one.
type leveler interface {
	Levels(after fsm.EntityID, max int, f func(*fsm.EntityLevels)) fsm.EntityID
}

// Metrics returns what this node knows of the entities that it leads shares of, by id. Nothing is asked of other nodes,
// and nothing enters the log.
func (h *Host) Metrics() map[fsm.EntityID]*EntityMetrics {
	all := map[fsm.EntityID]*EntityMetrics{}
	for _, r := range h.list() {
		if !r.Leading() {
			continue
		}
		for after, more := fsm.EntityID(0), true; more; {
			r.View(func(m replica.Machine, _ uint64) {
				l, ok := m.(leveler)
				if !ok {
					more = false
					return
				}
				after = l.Levels(after, levelsAtOnce, func(l *fsm.EntityLevels) { addLevels(all, l) })
				more = after != 0
			})
		}
	}
	for id, e := range all {
		e.Tally = h.tallies.Of(id)
	}
	return all
}

// addLevels adds the levels of one share to those of its entity.
func addLevels(all map[fsm.EntityID]*EntityMetrics, l *fsm.EntityLevels) {
	e := all[l.Entity]
	if e == nil {
		all[l.Entity] = &EntityMetrics{EntityLevels: *l}
		return
	}
	e.Counts.Add(l.Counts)
	e.Quota += l.Quota
	for side, at := range l.Oldest {
		if at != 0 && (e.Oldest[side] == 0 || at < e.Oldest[side]) {
			e.Oldest[side] = at
		}
	}
}
