package fsm

// maxOrigins bounds how many sources a share remembers, some fifty bytes each.
const maxOrigins = 1 << 20

// enqueueMoved takes messages that were moved here, each once (S-212, S-311). They are judged one by
// one, as if each were sent alone; what was decided before is answered again.
func (s *State) enqueueMoved(sh *share, req *Request, c *Enqueue, o *Outcome) {
	g := c.Origin
	if req.Sub != Main || len(g.Numbers) != len(c.Messages) || len(g.Numbers) == 0 ||
		len(g.Numbers) > maxMoving || !ascending(g.Numbers) {
		o.refuse(InvalidArgument, "moved messages without ascending numbers")
		return
	}
	key := originKey{g.Entity, g.Partition, g.Sub}
	known, ok := sh.origins.Get(origin{originKey: key})
	if !ok && sh.origins.Len() >= maxOrigins {
		o.refuse(Busy, "too many sources are remembered")
		return
	}
	below := max(known.below, g.Below)
	sh.origins.Set(origin{key, below})
	sh.settled(key, below)
	o.Refusals = make([]Refusal, len(c.Messages))
	o.Numbers = make([]SequenceNumber, len(c.Messages))
	o.EnqueuedAt = s.wall
	for i := range c.Messages {
		n := g.Numbers[i]
		was, repeated := sh.decided.Get(decided{originKey: key, number: n})
		if repeated || n < below {
			o.Refusals[i] = was.refusal
			s.freeBody(&c.Messages[i])
			continue
		}
		var out Outcome
		if i > 0 && sh.d.Kind == Topic && s.run.steps < dueSteps { // S-350: the next entry has steps for it
			out.refuse(Busy, "the rules of topics took all steps of this entry")
		} else {
			s.takeIn(sh, req, &c.Messages[i], &out)
		}
		if out.Refusal != None {
			if out.Refusal == Busy || out.Refusal == QuotaExceeded && g.Sub == TransferQueue { // S-237
				o.Detail = out.Detail
				for ; i < len(c.Messages); i++ { // in order: what comes behind waits, too
					o.Refusals[i] = Busy
					s.freeBody(&c.Messages[i])
				}
				return
			}
			o.Refusals[i] = out.Refusal
			s.freeBody(&c.Messages[i])
		} else {
			o.Numbers[i] = out.Numbers[0]
		}
		sh.decided.Set(decided{key, n, out.Refusal})
	}
}

// repeats reports whether all of c was decided before: what it refers to may be gone then.
func (sh *share) repeats(c *Enqueue) bool {
	g := c.Origin
	if g == nil || len(g.Numbers) != len(c.Messages) {
		return false
	}
	key := originKey{g.Entity, g.Partition, g.Sub}
	known, _ := sh.origins.Get(origin{originKey: key})
	for _, n := range g.Numbers {
		if _, ok := sh.decided.Get(decided{originKey: key, number: n}); !ok && n >= max(known.below, g.Below) {
			return false
		}
	}
	return true
}

// takeIn takes one moved message as if it were sent.
func (s *State) takeIn(sh *share, req *Request, m *Message, out *Outcome) {
	if !sh.d.Status.sends() {
		out.refuse(EntityDisabled, "the status of the entity forbids it")
		return
	}
	alone := Enqueue{Messages: []Message{*m}}
	if _, ok := sh.reservation(m.Reserved); !ok {
		alone.Messages[0].Reserved = 0 // the message is worth more than its number
	}
	s.enqueue(sh, req, &alone, out)
}

// settled forgets what was decided about numbers below.
func (sh *share) settled(key originKey, below uint64) {
	var done []decided
	sh.decided.Ascend(decided{originKey: key}, func(e decided) bool {
		if e.originKey != key || e.number >= below {
			return false
		}
		done = append(done, e)
		return true
	})
	for _, e := range done {
		sh.decided.Delete(e)
	}
}

func ascending(ns []uint64) bool {
	last := uint64(0)
	for _, n := range ns {
		if n <= last {
			return false
		}
		last = n
	}
	return true
}
