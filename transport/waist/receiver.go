package waist

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Receiver asks the shares of an entity for messages or sessions. It has one pump per share, and one
// receive at a time.
type Receiver struct {
	s      *Source
	desc   *fsm.Descriptor
	sub    fsm.SubQueue
	shares []int
	pumps  []Pump  // parallel to shares
	lent   []*Pump // of the pool, parallel to shares; nil if the pumps are the receiver's own
	// unknown says of each share whether nobody knows what the last request there took. The next one has the same id then. It
	// gets what the last one took, which would be forgotten with a new id (A6).
	unknown []bool
	// turn is the index of the share that is asked first. It rotates per receive (S-42, A19). It goes on from where the
	// entity's last receiver began, because the receiver of an accept or an HTTP receive is used only once.
	turn int
	// Sure has a receive end when nobody knows whether it took something: what comes next must not
	// overtake it.
	Sure bool
}

// NewReceiver returns a receiver with pumps of its own. [Receiver.Retire] must be called.
func (s *Source) NewReceiver(d *fsm.Descriptor, sub fsm.SubQueue, shares []int) *Receiver {
	r := s.receiver(d, sub, shares)
	for i := range r.pumps {
		r.pumps[i] = s.NewPump()
	}
	return r
}

// BorrowReceiver returns a receiver with pumps of the pool. [Receiver.GiveBack] must be called.
func (s *Source) BorrowReceiver(d *fsm.Descriptor, sub fsm.SubQueue, shares []int) *Receiver {
	r := s.receiver(d, sub, shares)
	r.lent = make([]*Pump, len(r.pumps))
	for i := range r.lent {
		r.lent[i] = s.Borrow()
		r.pumps[i] = *r.lent[i]
	}
	return r
}

func (s *Source) receiver(d *fsm.Descriptor, sub fsm.SubQueue, shares []int) *Receiver {
	r := &Receiver{s: s, desc: d, sub: sub, shares: shares, pumps: make([]Pump, len(shares)), unknown: make([]bool, len(shares))}
	if len(shares) > 1 {
		r.turn = s.turns.next(d.ID, len(shares))
	}
	return r
}

// NameHolder names the link that the receiver asks for.
func (r *Receiver) NameHolder(name Holder) {
	for i := range r.pumps {
		r.s.holders.Begin(r.pumps[i].number, name)
	}
}

// Retire forgets the pumps.
func (r *Receiver) Retire() {
	for i, share := range r.shares {
		r.s.holders.End(r.pumps[i].number)
		r.s.Retire(&r.pumps[i], ShareKey(r.desc, r.sub, share))
	}
}

// GiveBack returns borrowed pumps.
func (r *Receiver) GiveBack() {
	for i := range r.lent {
		*r.lent[i] = r.pumps[i]
		r.s.GiveBack(r.lent[i])
	}
}

// turns count the receivers of entities, so that each begins at the share after that of the one before. Entities whose
// ids are equal modulo the length count together. That wants no memory that grows with the entities and is forgotten
// with them, and costs only a share passed over.
type turns [256]atomic.Uint32

// next returns the turn of an entity's next receiver, of n.
func (t *turns) next(id fsm.EntityID, n int) int {
	return int(t[uint64(id)%uint64(len(t))].Add(1) % uint32(n))
}

// Receive proposes cmd, a Lock or an AcceptSession, until it gives something, is refused for good, its
// Wait is over, or ctx ends. Momentary failures are waited out: a receiver has no deadline of its
// own, and clients take a detach for more than it is.
func (r *Receiver) Receive(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	started := time.Now()
	out, err := r.once(ctx, cmd)
	return r.goOn(ctx, cmd, started, out, err)
}

// goOn asks again after momentary failures, until the wait of cmd is over.
func (r *Receiver) goOn(ctx context.Context, cmd fsm.Command, started time.Time, out fsm.Outcome, err error) (fsm.Outcome, error) {
	wait := waitOf(cmd)
	for pause := time.Duration(0); momentary(out, err); {
		if ctx.Err() != nil || r.Sure && errors.Is(err, fsm.ErrUnknown) || time.Since(started) >= r.patience(wait, err) {
			break
		}
		pause = min(max(2*pause, busyPauseMin), busyPauseMax)
		if !Sleep(ctx, pause) {
			break
		}
		out, err = r.once(ctx, withWait(cmd, max(wait-time.Since(started), 0)))
	}
	return out, err
}

// patience is how long a receive is asked again. Of several shares none may have a leader for a while, and the broker does not
// wait for one.
func (r *Receiver) patience(wait time.Duration, err error) time.Duration {
	if err != nil && len(r.shares) > 1 {
		return wait + r.s.cfg.ProposeTimeout
	}
	return wait
}

