package fsm

import "github.com/tidwall/btree"

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
