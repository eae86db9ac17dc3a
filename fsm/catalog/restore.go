package catalog

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// restore adds an entity of a backup: suspended, with its own times, keys and rules, and with as many shares as it had.
// Its destination is not looked at, because it was set before (S-207).
func (s *State) restore(d fsm.Descriptor, limits Limits) fsm.Outcome {
	if o := s.admits(&d, &limits); o.Refusal != fsm.None {
		return o
	}
	d.Restore()
	d.Origins = nil
	d.Suspended, d.UserStatus, d.Status = true, d.Status, fsm.Disabled
	v := s.next()
	d.ID = v.nextID
	v.nextID++
	d.Version = v.version
	if d.CreatedAt == 0 {
		d.CreatedAt, d.UpdatedAt = s.wall, s.wall
	}
	if d.Kind == fsm.Subscription {
		rules := d.Rules
		parent, o := s.newSubscription(&d, &limits)
		if o.Refusal != fsm.None {
			return o
		}
		if len(rules) == 0 {
			d.Rules = nil // a subscription without rules selects nothing (S-217), and is no new one
		}
		for i := range rules {
			d.Rules[i].CreatedAt = rules[i].CreatedAt
		}
		d.Parent, d.Partitions, d.Prefixes = parent.ID, parent.Partitions, parent.Prefixes
		d.Partitioned = parent.Partitioned
	} else {
		d.Parent, d.Rules = 0, nil
		if d.Partitions = v.sharesAs(d.ID, &d); d.Partitions == nil {
			return refuse(fsm.InvalidArgument, "%q has %d shares, and the cluster has %d partitions: it needs as many",
				d.Name, len(d.Prefixes), v.groups.Len())
		}
		if !d.PrefixesFit() {
			return refuse(fsm.InvalidArgument, "the prefixes of %q do not tell its shares apart", d.Name)
		}
	}
	v.put(&d)
	s.view = v
	return fsm.Outcome{Data: encode(&d)}
}

// sharesAs chooses the partitions of a restored entity, as many as it has prefixes; nil if there are too few.
func (v *View) sharesAs(id fsm.EntityID, d *fsm.Descriptor) []fsm.PartitionID {
	if !d.Partitioned {
		d.Prefixes = nil
		return v.shares(id, false)
	}
	all := v.groups.Keys()
	n := len(d.Prefixes)
	if n == 0 || n > len(all) {
		return nil
	}
	first := int(uint64(id) % uint64(len(all)))
	return slices.Concat(all[first:], all[:first])[:n]
}
