package rest

import (
	"fmt"
	"io"
	"net/http"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/auth"
)

// Validate says what the management API would say to a creation. path is that of a queue, a topic, a subscription or a
// rule, and entry is the Atom entry of the request. Names that are taken and entities that are missing are not looked at,
// so no broker is needed.
func Validate(cfg Config, path string, entry io.Reader) error {
	a := &API{cfg: cfg}
	at := parseRoute("/" + path)
	if err := a.judge(&at, "localhost", entry); err != nil {
		return asProblem(err)
	}
	return nil
}

// CheckName refuses a name that no queue or topic can be created under.
func CheckName(name string) error {
	if at := parseRoute("/" + name); at.kind != routeEntity || at.name != name || !validName(name) {
		return fmt.Errorf("'%s' is no name of a queue or topic", clip(name))
	}
	return nil
}

// ParseRule reads the Atom entry of a rule, as a request to create one has it.
func ParseRule(entry io.Reader) (rule.Source, error) {
	content, err := parseContent(entry)
	if err != nil {
		return rule.Source{}, asProblem(unreadable(err))
	}
	r, err := parseRule(content)
	if err != nil {
		return rule.Source{}, asProblem(err)
	}
	return r.Source, nil
}

// validate answers a POST with validate=true: nothing is created. Method and parameter are ours. A PUT would create the
// entity at a node that does not know the parameter.
func (a *API) validate(q *request) (*answer, error) {
	if !q.claim.Allows(q.where.path, auth.Manage) {
		return nil, &problem{status: http.StatusUnauthorized, text: claimsForWrite}
	}
	if err := checkContentType(q.http); err != nil {
		return nil, err
	}
	if err := a.judge(&q.where, q.host, q.http.Body); err != nil {
		return nil, err
	}
	return &answer{status: http.StatusNoContent}, nil
}

// judge reads the description that an entry holds, as the creation of what is at the route does.
func (a *API) judge(at *route, host string, entry io.Reader) error {
	switch {
	case at.kind == routeRules && at.rule != "":
		return judgeRule(at, host, entry)
	case at.kind == routeEntity:
		if err := checkName(host, at.name); err != nil {
			return err
		}
	case at.kind == routeSubscriptions && at.subscription != "":
		if err := checkBelow(host, "subscription", at.subscription, subscriptionChars); err != nil {
			return err
		}
	default:
		return badRequest("The path '%s' names no queue, topic, subscription or rule.", clip(at.path))
	}
	element, p, err := parseDescription(entry)
	if err != nil {
		return unreadable(err)
	}
	kinds := []fsm.EntityKind{fsm.Queue, fsm.Topic}
	if at.kind == routeSubscriptions {
		kinds = []fsm.EntityKind{fsm.Subscription}
	}
	for _, kind := range kinds {
		if element != descriptionElement(kind) {
			continue
		}
		if _, err := a.describe(kind, at.name, p, nil); err != nil || kind != fsm.Subscription {
			return err
		}
		_, err = a.firstRules(p)
		return err
	}
	return badRequest("The content of the Atom entry is no description of what the path names.")
}

func judgeRule(at *route, host string, entry io.Reader) error {
	if err := checkBelow(host, "rule", at.rule, ruleChars); err != nil {
		return err
	}
	content, err := parseContent(entry)
	if err != nil {
		return unreadable(err)
	}
	if content.name.Local != "RuleDescription" {
		return badRequest("The content of the Atom entry is not the description of a rule.")
	}
	_, err = parseRule(content)
	return err
}
