package rest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
)

// maxBelowChars is the length of the name of a subscription or a rule (S-228).
const maxBelowChars = 50

// below answers for what lives below a topic: its subscriptions and their rules.
func (a *API) below(q *request) (*answer, error) {
	at := q.where
	if err := a.authorizeBelow(q); err != nil {
		return nil, err
	}
	if !validName(at.name) {
		return nil, a.missing(q)
	}
	topic, err := a.deps.Entities.Get(q.ctx, at.name)
	if err != nil {
		return nil, a.orMissing(q, err)
	}
	if topic.Kind != fsm.Topic {
		return nil, a.missing(q)
	}
	switch {
	case at.kind == routeRules:
		return a.ruleOf(q)
	case at.subscription == "" && isRead(q.http):
		return a.listSubscriptions(q, topic)
	case at.subscription == "":
		return nil, &problem{status: http.StatusMethodNotAllowed,
			text: "The method is not allowed for this resource."}
	case isRead(q.http):
		return a.getSubscription(q)
	case q.http.Method == http.MethodDelete:
		return a.deleteSubscription(q)
	}
	return a.putSubscription(q, topic)
}

// authorizeBelow: all of it takes Manage on the topic, reading rules Listen as well.
func (a *API) authorizeBelow(q *request) error {
	at := q.where
	what, last := "Subscription", at.subscription
	needed := auth.Manage
	if at.kind == routeRules {
		what, last = "Rule", at.rule
		if isRead(q.http) {
			needed |= auth.Listen
		}
	}
	operation := "Get" + what
	switch {
	case q.http.Method == http.MethodPut:
		operation = "CreateOrUpdate" + what
	case q.http.Method == http.MethodDelete:
		operation = "Delete" + what
	case last == "":
		operation = "Enumerate" + what + "s"
	}
	if q.claim.AllowsAny(at.path, needed) {
		return nil
	}
	return &problem{status: http.StatusUnauthorized, text: fmt.Sprintf(
		"401 SubCode=40100: Unauthorized : Unauthorized access for '%s' operation on endpoint "+
			"'sb://%s/%s'.", operation, q.host, clip(at.path))}
}

// address is what the request names, as the service's texts write it: topic|subscription|rule.
func (q *request) address() string {
	parts := []string{q.where.name}
	for _, part := range [...]string{q.where.subscription, q.where.rule} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return clip(strings.Join(parts, "|"))
}

func (a *API) missing(q *request) *problem {
	return &problem{status: http.StatusNotFound, text: fmt.Sprintf(
		"Entity '%s:Topic:%s' was not found.", a.cfg.Namespace, q.address())}
}

func (a *API) existsAlready(q *request) *problem {
	return &problem{status: http.StatusConflict, exists: true, text: fmt.Sprintf(
		"The messaging entity '%s:Topic:%s' already exists.", a.cfg.Namespace, q.address())}
}

// orMissing turns the error of a lookup or change into the words for what lives below a topic.
func (a *API) orMissing(q *request, err error) error {
	switch p := asProblem(err); {
	case p.status == http.StatusNotFound:
		p := a.missing(q)
		p.cause = err
		return p
	case p.status == http.StatusConflict && p.subCode == existsSubCode:
		p := a.existsAlready(q)
		p.cause = err
		return p
	}
	return err
}

// subscriptionName is the full name of a subscription, in its canonical spelling.
func subscriptionName(topic, name string) string { return topic + "/Subscriptions/" + name }

// subscription looks up the subscription that the request names.
func (a *API) subscription(q *request) (*fsm.Descriptor, error) {
	d, err := a.deps.Entities.Get(q.ctx, subscriptionName(q.where.name, q.where.subscription))
	if err != nil {
		return nil, a.orMissing(q, err)
	}
	return d, nil
}

func (a *API) getSubscription(q *request) (*answer, error) {
	d, err := a.subscription(q)
	if err != nil {
		return nil, err
	}
	e, err := a.look(q, d)
	if err != nil {
		return nil, err
	}
	return a.entry(q, http.StatusOK, e), nil
}