// Begin is Receive without a goroutine that waits; it is false if nothing was begun. The receive is over when done is called, and if
// that has a rest when the rest is over. done must be short, and call nothing of the package.
func (r *Receiver) Begin(cmd fsm.Command, done func(fsm.Outcome, error, Rest)) (Cancel, bool) {
	started := time.Now()
	first, at, several := cmd, 0, len(r.shares) > 1
	if several {
		first, at = withWait(cmd, 0), (r.turn+1)%len(r.shares)
	}
	if r.unknown[at] {
		return nil, false
	}
	cancel, ok := r.s.Begin(&r.pumps[at], ShareKey(r.desc, r.sub, r.shares[at]), first, func(out fsm.Outcome, err error, rest Rest) {
		r.unknown[at] = errors.Is(err, fsm.ErrUnknown)
		gone := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if rest == nil && (gone || several && got(out, err) || !several && !momentary(out, err)) {
			done(out, err, nil)
			return
		}
		done(out, err, func(ctx context.Context) (fsm.Outcome, error) {
			out, err := out, err
			limit, cancel := context.WithTimeout(ctx, waitOf(cmd)-time.Since(started)+r.s.cfg.ProposeTimeout)
			if rest != nil {
				out, err = rest(limit)
				r.unknown[at] = errors.Is(err, fsm.ErrUnknown)
			}
			if several && !got(out, err) && limit.Err() == nil {
				out, err = r.askOthers(limit, cmd, started, out, err)
			}
			cancel()
			return r.goOn(ctx, cmd, started, out, err)
		})
	})
	if ok && several {
		r.turn = at
	}
	return cancel, ok
}

// got reports whether an outcome holds what was asked for, or an answer that ends the asking.
func got(out fsm.Outcome, err error) bool {
	if err != nil {
		return IsFinal(err)
	}
	switch out.Refusal {
	case fsm.None:
		return len(out.Locked) > 0 || !out.Session.Token.IsZero()
	case fsm.NoSession, fsm.Busy, fsm.Stale, fsm.NotLeader:
		return false
	}
	return true
}

// once asks each share without waiting, then parks at one and watches the others, until one gives
// or the wait of cmd is over.
func (r *Receiver) once(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	if len(r.shares) == 1 {
		return r.propose(ctx, 0, cmd)
	}
	ctx, cancel := context.WithTimeout(ctx, waitOf(cmd)+r.s.cfg.ProposeTimeout)
	defer cancel()
	started := time.Now()
	r.turn = (r.turn + 1) % len(r.shares)
	out, err := r.propose(ctx, r.turn, withWait(cmd, 0))
	if got(out, err) || ctx.Err() != nil {
		return out, err
	}
	return r.askOthers(ctx, cmd, started, out, err)
}

// askOthers goes on when the share whose turn it is gave nothing, but out and err. If some shares do not answer, the receive
// hears what the others say (S-316).
func (r *Receiver) askOthers(ctx context.Context, cmd fsm.Command, started time.Time, out fsm.Outcome, err error) (fsm.Outcome, error) {
	deadline := started.Add(waitOf(cmd))
	said, answered := out, !momentary(out, err)
	for i := 1; i < len(r.shares); i++ {
		out, err = r.propose(ctx, (r.turn+i)%len(r.shares), withWait(cmd, 0))
		if got(out, err) || ctx.Err() != nil {
			return out, err
		}
		if !momentary(out, err) {
			said, answered = out, true
		}
	}
	for pause := time.Duration(0); ; {
		left := time.Until(deadline)
		if left <= 0 && answered && ctx.Err() == nil {
			return said, nil
		}
		if left <= 0 || ctx.Err() != nil {
			return out, err
		}
		var hit int
		parked := time.Now()
		out, hit, err = r.park(ctx, withWait(cmd, left))
		if got(out, err) || ctx.Err() != nil {
			return out, err
		}
		if hit >= 0 {
			out, err = r.propose(ctx, hit, withWait(cmd, 0))
		}
		if got(out, err) {
			return out, err
		}
		if !momentary(out, err) || time.Since(parked) >= busyPauseMax {
			pause = 0
			continue
		}
		pause = min(max(2*pause, busyPauseMin), busyPauseMax)
		Sleep(ctx, min(pause, left))
	}
}

// park parks cmd at the share whose turn it is and awaits the others. It returns the outcome, or
// the share that has something; the parked request has been taken back by then.
func (r *Receiver) park(ctx context.Context, cmd fsm.Command) (out fsm.Outcome, hit int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hits := make(chan int, len(r.shares))
	var wg sync.WaitGroup
	for i := range r.shares {
		if i == r.turn {
			continue
		}
		wg.Go(func() {
			if r.s.cfg.Broker.Await(ctx, ShareKey(r.desc, r.sub, r.shares[i])) == nil {
				hits <- i
				cancel() // unparks
			}
		})
	}
	out, err = r.propose(ctx, r.turn, cmd)
	cancel()
	wg.Wait()
	select {
	case hit = <-hits:
		return out, hit, err
	default:
		return out, -1, err
	}
}

func (r *Receiver) propose(ctx context.Context, i int, cmd fsm.Command) (fsm.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, waitOf(cmd)+r.s.cfg.ProposeTimeout)
	defer cancel()
	for {
		again := r.unknown[i]
		if again {
			r.pumps[i].counter--
		}
		out, err := r.s.Propose(ctx, &r.pumps[i], ShareKey(r.desc, r.sub, r.shares[i]), cmd)
		r.unknown[i] = errors.Is(err, fsm.ErrUnknown)
		if !again || err != nil || !out.Repeated || got(out, nil) {
			return out, err
		}
		// The last request took nothing, and never will. So this one gets an id of its own.
	}
}

func waitOf(cmd fsm.Command) time.Duration { return time.Duration(fsm.WaitOf(cmd)) * time.Millisecond }

// withWait returns a copy of cmd that waits that long; the router may still hold the old one.
func withWait(cmd fsm.Command, wait time.Duration) fsm.Command {
	return fsm.WithWait(cmd, fsm.Millis(wait/time.Millisecond))
}
