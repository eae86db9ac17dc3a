package rest

import (
	"net/http"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
)

// viewActions are the names of the operators' requests in the audit log. Views that are not here tell nothing of messages,
// and change nothing.
var viewActions = map[string]string{
	"options": "entity.options", "history": "history.read", "messages": "messages.read", "purge": "messages.purge",
	"redrive": "messages.redrive", "move": "messages.move", "suspend": "entity.suspend", "resume": "entity.resume",
	"release-locks": "locks.release", "release-session": "session.release", "delete": "message.delete",
}

// stateActions are those of the state of a session, by method.
var stateActions = map[string]string{http.MethodGet: "session-state.read", http.MethodPut: "session-state.set",
	http.MethodDelete: "session-state.clear"}

// nameView names an operator's request.
func nameView(r *http.Request, view, path string) {
	entry := audit.Of(r.Context())
	switch action, known := viewActions[view], view == "session-state"; {
	case known:
		entry.Do(stateActions[r.Method], path)
	case action != "":
		entry.Do(action, path)
	default:
		entry.Ignore()
	}
}

// name names a request of the management API that changes something.
func (q *request) name() {
	entry := audit.Of(q.ctx)
	if entry == nil || isRead(q.http) {
		return
	}
	if q.http.Method == http.MethodPost && q.query.validate {
		entry.Ignore()
		return
	}
	what := "entity"
	if q.where.kind == routeRules {
		what = "rule"
	}
	switch q.http.Method {
	case http.MethodPut:
		verb := ".create"
		if q.http.Header.Get("If-Match") != "" {
			verb = ".update"
		}
		entry.Do(what+verb, q.where.path)
	case http.MethodDelete:
		entry.Do(what+".delete", q.where.path)
	}
}

// before returns the entity of a request as it is, for the audit log alone; nil if no log is kept or there is none.
func (a *API) before(q *request, name string) *fsm.Descriptor {
	if audit.Of(q.ctx) == nil {
		return nil
	}
	d, err := a.deps.Entities.Get(q.ctx, name)
	if err != nil {
		return nil
	}
	return d
}
