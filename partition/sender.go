package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Group is one partition as the router sees it: here, or on another node.
type Group interface {
	// Propose brings one request into the partition's log. See transport.Broker for the meaning of
	// a cancelled context.
	Propose(ctx context.Context, req fsm.Request) (fsm.Outcome, error)
	// Query answers a question as of now (A16).
	Query(ctx context.Context, q fsm.QueryRequest) (fsm.Answer, error)
	// Await returns when the key may have something to take (A19).
	Await(ctx context.Context, k fsm.WaitKey) error
	// ReadIndex returns an index: a replica that has applied it has seen everything that was
	// answered before the call. It may be followed by entries that nobody has heard of.
	ReadIndex(ctx context.Context) (uint64, error)
}

var (
	_ Group = (*replica.Replica)(nil)
	_ Group = (*Remote)(nil)
)

// sender brings requests to the leader of a partition, wherever it is, and asks again as long as the caller's context
// lasts. It repeats requests that never happened, and with the same id those that may have.
type sender struct {
	host   *Host
	caller Caller
	// members returns who holds replicas of a partition, as far as known; any of them tells who
	// leads.
	members func(fsm.PartitionID) []fsm.NodeID
	turn    atomic.Uint64
	turns   turns // of uploads
	// large is told how many bytes a body has that is about to be read into memory; nil for nobody.
	large atomic.Pointer[func(bytes int)]
	// forwarded is told of messages that were forwarded; nil for nobody.
	forwarded atomic.Pointer[func(*Forwarded)]
}

const (
	// Pauses between attempts are drawn from this range; news about leaders ends them early.
	minPause = 5 * time.Millisecond
	maxPause = 50 * time.Millisecond
)

// attempts is the course of one request through its attempts.
type attempts struct {
	hint    fsm.NodeID // from the last answer, used once
	unknown error      // an attempt ended unknown: something may have happened
	last    error
	// definite counts the attempts that surely had no effect, in a row from the first; tries all.
	definite, tries int
	// once says that the request must not be asked again after an unknown ending: it waits for the answer
	// of whoever it was sent to.
	once   bool
	served fsm.PartitionID // that was asked last
}

// note judges an attempt's error; it returns true if asking again makes sense.
func (a *attempts) note(err error) bool {
	a.last = err
	a.hint = ""
	a.tries++
	var nl *replica.NotLeaderError
	if errors.As(err, &nl) {
		a.hint = nl.Hint
	}
	switch {
	case errors.Is(err, fsm.ErrUnknown):
		a.unknown = err
		return true
	case errors.Is(err, fsm.ErrCrowded) && a.unknown == nil:
		return false // places come free when their holders get something, not after a pause
	case errors.Is(err, replica.ErrDiskFull) && a.unknown == nil:
		// A disk stays full until messages are taken out of it. The client hears that it is busy and
		// comes again; here its request would hold up those behind it until its time is over.
		return false
	case errors.Is(err, fsm.ErrNotLeader), errors.Is(err, fsm.ErrBusy),
		errors.Is(err, fsm.ErrUnavailable):
		if a.unknown == nil {
			a.definite++
		}
		return true
	}
	return false
}

// end is the error of a request that the caller's context ended.
func (a *attempts) end(ctx context.Context, p fsm.PartitionID) error {
	kind := fsm.ErrUnavailable
	switch {
	case a.unknown != nil:
		kind = fsm.ErrUnknown
	case errors.Is(a.last, fsm.ErrBusy):
		kind = fsm.ErrBusy
	}
	return fmt.Errorf("partition %d: %w: %w (last: %v)", p, kind, ctx.Err(), a.last)
}

var errNoLeader = fmt.Errorf("leader is not known here: %w", fsm.ErrUnavailable)

// do calls f with the leader of p until it succeeds, fails for good, or ctx ends. again is asked
// before each further attempt; nil means always. The context of an attempt ends before ctx when another
// node is known to lead, unless a.once.
func (s *sender) do(ctx context.Context, p fsm.PartitionID, a *attempts,
	f func(context.Context, Group) error, again func(error) bool) error {
	for {
		changed := s.changed() // before the attempt, so that news during it are not missed
		err := errNoLeader
		switch g := s.find(p, a.hint).(type) {
		case *Remote:
			err = s.ask(ctx, g, a, changed, f)
		case *replica.Replica:
			err = f(ctx, g)
		}
		if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) && a.unknown == nil {
			return err
		}
		if !a.note(err) || again != nil && !again(err) {
			return err
		}
		if ctx.Err() != nil {
			return a.end(ctx, p)
		}
		if a.hint != "" && a.tries%4 != 3 {
			continue // somebody else leads: ask it at once, but do not run in circles for ever
		}
		if err := s.pause(ctx, changed); err != nil {
			return a.end(ctx, p)
		}
	}
}

