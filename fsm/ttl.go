package fsm

// expiry is when the life of a message ends. Only messages with a time to live have one.
type expiry struct {
	at      Wall
	arrival uint64
}

func (a expiry) less(b expiry) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.arrival < b.arrival
}

// sweep is the rest of a session's expiry. It covers the undelivered messages behind done, up to limit, which was the
// last arrival when it began (S-82).
type sweep struct{ done, limit uint64 }

// listen notes that somebody receives from the entity. The next Tick knows better.
func (s *State) listen(sh *share) {
	if !sh.listening {
		sh.listening = true
		s.listening.Set(sh.d.ID, struct{}{})
	}
}

// hear takes over from a Tick who has a listener (A22).
func (s *State) hear(listeners []EntityID) {
	named := make(map[EntityID]struct{}, len(listeners)) // looked up, never ranged over
	for _, id := range listeners {
		named[id] = struct{}{}
		if sh, ok := s.shares.Get(id); ok && !sh.listening && !sh.away() {
			sh = s.write(id)
			s.listen(sh)
			s.reschedule(sh)
		}
	}
	for _, id := range s.listening.Keys() {
		if _, ok := named[id]; !ok {
			sh := s.write(id)
			sh.listening = false
			sh.active = s.lease // until now somebody was there
			s.listening.Delete(id)
			s.reschedule(sh)
		}
	}
}

// serve is called before a receiver is served: what has expired goes first (S-200, S-201). It reports
// false if that was too much for one entry; a receiver is then given nothing until the rest is gone.
func (s *State) serve(sh *share) bool {
	s.listen(sh)
	s.enforce(sh, s.maxDue)
	if sh.overdue(s.wall) {
		sh.starved = true
		return false
	}
	return true
}

// overdue reports whether there is something to expire.
func (sh *share) overdue(wall Wall) bool {
	first, ok := sh.expiring.Min()
	return sh.sweeps.Len() > 0 || ok && first.at <= wall
}

// nextExpiry is when something expires if there is a listener, 0 if never or if there is none.
func (sh *share) nextExpiry() Wall {
	if !sh.listening && sh.holders.Len() == 0 && !sh.forwards(Main) {
		return 0
	}
	if sh.sweeps.Len() > 0 {
		return 1
	}
	first, _ := sh.expiring.Min()
	return first.at
}

// enforce expires what is past its time, at most budget messages, and returns what is left of the
// budget. A session is never expired in part before another one is begun.
func (s *State) enforce(sh *share, budget int) int {
	for {
		if budget = s.sweepDoomed(sh, budget); budget == 0 {
			break
		}
		first, ok := sh.expiring.Min()
		if !ok || first.at > s.wall {
			break
		}
		m, _ := sh.boxes[Main].messages.Get(first.arrival)
		if m.session != 0 {
			sh.doom(m.session) // S-79
			continue
		}
		s.lapse(sh, first.arrival, &m)
		budget--
	}
	return budget
}

// wakeAfterExpiry wakes everybody who was given nothing because of what had expired, when all that is gone.
func (s *State) wakeAfterExpiry(sh *share) {
	if !sh.starved || sh.overdue(s.wall) {
		return
	}
	sh.starved = false
	s.wakeAll(sh)
	sh.holders.Scan(func(no uint32, _ holder) bool {
		if se := sh.session(no); se.ready > 0 {
			s.wakeSession(sh, se.id)
		}
		return true
	})
}

// lapse ends the life of a message of the main queue (S-203).
func (s *State) lapse(sh *share, arrival uint64, m *message) {
	s.tally(sh).Expired++
	if sh.d.DeadLetterOnExpiration && !sh.d.NoDeadLetter {
		s.left(sh, arrival, Expired)
		s.died(sh, DeathExpired)
		s.deadLetter(sh, arrival, m, "TTLExpiredException",
			"The message expired and was dead lettered.")
		return
	}
	s.dropStored(sh, DropExpired, Main, arrival, m)
	s.gone(sh, arrival, Expired)
	s.remove(sh, Main, arrival, m)
	s.free(m.ref())
}

// doom makes all messages of a session that nobody has in hand now expire together, as if they all
// were past their time.
func (sh *share) doom(no uint32) {
	if sh.session(no) != nil {
		sh.undoom(no)
		sh.sweeps.Set(no, sweep{limit: sh.arrival})
	}
}

// undoom forgets about the expiry of a session.
func (sh *share) undoom(no uint32) {
	if _, ok := sh.sweeps.Delete(no); !ok {
		return
	}
	for {
		var first placeKey
		found := false
		sh.spared.Ascend(placeKey{session: no}, func(k placeKey) bool {
			first, found = k, k.session == no
			return false
		})
		if !found {
			return
		}
		sh.spared.Delete(first)
	}
}

// spare keeps a message that was in flight when its session was doomed (S-81).
func (sh *share) spare(no uint32, arrival uint64) {
	if sw, ok := sh.sweeps.Get(no); ok && arrival > sw.done && arrival <= sw.limit {
		sh.spared.Set(placeKey{session: no, arrival: arrival})
	}
}

// sweepDoomed goes on with the expiry of sessions and returns what is left of the budget.
func (s *State) sweepDoomed(sh *share, budget int) int {
	for budget > 0 {
		no, sw, ok := sh.sweeps.Min()
		if !ok {
			break
		}
		keys := s.run.keys[:0]
		over := true
		sh.boxes[Main].ready.Ascend(placeKey{no, sw.done + 1}, func(k placeKey) bool {
			if k.session != no || k.arrival > sw.limit {
				return false
			}
			if len(keys) == budget {
				over = false
				return false
			}
			keys = append(keys, k)
			return true
		})
		s.run.keys = keys
		budget -= len(keys)
		if over {
			sw.done = sw.limit
		} else {
			sw.done = keys[len(keys)-1].arrival
			sh.sweeps.Set(no, sw)
		}
		for _, k := range keys {
			if _, ok := sh.spared.Get(k); !ok {
				m, _ := sh.boxes[Main].messages.Get(k.arrival)
				s.lapse(sh, k.arrival, &m)
			}
		}
		if over {
			sh.undoom(no)
		}
	}
	return budget
}
