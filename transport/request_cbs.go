package transport

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// maxTokenBytes bounds a token; the largest in use are JSON web tokens of a few KiB.
const maxTokenBytes = 32 << 10

// hasTokenLink reports whether another link to $cbs is open in the direction of l.
func (c *conn) hasTokenLink(l *link) bool {
	for _, o := range c.links {
		if o != l && o.addr.cbs && o.role == l.role && o.state == linkAttached {
			return true
		}
	}
	return false
}

// token handles a request to $cbs.
func (r *requests) token(q *request) func() (response, func(response) response) {
	r.c.onLoop()
	if q.operation != "put-token" {
		r.c.s.stats.reject(siteRequest)
		return always(failed(501, amqpError(amqp.ConditionNotImplemented, "operation %q is not supported", q.operation)))
	}
	name := q.prop("name")
	text, ok := q.body.Text()
	if !ok || name == "" || len(text) > maxTokenBytes {
		r.c.s.stats.reject(siteToken)
		return always(failed(codeBadRequest, amqpError(amqp.ConditionArgumentError, "put-token needs a name and a token")))
	}
	switch kind := q.prop("type"); kind {
	case "servicebus.windows.net:sastoken", "jwt", "amqp:jwt", "":
		// The token itself counts: some clients call a signature a jwt.
	default:
		r.c.s.stats.reject(siteToken)
		return always(failed(codeBadRequest, amqpError(amqp.ConditionArgumentError, "token type %q is not supported", kind)))
	}
	claim, err := r.c.s.policies.Verify(text, time.Now())
	if err != nil {
		r.c.s.stats.reject(siteToken)
		r.c.log.Debug("token refused", "audience", refusal.Clip(name), "error", err) // answer notes it, at a bounded rate
		refused := failed(401, amqpError(amqp.ConditionUnauthorizedAccess, "%s", auth.TextOf(err)))
		refused.event = r.c.refusesToken(name, text, err)
		return always(refused)
	}
	a := parseAddress(name)
	known := a.entity == "" || a.cbs || r.c.isHost(name, a)
	timeout := r.timeout(q)
	return func() (response, func(response) response) {
		if !known {
			ctx, cancel := context.WithTimeout(r.c.ctx, timeout)
			defer cancel()
			if _, err := r.c.s.catalog.Entity(ctx, a.entity); err != nil {
				code, e := 404, r.c.s.errorOf(err, a.entity)
				if !errors.Is(err, fsm.ErrNoEntity) {
					code = codeOf(e.Condition)
				}
				return failed(code, e), nil
			}
		}
		return response{code: codeAccepted}, func(answer response) response {
			r.c.putClaim(name, claim)
			return answer
		}
	}
}

// isHost reports whether an audience without a scheme is the name by which the client calls us, with or without its
// port. It must not be the name of an entity.
func (c *conn) isHost(name string, a address) bool {
	if strings.Contains(name, "://") || strings.Contains(a.entity, "/") {
		return false
	}
	host := bareHost(a.entity)
	return host != "" &&
		(strings.EqualFold(host, bareHost(c.hostname)) || strings.EqualFold(host, bareHost(c.cfg.Namespace)))
}

// putClaim keeps what a token proves. The newest one of an audience counts.
func (c *conn) putClaim(name string, claim auth.Claim) {
	if !c.s.policies.Stands(claim) {
		return // its policy changed since the token was checked
	}
	audience := auth.EntityPath(name)
	if _, renewal := c.claims[audience]; !renewal && len(c.claims) >= c.cfg.MaxTokens {
		c.s.stats.reject(siteToken)
		oldest, order := "", c.tokens+1
		for other, claim := range c.claims {
			if claim.order < order {
				oldest, order = other, claim.order
			}
		}
		delete(c.claims, oldest) // its links need a new token
	}
	c.admitClaim(audience, claim)
	c.rearm()
}
