package fsm

import "github.com/tidwall/btree"

// DropReason says why a message ended although nobody completed it, and is in no dead-letter queue.
type DropReason uint8

// The reasons. Their numbers are in images and answers: new ones go last.
const (
	DropMaxDelivery DropReason = iota // MaxDeliveryCount was reached, there is no DLQ (S-169)
	DropExpired                       // its time to live ended, and it is not dead-lettered (S-203)
	DropPurged                        // deleted by a purge or a batch delete (S-263, S-265)
	DropQuota                         // a send was refused with QuotaExceeded (S-225)
	DropForward                       // its destination refused it, or it was moved too often; no DLQ (S-209)
	DropFilter                        // a rule failed on it, and the copy is not dead-lettered (S-221)
	DropSession                       // a copy without session id for a subscription with sessions; no DLQ (S-31)
	DropUnmatched                     // sent to a topic, and no rule selected it (S-217)
	DropDuplicate                     // its message id was accepted before (S-188)
	DropCancelled                     // scheduled, and its sender cancelled it (S-115)
	DropWithEntity                    // its entity was deleted (S-259)
	DropReasons                       // how many there are
)

var dropReasons = [DropReasons]string{
	DropMaxDelivery: "max-delivery-count", DropExpired: "expired", DropPurged: "purged",
	DropQuota: "quota-exceeded", DropForward: "forward-refused", DropFilter: "filter-error",
	DropSession: "session-id-missing", DropUnmatched: "no-subscription", DropDuplicate: "duplicate",
	DropCancelled: "cancelled", DropWithEntity: "entity-deleted",
}

// String returns the name that metrics, the operations API and log lines use.
func (r DropReason) String() string {
	if r >= DropReasons {
		return "unknown"
	}
	return dropReasons[r]
}

// told reports whether a log line tells of the messages. The other reasons are the ordinary use of a
// topic, of duplicate detection and of cancelling; these are counted only.
func (r DropReason) told() bool {
	return r != DropUnmatched && r != DropDuplicate && r != DropCancelled
}

// Drops counts dropped messages by reason, since the share was created.
type Drops [DropReasons]uint64

// Add adds o to d.
func (d *Drops) Add(o *Drops) {
	for why, n := range o {
		d[why] += n
	}
}

// Drop is one example of the messages that an entry dropped for one reason, and how many there were.
type Drop struct {
	Entity EntityID
	Name   string // of the entity
	Reason DropReason
	Number SequenceNumber // of the example, 0 if it had none
	// MessageID is the example's, "" if it is only in the body that Ref names.
	MessageID string
	Ref       BodyRef // of the example; Length 0 if it is not stored
	Count     uint64  // messages that this entry dropped
	Total     uint64  // messages that the share dropped for this reason since it was created
}

// maxDrops bounds the examples of one entry. Messages beyond it are counted all the same.
const maxDrops = 64

// drop counts messages. The caller sets Number, MessageID, Ref and Count of an example.
func (s *State) drop(sh *share, why DropReason, d Drop) {
	if d.Count == 0 {
		return
	}
	if sh.drops == (Drops{}) {
		s.dropping.Set(sh.d.ID, struct{}{})
	}
	sh.drops[why] += d.Count
	if why.told() {
		d.Entity, d.Name, d.Reason, d.Total = sh.d.ID, sh.d.Name, why, sh.drops[why]
		s.tell(d)
	}
}

// tell keeps one example for each entity and reason.
func (s *State) tell(d Drop) {
	r := s.run.result
	for i := range r.Drops {
		if e := &r.Drops[i]; e.Entity == d.Entity && e.Reason == d.Reason {
			e.Count += d.Count
			e.Total = d.Total
			return
		}
	}
	if len(r.Drops) < maxDrops {
		r.Drops = append(r.Drops, d)
	}
}

// dropStored counts one stored message, which the caller removes.
func (s *State) dropStored(sh *share, why DropReason, sub SubQueue, arrival uint64, m *message) {
	d := Drop{Ref: m.ref(), Count: 1}
	if sub != TransferQueue {
		d.Number = sh.number(arrival)
	}
	s.drop(sh, why, d)
}

// dropRefused counts the messages of a send that was refused for the quota. Each attempt counts.
func (s *State) dropRefused(sh *share, messages []Message, o *Outcome) {
	if o.Refusal == QuotaExceeded && sh != nil && len(messages) > 0 {
		s.drop(sh, DropQuota, Drop{MessageID: string([]byte(messages[0].MessageID)), Count: uint64(len(messages))})
	}
}

