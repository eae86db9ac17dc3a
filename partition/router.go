package partition

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Router is the waist: it turns a key into a share, a share into a partition, and finds the leader.
// It implements transport.Broker.
type Router struct {
	send  *sender
	dir   *Directory
	life  *lifeOf
	round atomic.Uint64 // round robin over shares
	// unanswered are the pumps that may not be dropped yet.
	unanswered unansweredPumps
}

// NewRouter returns the router of a node.
func NewRouter(h *Host, d *Directory) *Router { return &Router{send: d.send, dir: d, life: &h.life} }

// route is where a key leads.
type route struct {
	partition fsm.PartitionID
	d         *fsm.Descriptor // nil for commands of a partition itself
	share     int
	movable   bool // any share does: another may be tried while nothing has happened
}

// routeTo is the route to a share of an entity.
func routeTo(d *fsm.Descriptor, share int) route {
	return route{partition: d.Partitions[share], d: d, share: share}
}

// turn takes another share of the entity.
func (to *route) turn(share int) { to.share, to.partition = share, to.d.Partitions[share] }

// follow takes over a newer description: the share may have moved to another partition.
func (to *route) follow(d *fsm.Descriptor) {
	if d != nil && to.d != nil && d.Version > to.d.Version && to.share < len(d.Partitions) {
		to.d = d
		to.turn(to.share)
	}
}

// resolve finds the share of a key. With Entity 0, Share is the partition itself: commands like
// DropPumps and NodeLost belong to no entity.
func (r *Router) resolve(ctx context.Context, k fsm.Key) (route, error) {
	if k.Entity == 0 {
		return route{partition: fsm.PartitionID(k.Share)}, nil
	}
	d, err := r.dir.ByID(ctx, k.Entity)
	if err != nil {
		return route{}, err
	}
	return r.share(d, k)
}

// share finds the share of a key of an entity.
func (r *Router) share(d *fsm.Descriptor, k fsm.Key) (route, error) {
	n := len(d.Partitions)
	switch {
	case n == 0:
		return route{}, fmt.Errorf("entity %d has no shares: %w", k.Entity, fsm.ErrUnavailable)
	case n == 1:
		return routeTo(d, 0), nil
	case k.By == fsm.ByText:
		return routeTo(d, fsm.KeyShare(k.Text, n)), nil
	case k.By == fsm.ByShare:
		if int(k.Share) >= n {
			return route{}, fmt.Errorf("share %d of %d: %w", k.Share, n, fsm.ErrNoEntity)
		}
		return routeTo(d, int(k.Share)), nil
	}
	to := routeTo(d, r.next(d))
	to.movable = true
	return to, nil
}

// unrouted is the answer to a command whose key leads nowhere: an entity that does not exist is a refusal.
func unrouted(err error) (fsm.Outcome, error) {
	if errors.Is(err, fsm.ErrNoEntity) {
		return fsm.Outcome{Refusal: fsm.EntityNotFound, Detail: err.Error()}, nil
	}
	return fsm.Outcome{}, err
}

// next takes the shares in turn and skips those without a leader (S-314).
func (r *Router) next(d *fsm.Descriptor) int {
	n := uint64(len(d.Partitions))
	at := r.round.Add(1)
	for i := range n {
		if share := int((at + i) % n); r.send.known(d.Partitions[share]) {
			return share
		}
	}
	return int(at % n)
}

// again has the next request take the turn of one that next was asked for, and that was not sent.
func (r *Router) again() { r.round.Add(^uint64(0)) }

const (
	// moveAfter is how many attempts without any effect make a request that fits any share try
	// another one. A receive whose caller asks the other shares ends then.
	moveAfter = 4
	// stalePause is the pause before a share that has not heard of its entity is asked again.
	stalePause = 5 * time.Millisecond
	// staleAsk is after how many such answers the catalog is asked whether the entity exists.
	staleAsk = 3
)

// Propose implements transport.Broker.
func (r *Router) Propose(ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
	fsm.Outcome, error) {
	if d, ok := c.(*fsm.DropPumps); ok {
		if d = r.unanswered.droppable(d); d == nil {
			return fsm.Outcome{}, nil
		}
		c = d
	}
	var a attempts
	put := r.propose
	if oversize(c) {
		put = r.proposeLarge
	}
	o, err := put(ctx, id, k, c, &a)
	return r.conclude(ctx, id, k, c, &a, o, err)
}

