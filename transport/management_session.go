package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// setSessionState replaces or clears the state of a held session (S-65, S-66).
func setSessionState(ctx context.Context, k *call) response {
	proof, bad := k.needSession()
	if bad != nil {
		return *bad
	}
	cmd := &fsm.SetSessionState{Session: proof, Clear: true}
	if raw, ok := k.request.body.Get("session-state"); ok && !raw.IsNull() {
		state, ok := raw.Binary()
		if !ok {
			return k.badArgument("session-state must be binary or null")
		}
		// S-67: zero bytes are a value, except from a client that cannot say null.
		if len(state) > 0 || !k.emptyIsNull {
			cmd.State, cmd.Clear = state, false
		}
	}
	if _, bad := k.propose(ctx, k.share(k.held.share), cmd); bad != nil {
		return *bad
	}
	return response{code: codeOK}
}

// getSessionState reads the state of a held session (S-64, S-68).
func getSessionState(ctx context.Context, k *call) response {
	proof, bad := k.needSession()
	if bad != nil {
		return *bad
	}
	a, bad := k.query(ctx, k.share(k.held.share), &fsm.GetSessionState{Session: proof})
	if bad != nil {
		return *bad
	}
	if len(a.State) > keptScratch {
		key := amqp.AppendString(nil, "session-state")
		body := append(amqp.AppendMapStart(nil, 1, len(key)+amqp.BinaryStartBytes+len(a.State)), key...)
		return response{code: codeOK, body: amqp.AppendBinaryStart(body, len(a.State)), tail: [][]byte{a.State}}
	}
	w := amqp.BeginMap(nil)
	if a.HasState {
		w.Binary("session-state", a.State)
	} else {
		w.Null("session-state")
	}
	return response{code: codeOK, body: w.End()}
}

const (
	// maxSessionsPage is the most session ids of one answer (S-83).
	maxSessionsPage = 100
	// maxSessionsSkip bounds the work of one request; clients page with skip.
	maxSessionsSkip = 100_000
	// allSessionsFrom is the time from which last-updated-time means "whenever": clients ask for
	// all sessions with the year 10000 or 9999 (amqp-protocol.md 7.4).
	allSessionsFrom = 253_370_000_000_000
)

// messageSessions lists session ids, share by share (S-83, S-84).
func messageSessions(ctx context.Context, k *call) response {
	if !k.desc.RequiresSession || k.addr.sub != fsm.Main {
		return k.refuse(fsm.SessionNotSupported, "")
	}
	skip, ok := k.integer("skip", 0)
	top, ok2 := k.integer("top", maxSessionsPage)
	if !ok || !ok2 || skip < 0 || top < 1 || skip > maxSessionsSkip {
		return k.badArgument("skip must be 0 to %d, top positive", maxSessionsSkip)
	}
	after, bad := k.updatedAfter()
	if bad != nil {
		return *bad
	}
	want, passed := int(min(top, maxSessionsPage)), int(skip)
	var found []string
	for _, share := range waist.AllShares(k.desc) {
		q := &fsm.ListSessions{Max: maxSessionsPage, UpdatedAfter: after}
		for len(found) < want {
			a, bad := k.query(ctx, k.share(share), q)
			if bad != nil {
				return *bad
			}
			ids := a.Sessions
			if len(ids) == 0 {
				break
			}
			q.After, q.HasAfter = ids[len(ids)-1], true
			n := min(passed, len(ids))
			passed -= n
			found = append(found, ids[n:]...)
		}
	}
	if len(found) == 0 {
		return response{code: codeNoContent}
	}
	found = found[:min(len(found), want)]
	w := amqp.BeginMap(nil)
	w.Int("skip", int32(skip)+int32(len(found)))
	ids := amqp.AppendArray(nil, found)
	w.Raw("sessions-ids", ids) // the wire's spelling
	w.Raw("session-ids", ids)
	return response{code: codeOK, body: w.End()}
}

// updatedAfter reads the time since which the state of a session must have been set. It returns the last millisecond that
// is too early, or 0 if every session is asked for. The client's own millisecond counts (S-84, S-349).
func (k *call) updatedAfter() (fsm.Wall, *response) {
	for _, key := range [...]string{"last-updated-time", "last-updated-time-utc"} {
		raw, ok := k.request.body.Get(key)
		if !ok || raw.IsNull() {
			continue
		}
		at, ok := raw.Timestamp()
		if !ok {
			bad := k.badArgument("%s must be a timestamp", key)
			return 0, &bad
		}
		if at >= allSessionsFrom {
			return 0, nil
		}
		return fsm.Wall(max(at-1, 1)), nil
	}
	return 0, nil
}