// dropOperation counts what an operation of a transaction was refused, after all was undone.
func (s *State) dropOperation(op *Op, o *Outcome) {
	switch c := op.Command.(type) {
	case *Enqueue:
		s.dropRefused(s.write(op.Entity), c.Messages, o)
	case *Transfer:
		s.dropRefused(s.write(op.Entity), c.Messages, o)
	}
}

// dropDuplicates counts the marked messages of a batch.
func (s *State) dropDuplicates(sh *share, marks []bool) {
	n := uint64(0)
	for _, twice := range marks {
		if twice {
			n++
		}
	}
	s.drop(sh, DropDuplicate, Drop{Count: n})
}

// unstored is a copy that a subscription does not get.
type unstored struct {
	message int // of the batch
	sub     EntityID
	why     DropReason
}

// dropUnstored counts the copies of one message that were not made, and the message itself if no rule
// selected it.
func (s *State) dropUnstored(topic *share, message int, a *incoming, copies int) {
	selected := copies > 0
	for _, u := range s.run.unstored {
		if u.message != message {
			continue
		}
		selected = true
		d := Drop{Number: a.first.number, MessageID: string([]byte(a.messageID)), Count: 1}
		s.drop(s.write(u.sub), u.why, d)
	}
	if !selected {
		s.drop(topic, DropUnmatched, Drop{Count: 1})
	}
}

// dropShare counts what is in a deleted entity. Its own counters end with it.
func (s *State) dropShare(sh *share) {
	n := uint64(0)
	for i := range sh.boxes {
		n += uint64(sh.boxes[i].messages.Len())
	}
	s.dropping.Delete(sh.d.ID)
	if n == 0 {
		return
	}
	s.deleted += n
	s.tell(Drop{Entity: sh.d.ID, Name: sh.d.Name, Reason: DropWithEntity, Count: n, Total: s.deleted})
}

// EntityDrops are the counters of one entity in this partition.
type EntityDrops struct {
	Entity EntityID
	Name   string
	Drops  Drops
}

// Dropped lists the entities that dropped messages, in the order of their ids, at most max of them;
// the others follow as one sum without id and name. The sum of DropWithEntity is of all entities that were
// deleted from this partition.
func (s *State) Dropped(max int) (list []EntityDrops, others Drops) {
	others[DropWithEntity] = s.deleted
	s.dropping.Scan(func(id EntityID, _ struct{}) bool {
		sh, ok := s.shares.Get(id)
		switch {
		case !ok || sh.drops == (Drops{}): // a transaction was undone
		case len(list) < max:
			list = append(list, EntityDrops{Entity: id, Name: sh.d.Name, Drops: sh.drops})
		default:
			others.Add(&sh.drops)
		}
		return true
	})
	return list, others
}

// newDropping returns the table of entities that may have dropped messages.
func newDropping() *btree.Map[EntityID, struct{}] { return new(btree.Map[EntityID, struct{}]) }

// appendDrops appends counters, and nothing if all are zero. In an image they belong to the share
// before, and ahead of all shares to the partition.
func appendDrops(b []byte, d *Drops) []byte {
	if *d == (Drops{}) {
		return b
	}
	return appendCounters(append(b, recordDrops), d)
}

func appendCounters(b []byte, d *Drops) []byte {
	b = appendUint(b, uint64(len(d)))
	for _, n := range d {
		b = appendUint(b, n)
	}
	return b
}

// drops reads what appendCounters wrote. An older version knew fewer reasons.
func (r *reader) drops() (d Drops) {
	n := r.count(1)
	if n > len(d) {
		r.fail("unknown reason of a drop")
		return d
	}
	for i := range n {
		if d[i] = r.uvarint(); d[i] > maxRestored {
			r.fail("counter too large")
		}
	}
	return d
}

// drops reads the counters of the share, or those of the partition.
func (l *loader) drops(r *reader) {
	d := r.drops()
	switch {
	case l.sh != nil && !l.dropped && l.sh.drops == (Drops{}):
		l.sh.drops = d
		l.s.dropping.Set(l.sh.d.ID, struct{}{})
	case l.sh == nil && l.s.shares.Len() == 0 && l.s.dropped.Len() == 0 && l.s.deleted == 0:
		l.s.deleted = d[DropWithEntity]
	default:
		r.fail("counters out of order")
	}
}
