package fsm

import "slices"

// resultTime is how long the answer to a silent pump is kept, by the lease clock (S-307, A6).
const resultTime Millis = 10 * 60 * 1000

// maxResults bounds how many pumps are remembered, some hundred bytes each. The number is far more than the links of
// a cluster, and bounds a client that invents pumps.
const maxResults = 1 << 20

// result is the last answer of one pump.
type result struct {
	node    Incarnation
	pump    uint64
	counter uint64
	until   Lease // forgotten then if the pump stays silent
	review  Lease // its entry in State.resultDue
	answer  *answer
}

func (a result) less(b result) bool {
	if a.node != b.node {
		return a.node < b.node
	}
	return a.pump < b.pump
}

// answer is an Outcome by reference: locked messages are kept as tokens, removed ones whole. It is
// never changed.
type answer struct {
	entity  EntityID
	sub     SubQueue
	removed bool // outcome.Locked is what receive-and-delete took; its bodies are kept for it
	outcome Outcome
	locked  []LockToken
}

// resultDue is when to look whether a pump has been silent for resultTime. It is moved only then,
// not with each request.
type resultDue struct {
	at   Lease
	node Incarnation
	pump uint64
}

func (a resultDue) less(b resultDue) bool {
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.node != b.node:
		return a.node < b.node
	}
	return a.pump < b.pump
}

// recall answers a repeated request from memory. A new counter acknowledges the last answer, which
// is then forgotten.
func (s *State) recall(req *Request, o *Outcome) bool {
	r, ok := s.results.Get(result{node: req.ID.Node, pump: req.ID.Pump})
	if !ok {
		if s.results.Len() >= s.maxResults {
			o.refuse(Busy, "too many pumps are remembered")
			return true
		}
		return false
	}
	if req.ID.Counter < r.counter {
		o.refuse(InvalidArgument, "a later request of the pump was answered")
		return true
	}
	if req.ID.Counter > r.counter {
		if s.freeAnswer(r.answer) {
			r.answer = nil // the command itself may forget its pump; bodies are freed once
			s.results.Set(r)
		}
		return false
	}
	if r.answer == nil || !s.replay(r.answer, o) {
		return false
	}
	o.Repeated = true
	return true
}

// Answered tells the leader whether a request has had an answer, and whether that holds: it would be given again. If it gave
// locks of which none is left, the request would be done anew.
func (s *State) Answered(id RequestID) (answered, holds bool) {
	r, ok := s.results.Get(result{node: id.Node, pump: id.Pump})
	if !ok || r.counter != id.Counter || r.answer == nil {
		return false, false
	}
	a := r.answer
	if len(a.locked) == 0 && a.outcome.Session.Token.IsZero() {
		return true, true // it is given again whole
	}
	sh, ok := s.shares.Get(a.entity)
	if !ok {
		return true, false
	}
	if p := a.outcome.Session; !p.Token.IsZero() {
		return true, sh.holds(p) != nil
	}
	for _, t := range a.locked {
		if _, holds := sh.locked(a.sub, t); holds {
			return true, true
		}
	}
	return true, false
}

// replay gives an answer again, with the locks that still hold. If none of the locks it gave
// holds, the request is as good as never answered and is done anew (S-308).
func (s *State) replay(a *answer, o *Outcome) bool {
	*o = a.outcome
	if len(a.locked) == 0 && a.outcome.Session.Token.IsZero() {
		return true
	}
	*o = Outcome{}
	sh := s.write(a.entity)
	if sh == nil {
		return false
	}
	if !sh.away() { // else the locks are those that it had when it was closed
		s.expire(sh)
		defer s.conclude(sh)
	}
	if p := a.outcome.Session; !p.Token.IsZero() {
		se := sh.holds(p)
		if se == nil {
			return false
		}
		h, _ := sh.holders.Get(se.no)
		*o = a.outcome
		o.LockedUntil = s.shown(h.deadline)
		return true
	}
	for _, t := range a.locked {
		if arrival, ok := sh.locked(a.sub, t); ok {
			l, _ := sh.boxes[a.sub].locks.Get(arrival)
			m, _ := sh.boxes[a.sub].messages.Get(arrival)
			o.Locked = append(o.Locked, s.lockedDelivery(sh, a.sub, arrival, &m, l))
		}
	}
	return len(o.Locked) > 0
}