func (a *API) putSubscription(q *request, topic *fsm.Descriptor) (*answer, error) {
	if err := checkBelow(q.host, "subscription", q.where.subscription, subscriptionChars); err != nil {
		return nil, err
	}
	element, p, err := readBody(q.http)
	if err != nil {
		return nil, err
	}
	if element != descriptionElement(fsm.Subscription) {
		return nil, badRequest("The content of the Atom entry is not the description of a subscription.")
	}
	if q.updates {
		return again(func() (*answer, error) { return a.updateSubscription(q, p) })
	}
	d, err := a.describe(fsm.Subscription, subscriptionName(topic.Name, q.where.subscription), p, nil)
	if err != nil {
		return nil, err
	}
	d.MaxMessageBytes = topic.MaxMessageBytes
	if d.Rules, err = a.firstRules(p); err != nil {
		return nil, err
	}
	if err := a.checkForwards(q, &d); err != nil {
		return nil, err
	}
	created, err := a.deps.Entities.Create(q.ctx, d)
	if err != nil {
		return nil, a.orMissing(q, err)
	}
	a.log.Info("entity created", "kind", "Subscription", "name", created.Name,
		"policy", q.claim.Policy)
	audit.Of(q.ctx).Changed(nil, created)
	return a.entry(q, http.StatusCreated, &shown{d: created, counts: &fsm.EntityCounts{}, fresh: true}), nil
}

// firstRules is the rule that a subscription is created with, by default one that selects
// everything (S-215).
func (a *API) firstRules(p properties) ([]fsm.Rule, error) {
	given := p.elements["DefaultRuleDescription"]
	if given == nil {
		return []fsm.Rule{{Name: fsm.DefaultRuleName, Source: rule.Default()}}, nil
	}
	r, err := parseRule(given)
	if err != nil {
		return nil, err
	}
	if r.Name == "" {
		r.Name = fsm.DefaultRuleName
	}
	if err := checkBelow("", "rule", r.Name, ruleChars); err != nil {
		return nil, err
	}
	return []fsm.Rule{r}, nil
}

func (a *API) updateSubscription(q *request, p properties) (*answer, error) {
	old, err := a.subscription(q)
	if err != nil {
		// A fault of the description is said first, as by the service.
		if _, wrong := a.describe(fsm.Subscription, "", p, nil); wrong != nil &&
			asProblem(err).status == http.StatusNotFound {
			return nil, wrong
		}
		return nil, err
	}
	d, err := a.describe(fsm.Subscription, old.Name, p, old)
	if err != nil {
		return nil, err
	}
	if err := a.checkForwards(q, &d); err != nil {
		return nil, err
	}
	updated, err := a.deps.Entities.Update(q.ctx, d)
	if err != nil {
		return nil, a.orMissing(q, err)
	}
	a.log.Info("entity updated", "kind", "Subscription", "name", updated.Name,
		"policy", q.claim.Policy)
	audit.Of(q.ctx).Changed(old, updated)
	return a.entry(q, http.StatusOK, &shown{d: updated, sent: &p}), nil
}

func (a *API) deleteSubscription(q *request) (*answer, error) {
	d, err := a.subscription(q)
	if err != nil {
		return nil, err
	}
	if err := a.deps.Entities.Delete(q.ctx, d.Name); err != nil {
		return nil, a.orMissing(q, err)
	}
	a.log.Info("entity deleted", "name", d.Name, "policy", q.claim.Policy)
	audit.Of(q.ctx).Changed(d, nil)
	return &answer{status: http.StatusOK, etag: ticks(d.UpdatedAt)}, nil
}

func (a *API) listSubscriptions(q *request, topic *fsm.Descriptor) (*answer, error) {
	if q.query.err != nil {
		return nil, q.query.err
	}
	found, err := a.deps.Topics.Subscriptions(q.ctx, topic, q.query.skip, q.query.top+1)
	if err != nil {
		return nil, err
	}
	return a.pageOf(q, "Subscriptions", topic.Name+"/"+q.where.words[0], found)
}

// checkBelow refuses an illegal name of a subscription or rule. host is for the text.
func checkBelow(host, what, name string, allowed func(byte) bool) error {
	if len(name) > maxBelowChars {
		return badRequest("The %s name is %d characters long, the limit is %d.", what, len(name),
			maxBelowChars)
	}
	for i := range len(name) {
		if !allowed(name[i]) {
			return badRequest("'sb://%s/%s' contains character(s) that is not allowed by Service Bus. "+
				"Entity segments can contain only letters, numbers, periods(.), hyphens(-), and "+
				"underscores(_).", host, clip(name))
		}
	}
	if name == "" || name == "." || name == ".." {
		return badRequest("'%s' is no name of a %s.", name, what)
	}
	return nil
}

// subscriptionChars are those of a segment of an entity's name.
func subscriptionChars(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '.' || c == '-' || c == '_' || c == '~'
}

// ruleChars: rules are addressed in their subscription only, and frameworks name them by types,
// with a plus sign for inner ones.
func ruleChars(c byte) bool {
	return c > ' ' && c < 0x7f && !strings.ContainsRune(`/\\@?#*%<>"&`, rune(c))
}
