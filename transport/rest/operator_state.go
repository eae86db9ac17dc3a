package rest

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
)

// StateView is what a session keeps.
type StateView struct {
	Session string `json:"session"`
	Set     bool   `json:"set"` // tells an empty state from none
	State   string `json:"state"`
	// Encoding is "base64" if the state is no text.
	Encoding string `json:"encoding,omitempty"`
	Bytes    int    `json:"bytes"`
}

// sessionState reads the state of a session, replaces it by the body of the request, or removes it. A state belongs to
// who holds the session, so the operator holds it meanwhile; one that a receiver holds is left alone.
func (q *inspection) sessionState() (any, error) {
	if err := q.only("session"); err != nil {
		return nil, err
	}
	if !q.values.Has("session") {
		return nil, badRequest("Name a session.")
	}
	if q.sub != fsm.Main || !q.d.RequiresSession {
		return nil, refusedAs(fsm.SessionNotSupported, "")
	}
	id := q.values.Get("session")
	body, err := io.ReadAll(q.http.Body)
	if err != nil {
		return nil, err
	}
	out, err := q.o.deps.Shares.Propose(q.ctx, fsm.Key{Entity: q.d.ID, By: fsm.ByText, Text: id}, &fsm.AcceptSession{ID: id})
	if err != nil {
		return nil, err
	}
	if out.Refusal != fsm.None {
		return nil, refusedAs(out.Refusal, out.Detail)
	}
	held := out.Session
	share := max(0, q.d.ShareOf(held.Token.Prefix()))
	defer func() {
		if _, late := q.propose(share, &fsm.ReleaseSession{Session: held, Orderly: true}); late != nil {
			q.o.deps.Log.Debug("session of an operator runs out by itself", "entity", q.d.Name, "error", late)
		}
	}()
	switch q.http.Method {
	case http.MethodPut:
		err = q.setState(share, &fsm.SetSessionState{Session: held, State: body})
	case http.MethodDelete:
		err = q.setState(share, &fsm.SetSessionState{Session: held, Clear: true})
	}
	if err != nil {
		return nil, err
	}
	a, err := q.query(share, &fsm.GetSessionState{Session: held})
	if err != nil {
		return nil, err
	}
	v := &StateView{Session: id, Set: a.HasState, State: string(a.State), Bytes: len(a.State)}
	if !utf8.Valid(a.State) {
		v.State, v.Encoding = base64.StdEncoding.EncodeToString(a.State), "base64"
	}
	return v, nil
}

func (q *inspection) setState(share int, c *fsm.SetSessionState) error {
	if len(c.State) > int(q.d.MaxMessageBytes) {
		return badRequest("The state has %d bytes, the limit is %d.", len(c.State), q.d.MaxMessageBytes)
	}
	if _, err := q.propose(share, c); err != nil {
		return err
	}
	q.o.deps.Log.Info("operator set the state of a session", "entity", q.d.Name, "session", fmt.Sprintf("%q", clip(c.Session.ID)),
		"bytes", len(c.State), "policy", q.claim.Policy)
	audit.Of(q.ctx).Count("bytes", uint64(len(c.State)))
	return nil
}