// ask is one attempt at another node.
func (s *sender) ask(ctx context.Context, to *Remote, a *attempts, since news,
	f func(context.Context, Group) error) error {
	if a.once {
		return f(ctx, to)
	}
	before := to.node
	if a.hint != "" {
		before = s.host.believed(to.id)
	}
	ctx, c := s.host.away.begin(ctx, to.id, to.node, before, since)
	defer s.host.away.over(c)
	return f(ctx, to)
}

func (s *sender) changed() news { return s.host.newsOfLeaders() }

func (s *sender) pause(ctx context.Context, n news) error {
	t := time.NewTimer(minPause + rand.N(maxPause-minPause))
	defer t.Stop()
	select {
	case <-n.host:
	case <-n.locator:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// find returns where p is led, or where somebody should know.
func (s *sender) find(p fsm.PartitionID, hint fsm.NodeID) Group {
	self := s.host.Node()
	local := s.host.Replica(p)
	if local != nil && local.Leading() {
		return local
	}
	if hint != "" && hint != self {
		return NewRemote(s.caller, hint, p)
	}
	if id, ok := s.host.leader(p); ok {
		if id == self {
			return nil // elected, and about to serve: nobody else does
		}
		return NewRemote(s.caller, id, p)
	}
	if id, ok := s.host.deps.Locator.Leader(p); ok && id != self {
		return NewRemote(s.caller, id, p)
	}
	others := slices.DeleteFunc(slices.Clone(s.members(p)),
		func(n fsm.NodeID) bool { return n == self })
	if len(others) == 0 {
		return nil
	}
	return NewRemote(s.caller, others[s.turn.Add(1)%uint64(len(others))], p)
}

// known reports whether anybody is believed to lead p (S-314).
func (s *sender) known(p fsm.PartitionID) bool {
	if r := s.host.Replica(p); r != nil && r.Err() == nil {
		id, _ := r.Leader()
		return id != ""
	}
	_, ok := s.host.deps.Locator.Leader(p)
	return ok
}

// propose brings a request to p. A request without an id is repeated after an unknown ending only if
// it is idempotent, that is, changes nothing when done twice.
func (s *sender) propose(ctx context.Context, p fsm.PartitionID, req fsm.Request, a *attempts,
	again func(error) bool) (fsm.Outcome, error) {
	if err := s.host.mayPropose(req.Command); err != nil {
		return fsm.Outcome{}, err
	}
	var o fsm.Outcome
	waits := fsm.WaitOf(req.Command)
	until := time.Now().Add(time.Duration(min(waits, replica.MaxWait)) * time.Millisecond)
	var over bool
	a.once = req.ID.IsZero() && !req.Command.Traits().Has(fsm.Idempotent)
	attempt := func(ctx context.Context, g Group) (err error) {
		r := req
		if waits > 0 {
			left := fsm.Millis(time.Until(until).Milliseconds())
			over = left <= 0
			r.Command = fsm.WithWait(req.Command, max(left, 0))
		}
		o, err = g.Propose(ctx, r)
		return err
	}
	may := func(err error) bool {
		if errors.Is(err, fsm.ErrUnknown) && a.once {
			return false
		}
		return again == nil || again(err)
	}
	err := s.do(ctx, p, a, attempt, may)
	if err != nil && over && a.unknown == nil && ctx.Err() == nil {
		return replica.Nothing(req), nil
	}
	return o, err
}

// query asks the leader of p.
func (s *sender) query(ctx context.Context, p fsm.PartitionID, q fsm.QueryRequest) (fsm.Answer,
	error) {
	var a fsm.Answer
	var at attempts
	err := s.do(ctx, p, &at, func(ctx context.Context, g Group) (err error) {
		a, err = g.Query(ctx, q)
		return err
	}, nil)
	return a, err
}
