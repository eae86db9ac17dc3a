package fsm

import "fmt"

// checkOrigins checks that what is kept of a message's origin belongs to a message.
func (sh *share) checkOrigins() error {
	var err error
	sh.firsts.Scan(func(arrival uint64, o first) bool {
		if !sh.stored(arrival) {
			err = fmt.Errorf("origin %v of no message", o)
		}
		return err == nil
	})
	sh.heads.Scan(func(arrival uint64, _ waiting) bool {
		if m, ok := sh.boxes[Main].messages.Get(arrival); !ok || m.state() != StateScheduled {
			err = fmt.Errorf("properties of message %d, which is not scheduled", arrival)
		}
		return err == nil
	})
	if b := &sh.boxes[Main]; err == nil && sh.d.Kind == Topic && b.messages.Len() != sh.heads.Len() {
		err = fmt.Errorf("a topic of %d messages knows the properties of %d", b.messages.Len(), sh.heads.Len())
	}
	return err
}

// lastKey is the last key given in a subqueue.
func (sh *share) lastKey(sub SubQueue) uint64 {
	if sub == TransferQueue {
		return sh.lastTransfer
	}
	return sh.arrival
}

// arrival is the place of the message with that number in transit, 0 if there is none.
func (m *moves) arrival(number uint64) uint64 {
	mv, _ := m.table.Get(number)
	return mv.arrival
}

// checkMoves checks that the two orders of messages in transit agree. It also checks that the memory of moves that
// came here is not older than it needs to be.
func (sh *share) checkMoves() error {
	for sub := range sh.moves {
		mv, b := &sh.moves[sub], &sh.boxes[sub]
		if last, _, _ := mv.table.Max(); mv.table.Len() != b.moving.Len() || last > mv.last || b.moving.Len() > maxMoving {
			return fmt.Errorf("%d numbers in transit for %d messages, the last is %d of %d",
				mv.table.Len(), b.moving.Len(), last, mv.last)
		}
	}
	var err error
	sh.decided.Scan(func(e decided) bool {
		if o, ok := sh.origins.Get(origin{originKey: e.originKey}); !ok || e.number < o.below {
			err = fmt.Errorf("decision %v for an origin with all below %d settled", e, o.below)
		}
		return err == nil
	})
	b := &sh.boxes[TransferQueue]
	b.messages.Scan(func(key uint64, m message) bool {
		if b.extra(key, &m).to == 0 {
			err = fmt.Errorf("message %d of the transfer queue goes nowhere", key)
		}
		return err == nil
	})
	return err
}

// checkBodies counts the references to every shared body anew, and that every subscription is known
// to its topic.
func (s *State) checkBodies() error {
	refs, large := map[sharedBody]uint64{}, map[sharedBody]struct{}{}
	count := func(ref BodyRef) {
		if e, ok := s.large.Get(largeBody{index: ref.Index, offset: ref.Offset}); ok {
			large[sharedBody{index: e.index, offset: e.offset}] = struct{}{}
		}
		if e, ok := s.bodies.Get(sharedBody{index: ref.Index, offset: ref.Offset}); ok {
			refs[e.key()]++
		}
	}
	subscriptions := 0
	for _, shares := range [...]interface {
		Scan(func(EntityID, *share) bool)
	}{s.shares, s.dropped} {
		shares.Scan(func(id EntityID, sh *share) bool {
			for i := range sh.boxes {
				sh.boxes[i].messages.Scan(func(_ uint64, m message) bool { count(m.ref()); return true })
			}
			sh.history[Processed].records.Scan(func(_ uint64, p *past) bool {
				if p.Ref.Length > 0 {
					count(p.Ref)
				}
				return true
			})
			if _, known := s.subscriptions.Get(child{sh.d.Parent, id}); known {
				subscriptions++
			}
			return true
		})
	}
	s.results.Scan(func(r result) bool {
		if r.answer != nil && r.answer.removed {
			for i := range r.answer.outcome.Locked {
				count(r.answer.outcome.Locked[i].Ref)
			}
		}
		return true
	})
	var err error
	s.bodies.Scan(func(e sharedBody) bool {
		if got := refs[e.key()]; got != uint64(e.more)+1 || e.more == 0 {
			err = fmt.Errorf("body %d/%d has %d references, counted %d", e.index, e.offset, e.more+1, got)
		}
		return err == nil
	})
	if err == nil && len(large) != s.large.Len() {
		err = fmt.Errorf("%d large bodies, %d are referred to", s.large.Len(), len(large))
	}
	if err == nil && subscriptions != s.subscriptions.Len() {
		err = fmt.Errorf("%d subscriptions, %d known to topics", subscriptions, s.subscriptions.Len())
	}
	return err
}
