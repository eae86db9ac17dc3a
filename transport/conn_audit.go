package transport

import (
	"net/http"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// The names of what this package has in the audit log.
const (
	auditAccess     = "access" // somebody was refused for the want of a right
	auditSend       = "message.send"
	auditReceive    = "message.receive"
	auditLock       = "message.lock"
	auditSettle     = "message.settle"
	auditRuleCreate = "rule.create"
	auditRuleDelete = "rule.delete"
)

// event begins an event of the audit log about this connection, nil if no log is kept.
func (c *conn) event(action, entity string) *audit.Event {
	if c.s.audit == nil {
		return nil
	}
	agent := c.product
	if c.version != "" {
		agent += "/" + c.version
	}
	return &audit.Event{Action: action, Entity: entity, Via: audit.ViaAMQP, Agent: agent, Remote: c.socket.RemoteAddr().String(),
		Who: c.who(func(auth.Claim) bool { return true })}
}

// who is whose claim opened something: of several the newest that fits.
func (c *conn) who(fits func(auth.Claim) bool) audit.Who {
	var newest heldClaim
	for _, claim := range c.claims { // order-free: the newest is one
		if claim.order > newest.order && fits(claim.Claim) {
			newest = claim
		}
	}
	return audit.WhoOf(newest.Claim)
}

// refuses records that somebody was refused for the want of a right.
func (c *conn) refuses(e *amqp.Error, path string, mark *refusal.Mark) {
	if e.Condition != amqp.ConditionUnauthorizedAccess {
		return
	}
	if event := c.event(auditAccess, path); event != nil {
		c.audited(event, mark)
	}
}

// refusesPlain records that nobody has the name and key of a SASL response.
func (c *conn) refusesPlain(name string, err error) {
	if event := c.event(auditAccess, ""); event != nil {
		event.Who, event.Reason = audit.Claimed(c.s.policies.ClaimedName(name)), auth.TextOf(err)
		event.Outcome = refusal.Unauthorized.String()
		c.s.audit.Record(*event)
	}
}

// refusesToken is the event of a token that was not accepted, nil if no log is kept.
func (c *conn) refusesToken(audience, token string, err error) *audit.Event {
	event := c.event(auditAccess, parseAddress(audience).path())
	if event != nil {
		event.Who, event.Reason = audit.Claimed(c.s.policies.Claimed(token)), auth.TextOf(err)
	}
	return event
}

// audited records an event. mark is that of the refusal, nil if nothing was refused.
func (c *conn) audited(event *audit.Event, mark *refusal.Mark) {
	if mark != nil {
		event.Outcome, event.Tracking = mark.Code.String(), mark.ID
	}
	c.s.audit.Record(*event)
}

// eventOfRule begins the event of a request that changes a rule, nil for any other request.
func (r *requests) eventOfRule(q *request) *audit.Event {
	r.c.onLoop()
	var action string
	switch q.operation {
	case opAddRule:
		action = auditRuleCreate
	case opRemoveRule:
		action = auditRuleDelete
	default:
		return nil
	}
	path := r.l.addr.path()
	event := r.c.event(action, path)
	if event != nil {
		event.Who = r.c.who(func(c auth.Claim) bool { return c.AllowsAny(path, auth.Listen) })
	}
	return event
}

// ruleChanged notes a rule as it was and as it is; nil is one that is not there.
func (k *call) ruleChanged(before, after *fsm.Rule) {
	if k.event != nil {
		k.event.Before, k.event.After = audit.Rule(before), audit.Rule(after)
	}
}

// auditHTTP notes what a request over HTTP is about. Only the operations port has an entry for it: clients have a port of
// their own.
func auditHTTP(r *http.Request, to *httpTarget, right auth.Right) {
	action := auditSettle
	switch {
	case right == auth.Send:
		action = auditSend
	case to.head && r.Method == http.MethodDelete:
		action = auditReceive
	case to.head:
		action = auditLock
	}
	audit.Of(r.Context()).Do(action, to.addr.path())
}

// auditToken notes whose token a request over HTTP has.
func (s *Server) auditToken(r *http.Request, token string, claim auth.Claim, err error) {
	entry := audit.Of(r.Context())
	switch {
	case entry == nil:
	case err != nil:
		entry.ByNobody(s.policies.Claimed(token), auth.TextOf(err))
	default:
		entry.By(claim)
	}
}

// auditRefusal notes that a request over HTTP was refused. On a port of clients only the want of a right is recorded.
func (s *Server) auditRefusal(r *http.Request, to *httpTarget, p *httpProblem, mark *refusal.Mark) {
	if entry := audit.Of(r.Context()); entry != nil {
		entry.Refused(mark.Code.String(), mark.ID)
		return
	}
	if s.audit == nil || p.status != http.StatusUnauthorized {
		return
	}
	s.audit.Record(audit.Event{Action: auditAccess, Outcome: mark.Code.String(), Tracking: mark.ID, Via: audit.ViaMessages,
		Who: audit.Claimed(s.policies.Claimed(strings.Join(r.Header.Values("Authorization"), ""))), Agent: r.UserAgent(),
		Remote: r.RemoteAddr, Method: r.Method, Path: r.URL.Path, Status: p.status, Entity: to.addr.path(), Reason: p.text})
}
