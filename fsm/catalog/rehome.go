package catalog

import (
	"cmp"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// RehomingStep is how far the move of a share is. The step that the catalog has decides which home serves: the description
// of the entity changes with it, in one entry.
type RehomingStep string

// The steps of a move.
const (
	// RehomingCopy fills the new home, and then closes the old one.
	RehomingCopy RehomingStep = "copy"
	// RehomingOpen serves the share at the new home, and has the old one forget it.
	RehomingOpen RehomingStep = "open"
	// RehomingBack serves the share at the old home again, and has the new one forget it.
	RehomingBack RehomingStep = "back"
	// RehomingFailed is the past of an entity whose move was given up.
	RehomingFailed RehomingStep = "failed"
)

// ShareMove names a share of an entity and the partition that it goes to.
type ShareMove struct {
	Share int             `json:"share"`
	To    fsm.PartitionID `json:"to"`
}

// Rehoming is the move of one share, and the moves of the entity that come behind it.
type Rehoming struct {
	ID    fsm.EntityID    `json:"id"`
	Epoch uint64          `json:"epoch"` // of this move: the change number that began it
	Step  RehomingStep    `json:"step"`
	Share int             `json:"share"`
	From  fsm.PartitionID `json:"from"`
	To    fsm.PartitionID `json:"to"`
	Next  []ShareMove     `json:"next,omitempty"`
	Since fsm.Wall        `json:"since"`
	Why   string          `json:"why,omitempty"` // it goes back, or failed
}

// Active reports whether there is something to do.
func (r *Rehoming) Active() bool { return r.Step != RehomingFailed }

// Rehome begins moves of shares of one entity, one after the other.
type Rehome struct {
	ID    fsm.EntityID `json:"id"`
	Moves []ShareMove  `json:"moves"`
}

// RehomeStep takes the present move of an entity a step further. Anything that names another epoch is refused, so nobody
// ends a move that another one began.
type RehomeStep struct {
	ID    fsm.EntityID `json:"id"`
	Epoch uint64       `json:"epoch"`
	// Step is RehomingOpen or RehomingBack, from RehomingCopy; "" ends a move that has opened or gone back.
	Step RehomingStep `json:"step,omitempty"`
	Why  string       `json:"why,omitempty"`
}

// maxRehomings bounds the entities that are on the move, with those whose move failed.
const maxRehomings = 1000

// rehome begins to move shares.
func (s *State) rehome(c Rehome) fsm.Outcome {
	d := s.view.ByID(c.ID)
	if d == nil {
		return refuse(fsm.EntityNotFound, "entity %d does not exist", c.ID)
	}
	old, known := s.view.rehomings.Get(c.ID)
	switch {
	case d.Kind != fsm.Queue:
		return refuse(fsm.InvalidOperation, "%q is no queue: topics and subscriptions stay in their partitions", d.Name)
	case known && old.Active():
		return refuse(fsm.Busy, "%q is being moved already", d.Name)
	case !known && s.view.rehomings.Len() >= maxRehomings:
		return refuse(fsm.Busy, "%d entities are being moved", maxRehomings)
	case len(c.Moves) == 0:
		return refuse(fsm.InvalidArgument, "no share is to be moved")
	}
	homes := slices.Clone(d.Partitions)
	for i, m := range c.Moves {
		_, exists := s.view.groups.Get(m.To)
		again := slices.ContainsFunc(c.Moves[:i], func(e ShareMove) bool { return e.Share == m.Share })
		switch {
		case m.Share < 0 || m.Share >= len(homes) || again:
			return refuse(fsm.InvalidArgument, "%q has no share %d, or it is named twice", d.Name, m.Share)
		case !exists:
			return refuse(fsm.InvalidArgument, "partition %d does not exist", m.To)
		case slices.Contains(homes, m.To):
			return refuse(fsm.InvalidArgument, "%q has a share in partition %d", d.Name, m.To)
		}
		homes[m.Share] = m.To
	}
	v := s.next()
	v.rehomings.Set(c.ID, Rehoming{ID: c.ID, Since: s.wall, Next: slices.Clone(c.Moves)}.next(d, v.version))
	s.view = v
	return fsm.Outcome{Data: encode(d)}
}

// next is the move that comes behind this one.
func (r Rehoming) next(d *fsm.Descriptor, epoch uint64) Rehoming {
	m := r.Next[0]
	return Rehoming{ID: r.ID, Epoch: epoch, Step: RehomingCopy, Share: m.Share, From: d.Partitions[m.Share], To: m.To,
		Next: r.Next[1:], Since: r.Since}
}

// rehomed takes a move a step further.
func (s *State) rehomed(c RehomeStep) fsm.Outcome {
	r, known := s.view.rehomings.Get(c.ID)
	d := s.view.ByID(c.ID)
	switch {
	case !known || d == nil || r.Epoch != c.Epoch:
		return refuse(fsm.InvalidOperation, "the move %d of entity %d is over", c.Epoch, c.ID)
	case c.Step == r.Step: // again
		return fsm.Outcome{Data: encode(d)}
	}
	v := s.next()
	switch {
	case c.Step == RehomingOpen && r.Step == RehomingCopy:
		d = d.Rehomed(r.Share, r.To)
		if len(d.Origins) == 0 {
			d.Origins = slices.Clone(s.view.ByID(c.ID).Partitions)
		}
		d.Version = v.version
		v.put(d)
		r.Step = RehomingOpen
		v.rehomings.Set(c.ID, r)
	case c.Step == RehomingBack && r.Step == RehomingCopy:
		r.Step, r.Why = RehomingBack, cmp.Or(c.Why, "it was given up")
		v.rehomings.Set(c.ID, r)
	case c.Step == "" && r.Step == RehomingOpen && len(r.Next) > 0:
		v.rehomings.Set(c.ID, r.next(d, v.version))
	case c.Step == "" && r.Step == RehomingOpen:
		v.rehomings.Delete(c.ID)
	case c.Step == "" && r.Step == RehomingBack:
		r.Step, r.Next = RehomingFailed, nil
		v.rehomings.Set(c.ID, r)
	default:
		return refuse(fsm.InvalidOperation, "the move of %q is at the step %s", d.Name, r.Step)
	}
	s.view = v
	return fsm.Outcome{Data: encode(d)}
}

// Rehomings returns the moves of shares, by entity, with those that failed.
func (v *View) Rehomings() []Rehoming { return v.rehomings.Values() }

// Rehoming returns the move of an entity.
func (v *View) Rehoming(id fsm.EntityID) (Rehoming, bool) { return v.rehomings.Get(id) }

// PlanRehome returns the moves that spread the shares of an entity over the partitions with the fewest shares, none if
// that makes no difference. It is pure.
func (v *View) PlanRehome(d *fsm.Descriptor) (moves []ShareMove) {
	shares := map[fsm.PartitionID]int{}
	v.ids.Scan(func(_ fsm.EntityID, e *fsm.Descriptor) bool {
		for _, p := range e.Partitions {
			shares[p]++
		}
		return true
	})
	homes := slices.Clone(d.Partitions)
	for range homes {
		from, to := -1, fsm.PartitionID(0)
		for i, p := range homes { // the share in the fullest partition that has not moved
			moved := slices.ContainsFunc(moves, func(m ShareMove) bool { return m.Share == i })
			if !moved && (from < 0 || shares[p] > shares[homes[from]]) {
				from = i
			}
		}
		v.groups.Scan(func(p fsm.PartitionID, _ Group) bool {
			if !slices.Contains(homes, p) && (to == 0 || shares[p] < shares[to]) {
				to = p
			}
			return true
		})
		if from < 0 || to == 0 || shares[to]+1 >= shares[homes[from]] {
			return moves
		}
		shares[to]++
		shares[homes[from]]--
		moves = append(moves, ShareMove{Share: from, To: to})
		homes[from] = to
	}
	return moves
}
