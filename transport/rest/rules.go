package rest

import (
	"net/http"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
)

// ruleOf answers for the rules of a subscription.
func (a *API) ruleOf(q *request) (*answer, error) {
	at := q.where
	d, err := a.subscription(q)
	if err != nil {
		return nil, err
	}
	switch {
	case q.http.Method == http.MethodPut:
		return a.putRule(q, d)
	case at.rule == "" && isRead(q.http):
		return a.listRules(q, d)
	case at.rule == "":
		return nil, &problem{status: http.StatusMethodNotAllowed,
			text: "The method is not allowed for this resource."}
	}
	r := d.Rule(at.rule)
	if r == nil {
		return nil, a.missing(q)
	}
	if isRead(q.http) {
		return a.ruleEntry(q, http.StatusOK, d, r), nil
	}
	if _, err := a.deps.Topics.DropRule(q.ctx, d.ID, r.Name); err != nil {
		return nil, a.orMissing(q, err)
	}
	a.log.Info("rule deleted", "subscription", d.Name, "name", r.Name, "policy", q.claim.Policy)
	audit.Of(q.ctx).RuleChanged(r, nil)
	return &answer{status: http.StatusOK, etag: ticks(d.UpdatedAt)}, nil
}

// putRule creates or replaces a rule. Go leaves the name out of the path and has it in the body.
func (a *API) putRule(q *request, d *fsm.Descriptor) (*answer, error) {
	if err := checkContentType(q.http); err != nil {
		return nil, err
	}
	given, err := readContent(q.http)
	if err != nil {
		return nil, err
	}
	if given.name.Local != "RuleDescription" {
		return nil, badRequest("The content of the Atom entry is not the description of a rule.")
	}
	parsed, err := parseRule(given)
	if err != nil {
		return nil, err
	}
	if q.where.rule == "" {
		q.where.rule = parsed.Name
	}
	parsed.Name = q.where.rule
	if err := checkBelow(q.host, "rule", q.where.rule, ruleChars); err != nil {
		return nil, err
	}
	updated, err := a.deps.Topics.PutRule(q.ctx, d.ID, parsed, q.updates)
	if err != nil {
		return nil, a.orMissing(q, err)
	}
	a.log.Info("rule set", "subscription", d.Name, "name", q.where.rule, "policy", q.claim.Policy)
	r := updated.Rule(q.where.rule)
	audit.Of(q.ctx).RuleChanged(d.Rule(q.where.rule), r)
	if r == nil { // deleted meanwhile
		return nil, a.missing(q)
	}
	status := http.StatusCreated
	if q.updates {
		status = http.StatusOK
	}
	return a.ruleEntry(q, status, updated, r), nil
}

func (a *API) ruleEntry(q *request, status int, d *fsm.Descriptor, r *fsm.Rule) *answer {
	p := new(page)
	p.raw(`<entry xmlns="` + atomSpace + `">`)
	a.writeRuleEntry(p, q, d, r)
	p.raw("</entry>")
	return &answer{
		status: status, contentType: entryType, etag: ticks(d.UpdatedAt), body: p.Bytes(),
	}
}

func (a *API) writeRuleEntry(p *page, q *request, d *fsm.Descriptor, r *fsm.Rule) {
	a.writeHead(p, q, head{
		path: q.where.rulesPath(d.Name) + "/" + r.Name, title: r.Name, published: r.CreatedAt,
		updated: d.UpdatedAt,
	})
	writeRule(p, r)
	p.raw("</content>")
}

// listRules answers one page, by name.
func (a *API) listRules(q *request, d *fsm.Descriptor) (*answer, error) {
	if q.query.err != nil {
		return nil, q.query.err
	}
	all := d.RulesByName()
	all = all[min(q.query.skip, len(all)):]
	more := len(all) > q.query.top
	all = all[:min(q.query.top, len(all))]
	return a.feed(q, listing{title: "Rules", path: q.where.rulesPath(d.Name), count: len(all), more: more,
		write: func(p *page, i int) { a.writeRuleEntry(p, q, d, &all[i]) }}), nil
}
