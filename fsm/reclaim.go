package fsm

// dropEntity removes an entity with all in it. Its bodies are reported by later Ticks, a bounded
// number each; nothing else of it can be seen any more.
func (s *State) dropEntity(id EntityID) {
	s.freeArrival(id)
	sh := s.write(id)
	if sh == nil {
		return
	}
	if sh.leaseReg != 0 {
		s.leaseNext.Delete(nextDue[Lease]{at: sh.leaseReg, entity: id})
	}
	if sh.wallReg != 0 {
		s.wallNext.Delete(nextDue[Wall]{at: sh.wallReg, entity: id})
	}
	s.leaving.Delete(id)
	s.shares.Delete(id)
	s.subscriptions.Delete(child{topic: sh.d.Parent, id: id})
	s.listening.Delete(id)
	s.run.result.Dropped = append(s.run.result.Dropped, id)
	if sh.home.phase != left { // else they are the new home's to count
		s.dropShare(sh)
	}
	s.empty(sh)
}

func (sh *share) reclaimed() bool {
	for i := range sh.boxes {
		if sh.boxes[i].messages.Len() > 0 {
			return false
		}
	}
	return sh.history[Processed].bodies == 0
}

// reclaim reports bodies of dropped entities as free.
func (s *State) reclaim() {
	budget := maxFreedPerTick
	for budget > 0 {
		id, sh, ok := s.dropped.Min()
		if !ok {
			return
		}
		if sh.gen != s.gen {
			sh = sh.clone(s.gen)
			s.dropped.Set(id, sh)
		}
		for i := range sh.boxes {
			budget = s.freeSome(sh.boxes[i].messages, budget)
		}
		c := &sh.history[Processed]
		for ; budget > 0 && c.bodies > 0; budget-- {
			_, p, ok := c.records.PopMin()
			if !ok {
				break
			}
			if p.Ref.Length > 0 {
				c.bodies--
				s.free(p.Ref)
			}
		}
		if sh.reclaimed() {
			s.dropped.Delete(id)
		}
	}
}

func (s *State) freeSome(messages *dense[message], budget int) int {
	for ; budget > 0; budget-- {
		_, m, ok := messages.PopMin()
		if !ok {
			break
		}
		s.free(m.ref())
	}
	return budget
}
