package rest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
)

// maxOperatorName is how many bytes of a policy name a record of a release keeps: the limit of fsm.Revoke.
const maxOperatorName = 256

// ReleaseView answers the release of locks or of a session.
type ReleaseView struct {
	Released uint64 `json:"released"`
}

// releaseLocks takes the lock of one message, or all locks of one holder, as if they had run out (S-54).
func (q *inspection) releaseLocks() (any, error) {
	if err := q.only("number", "holder"); err != nil {
		return nil, err
	}
	number, err := q.number("number", 0, 1, 1<<63-1)
	if err != nil {
		return nil, err
	}
	if q.values.Has("number") == q.values.Has("holder") {
		return nil, badRequest("Name a number or a holder, as the list of locks shows them.")
	}
	if number != 0 {
		share := q.d.ShareOf(fsm.SequenceNumber(number).Prefix())
		if share < 0 {
			return nil, noLock("message %d", number)
		}
		n, err := q.release(share, &fsm.Revoke{Number: fsm.SequenceNumber(number), Operator: q.operator()})
		if err == nil && n == 0 {
			err = noLock("message %d", number)
		}
		return q.released("released a lock", n, fmt.Sprint("message ", number), err)
	}
	cmd := &fsm.Revoke{Operator: q.operator()}
	node, pump, ok := strings.Cut(q.values.Get("holder"), "/")
	life, bad := strconv.ParseUint(node, 16, 64)
	cmd.Pump, err = strconv.ParseUint(pump, 10, 64)
	if cmd.Node = fsm.Incarnation(life); !ok || bad != nil || err != nil || life == 0 {
		return nil, badRequest("holder must be what takenBy of a lock says, not '%s'.", clip(q.values.Get("holder")))
	}
	var sum uint64
	for share := range q.shares() {
		for { // each command ends at most 1000
			n, err := q.release(share, cmd)
			if err != nil {
				return nil, err
			}
			if sum += n; n == 0 {
				break
			}
		}
	}
	if sum == 0 {
		return nil, noLock("holder %s", q.values.Get("holder"))
	}
	return q.released("released locks", sum, "holder "+q.values.Get("holder"), nil)
}

// releaseSession takes a session from its holder.
func (q *inspection) releaseSession() (any, error) {
	if err := q.only("session"); err != nil {
		return nil, err
	}
	if !q.values.Has("session") {
		return nil, badRequest("Name a session.")
	}
	id := q.values.Get("session")
	if q.sub != fsm.Main || !q.d.RequiresSession {
		return nil, refusedAs(fsm.SessionNotSupported, "")
	}
	key := fsm.Key{Entity: q.d.ID, By: fsm.ByText, Text: id}
	out, err := q.o.deps.Shares.Propose(q.ctx, key, &fsm.Revoke{HasSession: true, Session: id, Operator: q.operator()})
	switch {
	case err != nil:
		return nil, err
	case out.Refusal == fsm.MessageNotFound:
		return nil, &problem{status: http.StatusNotFound, text: fmt.Sprintf("Nobody holds the session '%s'.", clip(id))}
	case out.Refusal != fsm.None:
		return nil, refusedAs(out.Refusal, out.Detail)
	}
	return q.released("released a session", out.Count, fmt.Sprintf("session %q", clip(id)), nil)
}

// release returns how many locks of a share ended, 0 if there are none.
func (q *inspection) release(share int, c *fsm.Revoke) (uint64, error) {
	out, err := q.o.deps.Shares.Propose(q.ctx, q.key(share), c)
	switch {
	case err != nil:
		return 0, err
	case out.Refusal == fsm.MessageNotFound:
		return 0, nil
	case out.Refusal == fsm.InvalidOperation:
		return 0, badRequest("The locks of a session end with it; release the session.")
	case out.Refusal != fsm.None:
		return 0, refusedAs(out.Refusal, out.Detail)
	}
	return out.Count, nil
}

func noLock(format string, args ...any) error {
	return &problem{status: http.StatusNotFound, text: "There is no lock of " + clip(fmt.Sprintf(format, args...)) + "."}
}

// operator is who asks, as the history shows it: the policy whose key signed the request.
func (q *inspection) operator() string {
	if q.claim.Policy == "" {
		return "unnamed"
	}
	return q.claim.Policy[:min(len(q.claim.Policy), maxOperatorName)]
}

// released tells who took what.
func (q *inspection) released(what string, n uint64, of string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	q.o.deps.Log.Info("operator "+what, "entity", q.d.Name, "subqueue", q.sub.String(), "of", of, "locks", n,
		"policy", q.claim.Policy)
	audit.Of(q.ctx).Count("locks", n)
	return &ReleaseView{Released: n}, nil
}