// remember keeps the answer for a repetition. A result that asks for another try with the same id is not an answer.
// Nor is one that a parked request may still change.
func (s *State) remember(req *Request, o *Outcome) {
	r := result{
		node: req.ID.Node, pump: req.ID.Pump, counter: req.ID.Counter,
		until: s.lease.After(resultTime), answer: answerOf(req, o),
	}
	if old, known := s.results.Get(r); known {
		r.review = old.review
	} else {
		r.review = r.until
		s.resultDue.Set(resultDue{at: r.review, node: r.node, pump: r.pump})
	}
	s.results.Set(r)
}

func answerOf(req *Request, o *Outcome) *answer {
	switch o.Refusal {
	case Stale, NotLeader, NoSession, Busy, UploadLost:
		return nil
	case TransactionAborted:
		if n := len(o.Ops); n > 0 && o.Ops[n-1].Refusal == UploadLost {
			return nil // nothing was done; it comes again behind its parts
		}
	}
	a := &answer{entity: req.Entity, sub: req.Sub, outcome: *o}
	switch c := req.Command.(type) {
	case *Lock:
		if o.Refusal == None && len(o.Locked) == 0 {
			return nil
		}
		a.removed = c.Delete
	case *WatchSession:
		if o.Refusal == None {
			return nil
		}
	case *Receive:
		a.removed = c.Delete
	}
	if a.removed {
		a.outcome.Locked = slices.Clone(o.Locked) // the caller fills in the bodies
		for i := range a.outcome.Locked {         // the form that answers have always been kept in
			a.outcome.Locked[i].EnqueuedSeq = a.outcome.Locked[i].First()
		}
	} else if len(o.Locked) > 0 {
		a.locked = make([]LockToken, len(o.Locked))
		for i := range o.Locked {
			a.locked[i] = o.Locked[i].Token
		}
		a.outcome.Locked = nil
	}
	return a
}

// freeAnswer reports the bodies that only an answer referred to, and whether there were any.
func (s *State) freeAnswer(a *answer) bool {
	if a == nil || !a.removed {
		return false
	}
	for i := range a.outcome.Locked {
		s.free(a.outcome.Locked[i].Ref)
	}
	return true
}

func (s *State) forgetResult(node Incarnation, pump uint64) {
	if r, ok := s.results.Delete(result{node: node, pump: pump}); ok {
		s.resultDue.Delete(resultDue{at: r.review, node: node, pump: pump})
		s.freeAnswer(r.answer)
	}
}

func (s *State) dropPumps(c *DropPumps) {
	for _, pump := range c.Pumps {
		s.forgetResult(c.Node, pump)
	}
}

// forgetNode forgets what all pumps of one life of a node were answered.
func (s *State) forgetNode(node Incarnation) {
	var pumps []uint64
	s.results.Ascend(result{node: node}, func(r result) bool {
		if r.node != node {
			return false
		}
		pumps = append(pumps, r.pump)
		return true
	})
	for _, pump := range pumps {
		s.forgetResult(node, pump)
	}
}

// reviewResult forgets a pump that was silent for long enough, else looks again later.
func (s *State) reviewResult(d resultDue) {
	r, _ := s.results.Get(result{node: d.node, pump: d.pump})
	if r.until <= s.lease {
		s.forgetResult(d.node, d.pump)
		return
	}
	s.resultDue.Delete(d)
	r.review = r.until
	s.results.Set(r)
	s.resultDue.Set(resultDue{at: r.review, node: d.node, pump: d.pump})
}
