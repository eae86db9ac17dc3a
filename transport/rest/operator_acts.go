package rest

import (
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
)

const (
	// maxPurge is what one request deletes at most: one command of the state machine (S-263).
	maxPurge = 4_000
	// purgeSessions is how many sessions one request empties.
	purgeSessions = 50
)

// PurgeView answers a purge. A client repeats the request with Before and Next until Next is empty.
type PurgeView struct {
	Deleted uint64     `json:"deleted"`
	Skipped uint64     `json:"skippedSessions"` // held by receivers (S-264)
	Before  *time.Time `json:"before"`
	Next    string     `json:"next"`
	SiftView
}

// purge deletes waiting messages that are older than the first request's time (S-265). Of dead letters those
// may be chosen that died for a reason, in a session, or were enqueued from a time on. A filter in the language of rules
// chooses any.
func (q *inspection) purge() (any, error) {
	if q.values.Has("filter") || q.sub != fsm.Main && (q.values.Has("reason") || q.values.Has("session") || q.values.Has("from")) {
		return q.purgeChosen()
	}
	if q.values.Has("reason") || q.values.Has("from") {
		return nil, badRequest("Only dead letters can be chosen by reason or from; a queue is purged by before and session.")
	}
	if err := q.only("max", "cursor", "before", "session"); err != nil {
		return nil, err
	}
	at, err := q.cursor()
	if err != nil {
		return nil, err
	}
	before, err := q.time("before", fsm.Wall(q.o.deps.Now().UnixMilli()))
	if err != nil {
		return nil, err
	}
	most, err := q.number("max", maxPurge, 1, maxPurge)
	if err != nil {
		return nil, err
	}
	v := &PurgeView{Before: moment(before)}
	cmd := fsm.DeleteMessages{Before: before, Max: uint32(most)}
	sessionful := q.d.RequiresSession && q.sub == fsm.Main
	switch {
	case q.values.Has("session") && !sessionful:
		return nil, refusedAs(fsm.SessionNotSupported, "")
	case q.values.Has("session"):
		return v, q.purgeOne(v, cmd)
	case sessionful:
		return v, q.purgeSessions(v, cmd, at)
	}
	out, err := q.propose(at.share, &cmd)
	if err != nil {
		return nil, err
	}
	v.Deleted = out.Count
	v.Next = q.next(at, "", out.Count == most)
	q.log("purged", v.Deleted)
	return v, nil
}

// purgeChosen deletes the dead letters that the parameters choose, or the waiting messages that the filter selects.
func (q *inspection) purgeChosen() (any, error) {
	at, after, err := q.begin("max", "cursor", "reason", "session", "from", "before", "filter")
	if err != nil {
		return nil, err
	}
	if q.values.Has("session") && !q.d.RequiresSession {
		return nil, refusedAs(fsm.SessionNotSupported, "")
	}
	s, err := q.filtered()
	if err != nil {
		return nil, err
	}
	cmd := q.choice(after)
	cmd.Discard = true
	if cmd.From, err = q.time("from", 0); err != nil {
		return nil, err
	}
	if cmd.Until, err = q.time("before", fsm.Wall(q.o.deps.Now().UnixMilli())); err != nil {
		return nil, err
	}
	most, err := q.number("max", maxRedrive, 1, maxPurge)
	if err != nil {
		return nil, err
	}
	v := &PurgeView{Before: moment(cmd.Until)}
	v.Deleted, v.Next, v.SiftView, err = q.scan(at, cmd, s, min(most, maxRedrive))
	if err != nil {
		return nil, err
	}
	q.log("purged", v.Deleted)
	return v, nil
}

// purgeOne empties the session that the request names.
func (q *inspection) purgeOne(v *PurgeView, cmd fsm.DeleteMessages) error {
	id := q.values.Get("session")
	key := fsm.Key{Entity: q.d.ID, By: fsm.ByText, Text: id}
	out, err := q.o.deps.Shares.Propose(q.ctx, key, &fsm.AcceptSession{ID: id})
	if err != nil {
		return err
	}
	if out.Refusal != fsm.None {
		return refusedAs(out.Refusal, out.Detail)
	}
	n, err := q.empty(max(0, q.d.ShareOf(out.Session.Token.Prefix())), out.Session, cmd)
	v.Deleted = n
	q.log("purged", n)
	return err
}

// purgeSessions empties the sessions of a share that nobody holds, in the order of their ids. A
// session's messages belong to its holder, so the operator holds it meanwhile.
func (q *inspection) purgeSessions(v *PurgeView, cmd fsm.DeleteMessages, at cursor) error {
	ask := &fsm.ListSessions{Max: purgeSessions}
	if at.after != "" {
		ask.After, ask.HasAfter = at.after[1:], true
	}
	a, err := q.query(at.share, ask)
	if err != nil {
		return err
	}
	last := at.after
	for _, id := range a.Sessions {
		out, err := q.o.deps.Shares.Propose(q.ctx, q.key(at.share), &fsm.AcceptSession{ID: id})
		switch {
		case err != nil:
			return err
		case out.Refusal == fsm.SessionCannotBeLocked:
			v.Skipped++
		case out.Refusal != fsm.None:
			return refusedAs(out.Refusal, out.Detail)
		default:
			n, err := q.empty(at.share, out.Session, cmd)
			v.Deleted += n
			if err != nil {
				return err
			}
		}
		last = "=" + id
	}
	v.Next = q.next(at, last, len(a.Sessions) > 0)
	q.log("purged", v.Deleted)
	return nil
}

// empty deletes the messages of a held session and lets it go.
func (q *inspection) empty(share int, proof fsm.SessionProof, cmd fsm.DeleteMessages) (n uint64, err error) {
	cmd.Session = proof
	for {
		var out fsm.Outcome
		if out, err = q.propose(share, &cmd); err != nil {
			break
		}
		if n += out.Count; out.Count < uint64(cmd.Max) {
			break
		}
	}
	if _, late := q.propose(share, &fsm.ReleaseSession{Session: proof, Orderly: true}); late != nil {
		q.o.deps.Log.Debug("session of a purge runs out by itself", "entity", q.d.Name, "error", late)
	}
	return n, err
}

// log tells who changed what.
func (q *inspection) log(what string, n uint64) {
	q.o.deps.Log.Info("operator "+what, "entity", q.d.Name, "subqueue", q.sub.String(), "messages", n,
		"policy", q.claim.Policy)
	audit.Of(q.ctx).Count("messages", n)
}
