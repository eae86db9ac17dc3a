package fsm

import (
	"slices"
	"strings"
)

// KnownEntity is an entity as this partition knows it.
type KnownEntity struct {
	ID      EntityID
	Version uint64
	// Arriving is the epoch of a move that brings a share here which is not served yet, 0 if there is none.
	Arriving uint64
}

// Known lists the entities of this partition in the order of their ids, for the leader's comparison
// with the catalog (A2).
func (s *State) Known() []KnownEntity {
	known := make([]KnownEntity, 0, s.shares.Len())
	s.shares.Scan(func(id EntityID, sh *share) bool {
		k := KnownEntity{ID: id, Version: sh.d.Version}
		if sh.home.phase == arrived {
			k.Arriving = sh.home.epoch
		}
		known = append(known, k)
		return true
	})
	s.arriving.Scan(func(id EntityID, a *arriving) bool {
		known = append(known, KnownEntity{ID: id, Arriving: a.epoch})
		return true
	})
	return known
}

// StartAfter makes the share of an entity go on behind arrival index last, so that a test sees numbers
// begin anew without 2^48 messages (S-95). It is no command: all replicas must do it.
func (s *State) StartAfter(id EntityID, last uint64) {
	if sh := s.write(id); sh != nil {
		sh.arrival = max(sh.arrival, last)
	}
}

// allows refuses what the status forbids (S-252, S-254, S-128).
func (sh *share) allows(req *Request, o *Outcome) bool {
	traits := traitsOf(req.Command)
	if sh.d.Kind == Topic && !traits.Has(OnTopic) {
		o.refuse(InvalidOperation, "a topic is sent to; messages are received from its subscriptions") // S-223
		return false
	}
	if traits.Has(Sends) && !sh.d.Status.sends() || traits.Has(Receives) && !sh.d.Status.receives() {
		o.refuse(EntityDisabled, "the status of the entity forbids it")
		return false
	}
	if traits.Has(Takes) && sh.forwards(req.Sub) {
		o.refuse(InvalidOperation, "the messages are forwarded; receive from their destination") // S-206, S-177
		return false
	}
	return true
}

// putEntity takes over a version of a description; a version that is not newer changes nothing.
func (s *State) putEntity(req *Request, c *PutEntity, o *Outcome) {
	d := c.Descriptor
	index := slices.Index(d.Partitions, s.id)
	if bad := malformed(&d, index); bad != "" || req.Entity != 0 && req.Entity != d.ID {
		o.refuse(InvalidArgument, "description of entity: "+bad)
		return
	}
	sh := s.write(d.ID)
	if _, dropped := s.dropped.Get(d.ID); dropped && sh == nil {
		o.Refusal = EntityNotFound
		return
	}
	if sh == nil {
		sh = newShare(d.clone(), index, s.gen)
		sh.active = s.lease
		sh.watchIdle(s.lease.After(d.AutoDeleteOnIdle))
		s.shares.Set(d.ID, sh)
		s.adopt(sh.d)
		s.reschedule(sh)
		return
	}
	if d.Version <= sh.d.Version || sh.home.phase == closed || sh.home.phase == left {
		return // the description of a share that is closed follows when that is served again
	}
	if old := sh.d; old.Kind != d.Kind || old.Parent != d.Parent || old.RequiresSession != d.RequiresSession ||
		old.DetectDuplicates != d.DetectDuplicates ||
		old.Partitioned != d.Partitioned || len(old.Partitions) != len(d.Partitions) ||
		index != slices.Index(old.Partitions, s.id) || d.Prefix(index) != sh.prefix {
		o.refuse(InvalidOperation, "kind, sessions, duplicate detection and partitions never change") // S-261
		return
	}
	if sh.home.phase == arrived {
		s.serveAgain(sh)
	}
	s.expire(sh)
	stopped := sh.d.Status.receives() && !d.Status.receives()
	started := !sh.d.Status.receives() && d.Status.receives()
	rerouted := sh.d.ForwardTo != d.ForwardTo || sh.d.ForwardDeadLettersTo != d.ForwardDeadLettersTo
	sh.forgotten = max(sh.forgotten, s.wall.After(-sh.window()))
	sh.describe(d.clone())
	sh.active = s.lease
	sh.watchIdle(s.lease.After(d.AutoDeleteOnIdle))
	if stopped {
		s.revoke(sh)
	}
	if rerouted {
		sh.refusedTo = 0
	}
	if stopped || rerouted {
		s.wakeAll(sh)
	}
	for sub := Main; started && sub <= DeadLetter; sub++ {
		if sh.forwards(sub) { // clients come back by themselves, the forwarder does not
			s.wake(WaitKey{Entity: sh.d.ID, Sub: sub, Kind: WaitMessage})
		}
	}
	s.conclude(sh)
}

// adopt makes a subscription known to its topic.
func (s *State) adopt(d *Descriptor) {
	if d.Kind == Subscription {
		s.subscriptions.Set(child{topic: d.Parent, id: d.ID})
	}
}

// malformed says what of a description cannot be worked with; the catalog has checked the rest.
func malformed(d *Descriptor, index int) string {
	switch {
	case d.ID == 0:
		return "no id"
	case index < 0:
		return "no share in this partition"
	case !d.Partitioned && len(d.Partitions) != 1:
		return "several shares without partitioning"
	case d.Partitioned && slices.Max(d.Partitions) > maxPartitionID:
		return "partition id too large"
	case !d.PrefixesFit():
		return "prefixes that do not tell the shares apart"
	case d.Kind < Queue || d.Kind > Subscription:
		return "unknown kind"
	case d.Kind == Subscription && d.Parent == 0:
		return "no topic"
	case d.Kind != Topic && d.LockDuration <= 0:
		return "no lock duration"
	case d.Kind != Topic && d.MaxDelivery == 0:
		return "no maximum delivery count"
	}
	return ""
}

// PrefixesFit reports whether the prefixes of a restored entity, if it has any, tell its shares apart.
func (d *Descriptor) PrefixesFit() bool {
	if len(d.Prefixes) == 0 {
		return true
	}
	sorted := slices.Sorted(slices.Values(d.Prefixes))
	return d.Partitioned && len(d.Prefixes) == len(d.Partitions) && sorted[0] > 0 &&
		sorted[len(sorted)-1] <= maxPartitionID && len(slices.Compact(sorted)) == len(d.Prefixes)
}

// maxPartitionID keeps numbers with a partition id positive (S-93).
const maxPartitionID PartitionID = 1<<15 - 1

// clone returns a copy that shares no memory with the log entry it was decoded from.
func (d *Descriptor) clone() *Descriptor {
	c := *d
	c.Partitions = slices.Clone(d.Partitions)
	c.Prefixes, c.Origins = slices.Clone(d.Prefixes), slices.Clone(d.Origins)
	c.AuthRules = slices.Clone(d.AuthRules)
	c.Rules = slices.Clone(d.Rules)
	c.Name = strings.Clone(d.Name)
	return &c
}

// revoke ends all locks and sessions, counts unchanged (S-254).
func (s *State) revoke(sh *share) {
	for _, no := range sh.holders.Keys() {
		s.releaseSession(sh, no, false)
	}
	for sub := range sh.boxes {
		b := &sh.boxes[sub]
		arrivals := make([]uint64, 0, b.locks.Len())
		b.locks.Scan(func(arrival uint64, _ lock) bool {
			arrivals = append(arrivals, arrival)
			return true
		})
		for _, arrival := range arrivals {
			m, _ := b.messages.Get(arrival)
			s.giveBack(sh, SubQueue(sub), arrival, &m, false, 0)
		}
	}
}
