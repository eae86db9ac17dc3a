package transport

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/waist"
)

const (
	// doubtTime is how long a node goes on asking what became of a commit after its client was told that nobody
	// knows. doubtPause lies between two questions.
	doubtTime  = 2 * time.Minute
	doubtPause = time.Second
	// maxDoubts bounds such commits; those beyond stay unknown.
	maxDoubts = 16
)

// commit makes the one command of a transaction durable, at a share of home. When its outcome is unknown the node goes on
// asking (S-243, RUL-16).
func (s *Server) commit(ctx context.Context, id []byte, home *fsm.Descriptor, k fsm.Key, cmd *fsm.Commit) (fsm.Outcome, error) {
	s.ledger.committing(id)
	pump := s.waist.Borrow()
	request, out, err := s.waist.ProposeAs(ctx, pump, k, cmd)
	if !waist.InDoubt(err) {
		s.waist.GiveBack(pump)
		s.resolved(id, out, err)
		return out, err
	}
	s.ledger.end(id, TransactionUnknown, err.Error())
	if s.doubts.Add(1) > maxDoubts {
		s.doubts.Add(-1)
		return out, err // the pump is not used again: its result must stay what it is
	}
	s.wg.Go(func() {
		defer s.doubts.Add(-1)
		if s.resolve(id, request, home, k) {
			s.waist.GiveBack(pump)
		}
	})
	return out, err
}

// resolved writes down what became of a transaction.
func (s *Server) resolved(id []byte, out fsm.Outcome, err error) {
	switch {
	case err != nil:
		s.ledger.end(id, TransactionAborted, err.Error())
	case out.Refusal != fsm.None:
		s.ledger.end(id, TransactionAborted, abortCause(out))
	default:
		s.ledger.end(id, TransactionCommitted, "")
	}
}

// resolve asks until somebody knows, and reports whether somebody did. It asks under the id of the commit, whose
// outcome the partition remembers, for a transaction in which nothing is done. If that is done, the other one was
// not. It never will be, however late a copy of it arrives. So nothing happens behind the back of a client that was
// told to help itself.
//
// A share that has moved meanwhile has left behind what its partition remembers, so its new home knows nothing. The
// transaction stays unknown then.
func (s *Server) resolve(id []byte, request fsm.RequestID, home *fsm.Descriptor, k fsm.Key) bool {
	ctx, cancel := context.WithTimeout(s.ctx, doubtTime)
	defer cancel()
	for {
		out, err := s.broker.Propose(ctx, request, k, &fsm.Commit{ID: id})
		switch {
		case err == nil && out.Repeated:
			s.resolved(id, out, nil)
			return true
		case err == nil && out.Refusal == fsm.None:
			if !s.stayed(ctx, home) {
				return false
			}
			s.ledger.end(id, TransactionAborted, "it was not done in time")
			return true
		case err == nil && out.Refusal == fsm.Busy: // nothing was looked at
		case err == nil || errors.Is(err, fsm.ErrNoEntity): // what was remembered is gone
			return false
		}
		select {
		case <-time.After(doubtPause):
		case <-ctx.Done():
			s.log.Warn("what became of a transaction is not known", "error", err)
			return false
		}
	}
}

// stayed reports whether all shares of an entity are where they were when a client was told of it.
func (s *Server) stayed(ctx context.Context, home *fsm.Descriptor) bool {
	now, err := s.catalog.Entity(ctx, home.Name)
	return err == nil && now.ID == home.ID && slices.Equal(now.Partitions, home.Partitions)
}
