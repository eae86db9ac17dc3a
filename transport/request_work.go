package transport

import (
	"context"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/waist"
)

// serve runs one request and answers it.
func (r *requests) serve(q *request, pump *waist.Pump) {
	r.c.onLoop()
	work := r.work(q, pump)
	r.c.spawn(func() func() {
		answer, then := work()
		return func() {
			if answer.moved != nil {
				r.l.desc = answer.moved
				r.limit = int(r.l.desc.MaxMessageBytes) + requestSlack
				q.moves++
				if then != nil {
					then(answer)
				}
				r.serve(q, pump)
				return
			}
			r.running--
			r.c.running--
			r.c.heldBytes -= q.bytes
			r.pumps = append(r.pumps, pump)
			if then != nil {
				answer = then(answer)
			}
			r.answer(q, answer)
			r.next()
			r.finish()
		}
	})
}

// freePump returns a pump that no request uses.
func (r *requests) freePump() *waist.Pump {
	r.c.onLoop()
	if n := len(r.pumps); n > 0 {
		p := r.pumps[n-1]
		r.pumps = r.pumps[:n-1]
		return p
	}
	r.made++
	p := r.c.s.waist.NewPump()
	if r.l.desc != nil { // it may fetch deferred messages
		r.c.s.waist.Holders().Begin(p.Number(), r.l.holder())
	}
	return &p
}

// work decides on the loop what a request needs and returns what does it off the loop; then, if
// not nil, runs on the loop again and may replace the answer.
func (r *requests) work(q *request, pump *waist.Pump) func() (response, func(response) response) {
	r.c.onLoop()
	if r.l.addr.cbs {
		return r.token(q)
	}
	op, ok := operations[q.operation]
	if !ok {
		r.c.s.stats.reject(siteRequest)
		return always(failed(501, amqpError(amqp.ConditionNotImplemented,
			"The operation %q is not supported here.", refusal.Clip(q.operation))))
	}
	path := r.l.addr.path()
	if !r.l.allowed(op.right) {
		r.c.s.stats.reject(siteUnauthorized)
		return always(failed(401, amqpError(amqp.ConditionUnauthorizedAccess, "%s",
			unauthorizedText(path, op.right))))
	}
	k := &call{s: r.c.s, desc: r.l.desc, addr: r.l.addr, request: q, pump: pump, emptyIsNull: r.c.goClient}
	if op.right == auth.Send {
		k.sender = r.c.sender(path)
	}
	k.event = r.eventOfRule(q)
	k.room = maxRulesBytes
	if q.operation == opEnumerateRules {
		if to := r.c.replyLink(r.l, q); to != nil && to.l.asked.MaxMessageSize.Or(0) > 0 {
			k.room = int(min(to.l.asked.MaxMessageSize.Value, maxRulesBytes)) - answerSlack
		}
	}
	k.sessionID, k.hasSession = k.text("session-id")
	if raw, there := q.body.Get("session-id"); there && !raw.IsNull() && !k.hasSession {
		return always(k.badArgument("session-id must be a string"))
	}
	if k.hasSession {
		if h := r.c.sessions[sessionKey{r.l.desc.ID, k.sessionID}]; h != nil && r.l.addr.sub == fsm.Main {
			k.held, k.proof = h, h.proof
		}
	} else if h := r.associated(q); h != nil {
		k.sessionID, k.hasSession = h.key.id, true
		k.held, k.proof = h, h.proof
	}
	if name := q.prop(keyLinkName); k.held != nil && k.held.shared != nil && name != "" && name != k.held.l.name {
		k.held, k.proof = nil, fsm.SessionProof{} // asked by a link from which this one took the session over (S-330)
	}
	if q.txnID != nil {
		if bad := k.enlist(q); bad != nil {
			return always(*bad)
		}
	} else if k.held != nil && k.held.shared != nil && q.operation == opSettle {
		k.settleShared()
	}
	timeout := r.timeout(q)
	return func() (response, func(response) response) {
		ctx, cancel := context.WithTimeout(r.c.ctx, timeout)
		defer cancel()
		answer := k.serve(ctx, op)
		answer.event = k.event
		return answer, k.then
	}
}

// associated returns the session that a receiving link of this connection holds, if the request names that link. The
// link must be one of the same entity (RUL-29); nil otherwise.
func (r *requests) associated(q *request) *heldSession {
	r.c.onLoop()
	name := q.prop(keyLinkName)
	if name == "" || r.l.addr.sub != fsm.Main {
		return nil
	}
	l := r.c.links[linkKey{name, amqp.RoleReceiver}]
	if l == nil || l.state != linkAttached {
		return nil
	}
	e, ok := l.end.(*egress)
	if !ok || e.session == nil || e.session.key.entity != r.l.desc.ID {
		return nil
	}
	return e.session
}

func always(answer response) func() (response, func(response) response) {
	return func() (response, func(response) response) { return answer, nil }
}

// timeout returns how long the client waits for the answer, within our own limit (Q13).
func (r *requests) timeout(q *request) time.Duration {
	r.c.onLoop()
	for _, key := range []string{"com.microsoft:server-timeout", "server-timeout"} {
		v, ok := q.props.Get(key)
		if !ok {
			continue
		}
		if ms, ok := v.Int64(); ok && ms > 0 {
			return min(time.Duration(min(ms, 1<<32))*time.Millisecond, r.c.cfg.ProposeTimeout)
		}
	}
	return r.c.cfg.ProposeTimeout
}
