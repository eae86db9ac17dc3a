package fsm

import (
	"fmt"
	"slices"

	"github.com/tidwall/btree"
)

const (
	// maxTransactionMessages is how many messages one transaction may send (S-239).
	maxTransactionMessages = 100
	// maxTransactionOps bounds its operations, and with what one operation may hold the time that an
	// entry takes.
	maxTransactionOps = 1000
)

// savepoint is all that an operation of a transaction can change. It costs a few pointers: tables are
// copied when they are written to.
type savepoint struct {
	shares             *btree.Map[EntityID, *share]
	leaseNext          *btree.BTreeG[nextDue[Lease]]
	wallNext           *btree.BTreeG[nextDue[Wall]]
	bodies             *btree.BTreeG[sharedBody]
	large              *btree.BTreeG[largeBody]
	staged             uint64
	freed, woken, idle int
	drops              []Drop
	tallies            []Tally
}

func (s *State) save() savepoint {
	s.gen++ // shares are cloned from here on before they are written
	s.run.undoable = true
	r := s.run.result
	return savepoint{
		shares: s.shares.Copy(), leaseNext: s.leaseNext.Copy(), wallNext: s.wallNext.Copy(),
		bodies: s.bodies.Copy(), large: s.large.Copy(), staged: s.staged,
		freed: len(r.Freed), woken: len(r.Wake), idle: len(r.Idle), drops: slices.Clone(r.Drops),
		tallies: slices.Clone(s.run.tallies),
	}
}

// undo makes everything as it was at the savepoint.
func (s *State) undo(p *savepoint) {
	s.shares, s.leaseNext, s.wallNext, s.bodies = p.shares, p.leaseNext, p.wallNext, p.bodies
	s.large, s.staged = p.large, p.staged
	s.gen++ // what was cloned meanwhile is nobody's
	s.undoTokens()
	s.undoSessions()
	r := s.run.result
	for _, k := range r.Wake[p.woken:] {
		delete(s.run.woken, k)
	}
	r.Freed, r.Idle = r.Freed[:p.freed], r.Idle[:p.idle]
	r.Drops, s.run.tallies = p.drops, p.tallies
	r.Wake, r.WokenBy = r.Wake[:p.woken], r.WokenBy[:p.woken]
}

// commit does all operations or none (S-232). The operations are done as they would be alone, one after the other,
// and undone if one is refused. So no rule is written twice.
func (s *State) commit(req *Request, c *Commit, o *Outcome) {
	if why, refusal := c.check(); refusal != None {
		o.refuse(refusal, why)
		return
	}
	for i := range c.Ops {
		if sh, ok := s.shares.Get(c.Ops[i].Entity); ok && sh.away() {
			o.Refusal = Stale // nothing is done, and it comes again where the share is
			return
		}
	}
	p := s.save()
	defer s.endUndo()
	if len(c.Ops) > 0 {
		o.Ops = make([]Outcome, 0, len(c.Ops))
	}
	for i := range c.Ops {
		op := &c.Ops[i]
		var out Outcome
		s.dispatchShare(&Request{ID: req.ID, Entity: op.Entity, Sub: op.Sub, Command: op.Command}, &out)
		o.Ops = append(o.Ops, out)
		if why := out.cause(); why != None {
			s.undo(&p)
			s.dropOperation(op, &out)
			// S-241: a lock that is lost by now is a cause like any other.
			o.refuse(TransactionAborted, fmt.Sprintf("operation %d of %d: %s", i+1, len(c.Ops), why))
			if out.Detail != "" {
				o.Detail += ": " + out.Detail
			}
			return
		}
	}
}

// cause is why an operation makes its transaction fail, None if it does not.
func (o *Outcome) cause() Refusal {
	if o.Refusal != None {
		return o.Refusal
	}
	for _, r := range o.Refusals {
		if r != None {
			return r
		}
	}
	return None
}

// check says what is wrong with a transaction as a whole.
func (c *Commit) check() (why string, refusal Refusal) {
	if len(c.ID) > maxTransactionID {
		return fmt.Sprintf("the id of a transaction has at most %d bytes", maxTransactionID), InvalidArgument
	}
	if len(c.Ops) > maxTransactionOps {
		return fmt.Sprintf("a transaction has at most %d operations", maxTransactionOps), TransactionTooLarge
	}
	messages := 0
	for i := range c.Ops {
		op := c.Ops[i].Command
		if e, ok := op.(*Enqueue); ok && e.Origin != nil {
			return "what is moved between entities is in no transaction", InvalidOperation
		}
		if !op.Traits().Has(Transacts) {
			return fmt.Sprintf("%T cannot be part of a transaction", op), InvalidOperation // S-231
		}
		EachMessage(op, func(*Message) { messages++ })
	}
	if messages > maxTransactionMessages {
		return fmt.Sprintf("the transaction sends %d messages, maximum %d", messages,
			maxTransactionMessages), TransactionTooLarge
	}
	return "", None
}
