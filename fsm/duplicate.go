package fsm

import "crypto/sha256"

const (
	// defaultDuplicateWindow is used by a description that names none (S-189).
	defaultDuplicateWindow Millis = 10 * 60 * 1000
	// maxSeen bounds the ids that a share remembers, about 100 bytes each: 7,000 new ids a second
	// over the default window.
	maxSeen = 4 << 20
	// forgetSlack is how long after its window an id may be kept, so that a quiet share needs a Tick
	// only now and then. It is not detected meanwhile.
	forgetSlack Millis = 10_000
	// forgottenPerSend is how many ids a send forgets at most beside twice its own.
	forgottenPerSend = 16
)

// idHash stands for a message id, with its partition key on a partitioned entity (S-191). It is half
// of a SHA-256: nobody finds two ids with one hash, and the table needs no pointer per id (A8).
type idHash [16]byte

// seen is an id that was accepted.
type seen struct {
	hash    idHash
	at      Wall
	arrival uint64 // of the message when it was stored
	order   uint64 // its place in share.seenOrder
}

func (a seen) less(b seen) bool { return string(a.hash[:]) < string(b.hash[:]) }

// idHash returns what stands for the id of a message.
func (sh *share) idHash(m *Message) (h idHash) {
	var b []byte
	if sh.d.Partitioned {
		key, has := m.PartitionKey, m.PartitionKey != ""
		if m.HasSession {
			key, has = m.SessionID, true // a session's messages meet in it, whatever key they name
		}
		b = appendString(appendBool(b, has), key)
	}
	sum := sha256.Sum256(append(b, m.MessageID...))
	copy(h[:], sum[:])
	return h
}

// window is how long an id is detected from its first acceptance on; a change applies to what is
// remembered already (S-189, S-190).
func (sh *share) window() Millis {
	if sh.d.DuplicateWindow > 0 {
		return sh.d.DuplicateWindow
	}
	return defaultDuplicateWindow
}

// known returns what is remembered of an id within the window.
func (sh *share) known(h idHash, wall Wall) (seen, bool) {
	e, ok := sh.seen.Get(seen{hash: h})
	return e, ok && !sh.outOfWindow(&e, wall)
}

func (sh *share) outOfWindow(e *seen, wall Wall) bool {
	return e.at <= sh.forgotten || e.at.After(sh.window()) <= wall
}

// duplicates marks the messages whose id was accepted before, or earlier in the same batch (S-188,
// S-193), and counts the ids that are new. It returns nil without detection.
func (sh *share) duplicates(c *Enqueue, wall Wall) (marks []bool, fresh int) {
	if !sh.d.DetectDuplicates {
		return nil, 0
	}
	marks = make([]bool, len(c.Messages))
	batch := make(map[idHash]struct{}, len(c.Messages)) // looked up, never ranged over
	for i := range c.Messages {
		m := &c.Messages[i]
		if m.MessageID == "" {
			continue
		}
		h := sh.idHash(m)
		_, twice := batch[h]
		_, known := sh.known(h, wall)
		if marks[i] = twice || known; !marks[i] {
			batch[h] = struct{}{}
			fresh++
		}
	}
	return marks, fresh
}

// note remembers the id of a message that was stored.
func (s *State) note(sh *share, m *Message, arrival uint64) {
	if !sh.d.DetectDuplicates || m.MessageID == "" {
		return
	}
	sh.lastSeen++
	e := seen{hash: sh.idHash(m), at: s.wall, arrival: arrival, order: sh.lastSeen}
	if old, replaced := sh.seen.Set(e); replaced {
		sh.seenOrder.Delete(old.order)
	}
	sh.seenOrder.Set(e.order, e.hash)
}

// living is the number of the stored message with the same id if it still is scheduled, else 0
// (S-125).
func (sh *share) living(m *Message, wall Wall) SequenceNumber {
	e, _ := sh.known(sh.idHash(m), wall)
	if old, ok := sh.boxes[Main].messages.Get(e.arrival); ok && old.state() == StateScheduled {
		return sh.number(e.arrival)
	}
	return 0
}

// oldestSeen returns the id that was accepted first.
func (sh *share) oldestSeen() (seen, bool) {
	_, h, ok := sh.seenOrder.Min()
	if !ok {
		return seen{}, false
	}
	return sh.seen.Get(seen{hash: h})
}

// nextForget is when ids are to be forgotten, 0 if there are none.
func (sh *share) nextForget() Wall {
	e, ok := sh.oldestSeen()
	if !ok {
		return 0
	}
	return max(1, e.at.After(sh.window()).After(forgetSlack))
}

// forgetSeen forgets ids whose window is over, at most budget, and returns what is left of it.
func (s *State) forgetSeen(sh *share, budget int) int {
	for ; budget > 0; budget-- {
		e, ok := sh.oldestSeen()
		if !ok || !sh.outOfWindow(&e, s.wall) {
			break
		}
		sh.seenOrder.Delete(e.order)
		sh.seen.Delete(e)
	}
	return budget
}
