package rest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// below answers for what lives below a topic. There are no topics yet, so whatever is asked for is
// not there, which clients take for "does not exist"; only to create it is not implemented.
func (a *API) below(q *request) (*answer, error) {
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
	if !q.claim.AllowsAny(at.path, needed) {
		return nil, &problem{status: http.StatusUnauthorized, text: fmt.Sprintf(
			"401 SubCode=40100: Unauthorized : Unauthorized access for '%s' operation on endpoint "+
				"'sb://%s/%s'.", operation, q.host, clip(at.path))}
	}
	if q.http.Method == http.MethodPut && !q.updates {
		return nil, notImplemented(topicsAndBelow)
	}
	if validName(at.name) {
		topic, err := a.deps.Entities.Get(q.ctx, at.name)
		if err != nil && asProblem(err).status != http.StatusNotFound {
			return nil, err
		}
		if err == nil && topic.Kind == fsm.Topic {
			return nil, notImplemented(topicsAndBelow)
		}
	}
	parts := []string{at.name}
	for _, part := range [...]string{at.subscription, at.rule} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return nil, &problem{status: http.StatusNotFound, text: fmt.Sprintf(
		"Entity '%s:Topic:%s' was not found.", a.cfg.Namespace, clip(strings.Join(parts, "|")))}
}