// conclude does what follows the answer to a request.
func (r *Router) conclude(ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command, a *attempts, o fsm.Outcome, err error) (
	fsm.Outcome, error) {
	if a.unknown != nil || errors.Is(err, fsm.ErrUnknown) {
		r.unanswered.note(id)
	}
	if a.unknown != nil && err == nil && c.Traits().Has(fsm.Takes) && !took(o) {
		// Nobody remembers that there was nothing. An attempt that is under way still must take nothing, either.
		if late, err := r.recover(ctx, a.served, fsm.Request{ID: id, Entity: k.Entity, Sub: k.Sub, Command: c}, a.unknown); err == nil && took(late) {
			o = late
		}
	}
	if c, ok := c.(*fsm.Revoke); ok && err == nil && c.HasSession && o.Refusal == fsm.None {
		r.tellReleased(ctx, k.Entity, c.Session)
	}
	if err == nil && len(o.Locked) > 0 {
		if err = r.take(ctx, a.served, k, c, &o); err != nil {
			return fsm.Outcome{}, err
		}
	}
	return o, err
}

// propose is Propose, and notes its attempts in a.
func (r *Router) propose(ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command, a *attempts) (
	fsm.Outcome, error) {
	to, err := r.resolve(ctx, k)
	if err != nil {
		return unrouted(err)
	}
	r.life.asked(id.Node)
	return r.proposeTo(ctx, to, id, k, c, a)
}

// proposeTo is propose to a share that was found.
func (r *Router) proposeTo(ctx context.Context, to route, id fsm.RequestID, k fsm.Key, c fsm.Command, a *attempts) (
	fsm.Outcome, error) {
	req := fsm.Request{ID: id, Entity: k.Entity, Sub: k.Sub, Command: c}
	began := time.Now()
	brief := to.movable || asksOthers(to.d, c)
	for stale, full := 0, 0; ; {
		a.served = to.partition
		o, err := r.send.propose(ctx, to.partition, req, a, func(error) bool {
			return !brief || a.unknown != nil || a.definite%moveAfter != 0
		})
		switch {
		case errors.Is(err, replica.ErrDiskFull) && to.movable && full < len(to.d.Partitions)-1:
			full++ // each of the others may have room
			to.turn((to.share + 1) % len(to.d.Partitions))
			continue
		case err != nil && to.movable && a.unknown == nil && ctx.Err() == nil && a.definite > 0 &&
			a.definite%moveAfter == 0:
			// Nothing has happened anywhere: any other share will do (S-314).
			to.turn(r.next(to.d))
			if r.send.pause(ctx, r.send.changed()) != nil {
				return o, a.end(ctx, to.partition)
			}
			continue
		case err != nil && a.unknown != nil && ctx.Err() != nil && req.Command.Traits().Has(fsm.Takes):
			return r.recover(ctx, to.partition, req, err)
		case err != nil || o.Refusal != fsm.Stale || k.Entity == 0:
			if o.Refusal == fsm.NodeExpired {
				r.life.refused(id.Node)
				if a.unknown != nil {
					// The answers to the life are forgotten with it. An earlier attempt may have been applied, and
					// the refusal would have the request done once more by the next life.
					return fsm.Outcome{}, fmt.Errorf("the life of the front end was declared over: %w", a.unknown)
				}
			}
			return o, err
		}
		stale++
		d, err := r.awaitShare(ctx, k.Entity, stale)
		if errors.Is(err, fsm.ErrNoEntity) {
			return fsm.Outcome{Refusal: fsm.EntityNotFound, Detail: "entity was deleted"}, nil
		}
		if err != nil {
			return fsm.Outcome{}, err
		}
		// The request has not happened where the share was, and will not: the share is closed there.
		to.follow(d)
		if wait := fsm.WaitOf(c); wait > 0 {
			req.Command = fsm.WithWait(c, max(0, wait-fsm.Millis(time.Since(began).Milliseconds())))
		}
	}
}

// asksOthers reports whether a command is a receive whose caller asks the shares of an entity one after the other. Such a
// receive waits for nothing and is bound to no session. A share that nobody leads must not keep it from the others (S-316).
func asksOthers(d *fsm.Descriptor, c fsm.Command) bool {
	if d == nil || len(d.Partitions) == 1 || fsm.WaitOf(c) > 0 {
		return false
	}
	switch c := c.(type) {
	case *fsm.Lock:
		return c.Session.Token.IsZero()
	case *fsm.AcceptSession:
		return c.Next
	}
	return false
}

