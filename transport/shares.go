package transport

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// allShares returns the indices of the entity's shares.
func allShares(d *fsm.Descriptor) []int {
	shares := make([]int, max(1, len(d.Partitions)))
	for i := range shares {
		shares[i] = i
	}
	return shares
}

// shareKey names one share of an entity.
func shareKey(d *fsm.Descriptor, sub fsm.SubQueue, share int) fsm.Key {
	return fsm.Key{Entity: d.ID, Sub: sub, By: fsm.ByShare, Share: uint16(share)}
}

// taker asks the shares of an entity for messages or sessions. It has one pump per share, and one
// take at a time.
type taker struct {
	s      *Server
	desc   *fsm.Descriptor
	sub    fsm.SubQueue
	shares []int
	pumps  []pumpID // parallel to shares
	// turn is the index of the share that is asked first. It rotates per take (S-42, A19), on from
	// where the entity's last taker began: those of an accept or an HTTP receive take only once.
	turn int
	// sure has a take end when nobody knows whether it took something: what comes next must not
	// overtake it.
	sure bool
}

func newTaker(s *Server, d *fsm.Descriptor, sub fsm.SubQueue, shares []int) *taker {
	t := &taker{s: s, desc: d, sub: sub, shares: shares, pumps: make([]pumpID, len(shares))}
	if len(shares) > 1 {
		t.turn = s.turns.next(d.ID, len(shares))
	}
	for i := range t.pumps {
		t.pumps[i].pump = s.newPump()
	}
	return t
}

// turns count the takers of entities, so that each begins at the share after that of the one before. Entities whose
// ids are equal modulo the length count together. That wants no memory that grows with the entities and is forgotten
// with them, and costs only a share passed over.
type turns [256]atomic.Uint32

// next returns the turn of an entity's next taker, of n.
func (t *turns) next(id fsm.EntityID, n int) int {
	return int(t[uint64(id)%uint64(len(t))].Add(1) % uint32(n))
}

// retire forgets the pumps.
func (t *taker) retire() {
	for i, share := range t.shares {
		t.s.holders.end(t.pumps[i].pump)
		if t.pumps[i].counter > 0 {
			t.s.janitor.drop(t.pumps[i].pump, shareKey(t.desc, t.sub, share))
		}
	}
}

// Pauses between attempts while a partition refuses for the moment.
const (
	busyPauseMin = 20 * time.Millisecond
	busyPauseMax = 2 * time.Second
)

// take proposes cmd, a Lock or an AcceptSession, until it gives something, is refused for good, its
// Wait is over, or ctx ends. Momentary failures are waited out: a receiver has no deadline of its
// own, and clients take a detach for more than it is.
func (t *taker) take(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	started := time.Now()
	wait := waitOf(cmd)
	for pause := time.Duration(0); ; {
		left := wait - time.Since(started)
		out, err := t.once(ctx, withWait(cmd, max(left, 0)))
		if !momentary(out, err) || ctx.Err() != nil || t.sure && errors.Is(err, fsm.ErrUnknown) {
			return out, err
		}
		if wait == 0 || time.Since(started) >= wait {
			return out, err
		}
		pause = min(max(2*pause, busyPauseMin), busyPauseMax)
		if !sleep(ctx, pause) {
			return out, err
		}
	}
}

// momentary reports whether the same request may succeed a little later.
func momentary(out fsm.Outcome, err error) bool {
	if err != nil {
		return !isFinal(err)
	}
	return out.Refusal == fsm.Busy || out.Refusal == fsm.Stale || out.Refusal == fsm.NotLeader
}

// isGone reports whether an error says that the entity does not exist.
func isGone(err error) bool { return errors.Is(err, fsm.ErrNoEntity) }

// isFinal reports whether a receiver hears of an error at once: the entity is gone, or has as many
// receives as it may (S-229).
func isFinal(err error) bool { return isGone(err) || errors.Is(err, fsm.ErrCrowded) }

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// got reports whether an outcome holds what was asked for, or an answer that ends the asking.
func got(out fsm.Outcome, err error) bool {
	if err != nil {
		return isFinal(err)
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
func (t *taker) once(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	if len(t.shares) == 1 {
		return t.propose(ctx, 0, cmd)
	}
	ctx, cancel := context.WithTimeout(ctx, waitOf(cmd)+t.s.cfg.ProposeTimeout)
	defer cancel()
	deadline := time.Now().Add(waitOf(cmd))
	t.turn = (t.turn + 1) % len(t.shares)
	var out fsm.Outcome
	var err error
	for i := range t.shares {
		out, err = t.propose(ctx, (t.turn+i)%len(t.shares), withWait(cmd, 0))
		if got(out, err) || ctx.Err() != nil {
			return out, err
		}
	}
	for {
		left := time.Until(deadline)
		if left <= 0 || ctx.Err() != nil {
			return out, err
		}
		var hit int
		out, hit, err = t.park(ctx, withWait(cmd, left))
		if got(out, err) || ctx.Err() != nil {
			return out, err
		}
		if hit < 0 {
			continue
		}
		out, err = t.propose(ctx, hit, withWait(cmd, 0))
		if got(out, err) {
			return out, err
		}
	}
}

// park parks cmd at the share whose turn it is and awaits the others. It returns the outcome, or
// the share that has something; the parked request has been taken back by then.
func (t *taker) park(ctx context.Context, cmd fsm.Command) (out fsm.Outcome, hit int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hits := make(chan int, len(t.shares))
	var wg sync.WaitGroup
	for i := range t.shares {
		if i == t.turn {
			continue
		}
		wg.Go(func() {
			if t.s.broker.Await(ctx, shareKey(t.desc, t.sub, t.shares[i])) == nil {
				hits <- i
				cancel() // unparks
			}
		})
	}
	out, err = t.propose(ctx, t.turn, cmd)
	cancel()
	wg.Wait()
	select {
	case hit = <-hits:
		return out, hit, err
	default:
		return out, -1, err
	}
}

func (t *taker) propose(ctx context.Context, i int, cmd fsm.Command) (fsm.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, waitOf(cmd)+t.s.cfg.ProposeTimeout)
	defer cancel()
	return t.s.propose(ctx, &t.pumps[i], shareKey(t.desc, t.sub, t.shares[i]), cmd)
}

func waitOf(cmd fsm.Command) time.Duration { return time.Duration(fsm.WaitOf(cmd)) * time.Millisecond }

// withWait returns a copy of cmd that waits that long; the router may still hold the old one.
func withWait(cmd fsm.Command, wait time.Duration) fsm.Command {
	return fsm.WithWait(cmd, fsm.Millis(wait/time.Millisecond))
}
