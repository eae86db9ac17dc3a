package partition

import (
	"context"
	"errors"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Begin implements transport.Beginner. It begins what goes to a leader that is known, and leaves the rest to Propose.
func (r *Router) Begin(id fsm.RequestID, k fsm.Key, c fsm.Command,
	done func(fsm.Outcome, error, func(context.Context) (fsm.Outcome, error)),
) (cancel func(cause error), ok bool) {
	if oversize(c) {
		return nil, false
	}
	to, ok := r.routeNow(k)
	if !ok {
		return nil, false
	}
	r.life.asked(id.Node)
	began := time.Now()
	cancel, ok = r.send.begin(to.partition, fsm.Request{ID: id, Entity: k.Entity, Sub: k.Sub, Command: c}, func(o fsm.Outcome, err error) {
		unknown := errors.Is(err, fsm.ErrUnknown)
		if unknown {
			r.unanswered.note(id)
		}
		withdrawn := !unknown && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
		if withdrawn || err == nil && o.Refusal != fsm.Stale && o.Refusal != fsm.NodeExpired && !anyRest(o.Locked) {
			done(o, err, nil)
			return
		}
		done(o, err, func(ctx context.Context) (fsm.Outcome, error) {
			if wait := fsm.WaitOf(c); wait > 0 {
				c = fsm.WithWait(c, max(0, wait-fsm.Millis(time.Since(began).Milliseconds())))
			}
			return r.resume(ctx, to, id, k, c, o, err)
		})
	})
	if !ok && to.movable {
		r.again()
	}
	return cancel, ok
}

// routeNow is resolve without waiting for the catalog; it is false if this node does not know the entity.
func (r *Router) routeNow(k fsm.Key) (route, bool) {
	v := r.dir.View()
	if v == nil || k.Entity == 0 {
		return route{}, false
	}
	d := v.ByID(k.Entity)
	if d == nil {
		return route{}, false
	}
	to, err := r.share(d, k)
	return to, err == nil
}

// resume goes on with a request that was begun, and ended with something that its caller does not want to hear.
func (r *Router) resume(ctx context.Context, to route, id fsm.RequestID, k fsm.Key, c fsm.Command, o fsm.Outcome, err error) (
	fsm.Outcome, error) {
	a := attempts{served: to.partition}
	if err != nil {
		a.note(err)
	}
	switch {
	case err == nil && o.Refusal == fsm.NodeExpired:
		r.life.refused(id.Node)
		return o, nil
	case err == nil && o.Refusal != fsm.Stale:
	case ctx.Err() == nil:
		o, err = r.proposeTo(ctx, to, id, k, c, &a)
	case a.unknown != nil && c.Traits().Has(fsm.Takes):
		o, err = r.recover(ctx, to.partition, fsm.Request{ID: id, Entity: k.Entity, Sub: k.Sub, Command: c}, err)
	default:
		return fsm.Outcome{}, a.end(ctx, to.partition)
	}
	return r.conclude(ctx, id, k, c, &a, o, err)
}
