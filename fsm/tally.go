package fsm

// Side tells the queue proper from the dead letters beside it, in what is counted of an entity.
type Side uint8

// The sides.
const (
	SideMain Side = iota
	SideDead      // of either dead-letter queue
	Sides         // how many there are
)

// side returns the side of a subqueue.
func (sub SubQueue) side() Side {
	if sub == DeadLetter || sub == TransferDeadLetter {
		return SideDead
	}
	return SideMain
}

// Death says why a message was dead-lettered. The set is closed: the reason that a receiver gives is free text, and a
// metric must not have a series for each text.
type Death uint8

// The deaths.
const (
	DeathReceiver    Death = iota // a receiver dead-lettered it
	DeathMaxDelivery              // MaxDeliveryCount was reached (S-14)
	DeathExpired                  // its time to live ended (S-203)
	DeathFilter                   // a rule failed on it (S-221)
	DeathSession                  // a copy without session id for a subscription with sessions (S-31)
	DeathForward                  // its destination refused it (S-209)
	DeathHops                     // it was moved too often (S-208)
	Deaths                        // how many there are
)

var deaths = [Deaths]string{
	DeathReceiver: "receiver", DeathMaxDelivery: "max-delivery-count", DeathExpired: "expired", DeathFilter: "filter-error",
	DeathSession: "session-id-missing", DeathForward: "forward-refused", DeathHops: "too-many-hops",
}

// String returns the name that metrics use.
func (d Death) String() string {
	if d >= Deaths {
		return "unknown"
	}
	return deaths[d]
}

// deathOf is the death of a copy that is dead at birth, from what it is counted as where no dead-letter queue is.
func deathOf(why DropReason) Death {
	if why == DropSession {
		return DeathSession
	}
	return DeathFilter
}

// Tally counts what happened to messages of one entity here.
type Tally struct {
	Entity    EntityID
	In        uint64 // accepted: sent by clients, copied from a topic, or moved from another entity
	InBytes   uint64
	Out       [Sides]uint64 // delivered, each attempt
	OutBytes  [Sides]uint64
	Completed [Sides]uint64 // completed, or received and deleted
	Abandoned [Sides]uint64
	Deferred  [Sides]uint64
	Died      [Deaths]uint64 // dead-lettered
	Expired   uint64         // dead-lettered or dropped because their time to live ended
	Unlocked  uint64         // deliveries whose lock ran out, or that of their session
	Activated uint64         // scheduled ones whose time came
	Forwarded uint64         // moved to another entity, and accepted there
}

// Add adds o to t.
func (t *Tally) Add(o *Tally) {
	t.In += o.In
	t.InBytes += o.InBytes
	for l := range t.Out {
		t.Out[l] += o.Out[l]
		t.OutBytes[l] += o.OutBytes[l]
		t.Completed[l] += o.Completed[l]
		t.Abandoned[l] += o.Abandoned[l]
		t.Deferred[l] += o.Deferred[l]
	}
	for d := range t.Died {
		t.Died[d] += o.Died[d]
	}
	t.Expired += o.Expired
	t.Unlocked += o.Unlocked
	t.Activated += o.Activated
	t.Forwarded += o.Forwarded
}

// tally returns what the entry counts for a share. The result is valid until the next call.
//
// Tallies are of one entry alone, and no part of the state or its images. A share that was cloned for an image or a
// transaction finds its own again.
func (s *State) tally(sh *share) *Tally {
	if sh.tallied != s.index {
		sh.tallied, sh.tallyAt = s.index, len(s.run.tallies)
		s.run.tallies = append(s.run.tallies, Tally{Entity: sh.d.ID})
	}
	return &s.run.tallies[sh.tallyAt]
}

// accepted counts a message that an entity has taken.
func (s *State) accepted(sh *share, bytes uint64) {
	t := s.tally(sh)
	t.In++
	t.InBytes += bytes
}

// died counts a message that was dead-lettered.
func (s *State) died(sh *share, why Death) { s.tally(sh).Died[why]++ }

// EntityLevels is how much there is of one entity in this partition.
type EntityLevels struct {
	Entity EntityID
	Name   string
	Kind   EntityKind
	Counts EntityCounts
	Quota  uint64 // bytes, 0 if unlimited
	// Oldest is when the oldest message of each side was enqueued that is there to be received or locked, 0 if there is
	// none.
	Oldest [Sides]Wall
}

// Levels calls f with the entities behind the id after, at most max of them, in the order of their ids. It returns the id
// to go on behind, 0 at the end. A caller asks for few at a time, because no entry is applied meanwhile.
func (s *State) Levels(after EntityID, max int, f func(*EntityLevels)) (next EntityID) {
	if after == ^EntityID(0) {
		return 0
	}
	s.shares.Ascend(after+1, func(id EntityID, sh *share) bool {
		if max == 0 {
			return false
		}
		max--
		next = id
		l := EntityLevels{Entity: id, Name: sh.d.Name, Kind: sh.d.Kind, Counts: s.counts(sh), Quota: sh.quota}
		l.Oldest[SideMain], l.Oldest[SideDead] = sh.oldest(Main), sh.oldest(DeadLetter)
		f(&l)
		return true
	})
	if max > 0 {
		return 0
	}
	return next
}

// maxOldestScan bounds what is looked at for the oldest message of an entity with sessions. Its messages stand in the
// order of sessions, so those that wait are looked for among all, past what is scheduled or deferred.
const maxOldestScan = 2048

// oldest returns when the oldest message of a subqueue was enqueued, of those that are active. It returns 0 if there is
// none, or if none is among the first maxOldestScan messages of an entity with sessions.
func (sh *share) oldest(sub SubQueue) (at Wall) {
	b := &sh.boxes[sub]
	if !sh.sessionful(sub) {
		first, any := uint64(0), false
		note := func(arrival uint64) {
			if m, ok := b.messages.Get(arrival); ok && m.state() == StateActive && (!any || arrival < first) {
				first, any, at = arrival, true, m.at
			}
		}
		if k, ok := b.ready.Min(); ok {
			note(k.arrival)
		}
		left := maxOldestScan
		b.locks.Scan(func(arrival uint64, _ lock) bool {
			m, _ := b.messages.Get(arrival)
			note(arrival)
			left--
			return m.state() != StateActive && left > 0 // a deferred message can be locked, too
		})
		if arrival, _, ok := b.paused.Min(); ok {
			note(arrival)
		}
		if arrival, _, ok := b.moving.Min(); ok {
			note(arrival)
		}
		return at
	}
	left := maxOldestScan
	b.messages.Scan(func(_ uint64, m message) bool {
		left--
		if m.state() == StateActive {
			at = m.at
			return false
		}
		return left > 0
	})
	return at
}
