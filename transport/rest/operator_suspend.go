package rest

import (
	"net/http"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
	"github.com/busbar-mq/busbar/transport/auth"
)

// StatusView is what an entity allows, and whose decision that is.
type StatusView struct {
	Status    string `json:"status"` // what clients are shown and meet
	Suspended bool   `json:"suspended"`
	// UserStatus is what the user has set; Status is that again when the suspension is lifted.
	UserStatus string `json:"userStatus"`
}

func statusView(d *fsm.Descriptor) StatusView {
	v := StatusView{Status: statuses[d.Status], Suspended: d.Suspended}
	user := *d
	user.Restore()
	v.UserStatus = statuses[user.Status]
	return v
}

// suspend forbids what the parameter says, whatever the user wants (S-256).
func (q *inspection) suspend() (any, error) {
	if err := q.only("status"); err != nil {
		return nil, err
	}
	text := q.values.Get("status")
	if text == "" {
		text = statuses[fsm.Disabled]
	}
	for status, name := range statuses {
		if strings.EqualFold(text, name) && fsm.Status(status) != fsm.Active {
			return q.setStatus(fsm.Status(status), "suspended")
		}
	}
	return nil, badRequest("status must be Disabled, SendDisabled or ReceiveDisabled, not '%s'.", clip(text))
}

// resume gives the entity back to its user.
func (q *inspection) resume() (any, error) {
	if err := q.only(); err != nil {
		return nil, err
	}
	return q.setStatus(fsm.Active, "resumed")
}

// setStatus takes Manage on the namespace: with that on the entity alone its user could lift what was
// meant to stop him.
func (q *inspection) setStatus(to fsm.Status, what string) (any, error) {
	if !q.claim.OnNamespace(auth.Manage) {
		return nil, &problem{status: http.StatusUnauthorized,
			text: "Manage claim on the namespace is required for this operation."}
	}
	if q.sub != fsm.Main {
		return nil, badRequest("A subqueue has the status of its entity.")
	}
	updated, err := q.o.deps.Suspend(q.ctx, q.d.ID, to)
	if err != nil {
		return nil, err
	}
	audit.Of(q.ctx).Changed(q.d, updated)
	q.o.deps.Log.Info("operator "+what, "entity", updated.Name, "status", statuses[updated.Status],
		"policy", q.claim.Policy)
	return statusView(updated), nil
}