// recover learns what a request took whose caller is gone and whose last attempt ended unknown, so
// that it can be given back (A18). It asks under the id of the request for a transaction in which nothing is done. If the
// request was done, its answer is given again. If it was not, it never will be: a copy that comes late gets the answer of
// the transaction.
func (r *Router) recover(ctx context.Context, p fsm.PartitionID, req fsm.Request, cause error) (
	fsm.Outcome, error) {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), replica.GoneWait)
	defer cancel()
	asked := req
	req.Command = &fsm.Commit{}
	switch o, err := r.send.propose(late, p, req, &attempts{}, nil); {
	case err != nil:
		return fsm.Outcome{}, cause
	case o.Repeated && (took(o) || o.Refusal != fsm.None):
		return o, nil
	case o.Refusal == fsm.None:
		return replica.Nothing(asked), nil
	default: // the life of the front end is over, say, and what was remembered is gone
		return fsm.Outcome{}, cause
	}
}

// took reports whether a request got something that its caller must be given, or give back.
func took(o fsm.Outcome) bool { return len(o.Locked) > 0 || !o.Session.Token.IsZero() }

// awaitShare pauses for the share's leader to reconcile with the catalog, which it does on its own
// when it sees the change (A2). A share that moves may come to its new home meanwhile. It returns the description of the
// entity. The error wraps fsm.ErrNoEntity if the catalog, asked linearizably, has no such entity.
func (r *Router) awaitShare(ctx context.Context, id fsm.EntityID, stale int) (d *fsm.Descriptor, err error) {
	t := time.NewTimer(min(time.Duration(stale)*stalePause, maxPause))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return nil, fmt.Errorf("entity %d is not yet known to its partition: %w: %w",
			id, fsm.ErrUnavailable, ctx.Err())
	}
	if stale%staleAsk == 0 {
		return r.dir.askID(ctx, id)
	}
	return r.dir.ByID(ctx, id)
}

// Await implements transport.Broker.
func (r *Router) Await(ctx context.Context, k fsm.Key) error {
	to, err := r.resolve(ctx, k)
	if err != nil {
		return err
	}
	key := fsm.WaitKey{Entity: k.Entity, Sub: k.Sub, Kind: fsm.WaitMessage}
	if to.d != nil && to.d.RequiresSession && k.Sub == fsm.Main {
		key.Kind = fsm.WaitSession
	}
	limit, cancel := context.WithTimeout(ctx, replica.AwaitLimit)
	defer cancel()
	var a attempts
	err = r.send.do(limit, to.partition, &a, func(ctx context.Context, g Group) error { return g.Await(ctx, key) },
		// A change of leader or of the connection is an answer: look again (A19).
		func(err error) bool { return !errors.Is(err, fsm.ErrUnknown) })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, fsm.ErrUnknown), limit.Err() != nil:
		return nil
	}
	return err
}

// Query implements transport.Broker.
func (r *Router) Query(ctx context.Context, k fsm.Key, q fsm.Query) (fsm.Answer, error) {
	to, err := r.resolve(ctx, k)
	if errors.Is(err, fsm.ErrNoEntity) {
		return fsm.Answer{Refusal: fsm.EntityNotFound, Detail: err.Error()}, nil
	}
	if err != nil {
		return fsm.Answer{}, err
	}
	req := fsm.QueryRequest{Entity: k.Entity, Sub: k.Sub, Query: q}
	for stale, tries := 1, 1; ; stale++ {
		a, err := r.send.query(ctx, to.partition, req)
		if err != nil || a.Refusal != fsm.Stale || k.Entity == 0 {
			if whole, err := r.complete(ctx, to.partition, &a, err); !errors.Is(err, errGone) || tries == replica.PeekTries {
				return whole, err
			}
			tries++
			continue
		}
		d, err := r.awaitShare(ctx, k.Entity, stale)
		if errors.Is(err, fsm.ErrNoEntity) {
			return fsm.Answer{Refusal: fsm.EntityNotFound, Detail: "entity was deleted"}, nil
		}
		if err != nil {
			return fsm.Answer{}, err
		}
		to.follow(d)
	}
}

// Counts adds up the counters of an entity's shares. complete is false if a share did not answer
// (S-322): the counters are then too low.
func (r *Router) Counts(ctx context.Context, d *fsm.Descriptor) (sum fsm.EntityCounts, complete bool,
	err error) {
	type part struct {
		a   fsm.Answer
		err error
	}
	parts := make(chan part, len(d.Partitions))
	for i := range d.Partitions {
		go func() {
			k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(i)}
			a, err := r.Query(ctx, k, &fsm.Counts{})
			parts <- part{a, err}
		}()
	}
	complete = true
	answered := 0
	for range d.Partitions {
		p := <-parts
		if p.err != nil || p.a.Refusal != fsm.None {
			complete = false
			if p.err == nil {
				p.err = &fsm.RefusedError{Refusal: p.a.Refusal, Detail: p.a.Detail}
			}
			err = p.err
			continue
		}
		answered++
		sum.Add(p.a.Counts)
	}
	if answered > 0 {
		err = nil
	}
	return sum, complete, err
}
