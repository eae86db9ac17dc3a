package rest

import (
	"fmt"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/audit"
)

// moment is a wall time in JSON, nil if there is none.
func moment(at fsm.Wall) *time.Time {
	if at <= 0 || at >= fsm.Wall(fsm.Unlimited) {
		return nil
	}
	t := time.UnixMilli(int64(at)).UTC()
	return &t
}

// LockView is one lock of a subqueue (S-272).
type LockView struct {
	SequenceNumber uint64     `json:"sequenceNumber"`
	Token          string     `json:"token"` // its first 8 digits
	TakenAt        *time.Time `json:"takenAt,omitempty"`
	LockedUntil    *time.Time `json:"lockedUntil,omitempty"`
	State          string     `json:"state"` // to which the message goes back
	SessionID      *string    `json:"sessionId,omitempty"`
	SessionMode    string     `json:"sessionMode,omitempty"` // how the session is held: exclusive or shared (S-335)
	TakenBy        string     `json:"takenBy"`               // node's life and pump
	// Container id, link and address of who took it, if that is or was a client of the answering node.
	Client string `json:"client,omitempty"`
	Link   string `json:"link,omitempty"`
	Remote string `json:"remote,omitempty"`
}

// locks lists who holds what.
func (q *inspection) locks() (any, error) {
	at, after, most, err := q.place("max", "cursor")
	if err != nil {
		return nil, err
	}
	a, err := q.query(at.share, &fsm.ListLocks{After: after, Max: most})
	if err != nil {
		return nil, err
	}
	all := make([]LockView, len(a.Locks))
	for i, l := range a.Locks {
		all[i] = LockView{SequenceNumber: uint64(l.Number), Token: fmt.Sprintf("%x", l.Digits[:]),
			TakenAt: moment(l.TakenAt), LockedUntil: moment(l.LockedUntil), State: stateNames[l.State],
			TakenBy: fmt.Sprintf("%x/%d", uint64(l.By.Node), l.By.Pump)}
		all[i].Client, all[i].Link, all[i].Remote = q.o.deps.Holder(l.By)
		if l.HasSession {
			all[i].SessionID, all[i].SessionMode = &l.SessionID, "exclusive"
			if l.Shared {
				all[i].SessionMode = "shared"
			}
		}
	}
	return map[string]any{"locks": all, "next": q.next(at, fmt.Sprint(a.Next), a.Next != 0)}, nil
}

var stateNames = [...]string{fsm.StateActive: "active", fsm.StateDeferred: "deferred", fsm.StateScheduled: "scheduled"}

// begin reads where a request begins; names are the parameters that it knows.
func (q *inspection) begin(names ...string) (at cursor, after uint64, err error) {
	if err = q.only(names...); err != nil {
		return
	}
	if at, err = q.cursor(); err != nil {
		return
	}
	after, err = at.number()
	return
}

// place reads what every list takes; names are the parameters that it knows.
func (q *inspection) place(names ...string) (at cursor, after uint64, most uint32, err error) {
	if at, after, err = q.begin(names...); err == nil {
		most, err = q.page()
	}
	return
}

// RecordView is one line of a history (S-54, S-274, S-275).
type RecordView struct {
	SequenceNumber uint64     `json:"sequenceNumber"`
	MessageID      string     `json:"messageId,omitempty"`
	SessionID      string     `json:"sessionId,omitempty"`
	EnqueuedAt     *time.Time `json:"enqueuedAt,omitempty"`
	At             *time.Time `json:"at"` // accepted, processed, or released
	Deliveries     uint32     `json:"deliveries,omitempty"`
	By             string     `json:"by"`  // request id: node's life, pump and counter; of a release who held the lock
	End            string     `json:"end"` // how the message left; empty while it is there
	EndedAt        *time.Time `json:"endedAt,omitempty"`
	Operator       string     `json:"operator,omitempty"` // of a release: the policy of who asked for it
	Message        any        `json:"message,omitempty"`  // if the history keeps bodies
}

var endNames = [...]string{fsm.StillThere: "", fsm.Completed: "completed", fsm.DeadLettered: "dead-lettered",
	fsm.Expired: "expired", fsm.Cancelled: "cancelled", fsm.Deleted: "deleted",
	fsm.Forwarded: "forwarded", fsm.Released: "released"}

// endName also names ends that later versions of the state machine add.
func endName(e fsm.HistoryEnd) string {
	if int(e) < len(endNames) {
		return endNames[e]
	}
	return fmt.Sprintf("ended (%d)", e)
}

// history lists what was processed or accepted, or what operators released, oldest first.
func (q *inspection) history() (any, error) {
	at, after, most, err := q.place("max", "cursor", "kind")
	if err != nil {
		return nil, err
	}
	ask := &fsm.History{After: after, Max: most, MaxBytes: operatorBytes}
	kept := q.d.ProcessedHistory
	switch kind := q.values.Get("kind"); kind {
	case "", "processed":
	case "accepted":
		ask.Kind, kept = fsm.Accepted, q.d.AcceptedHistory
	case "releases":
		ask.Kind, kept = fsm.Releases, true
	default:
		return nil, badRequest("kind must be processed, accepted or releases, not '%s'.", clip(kind))
	}
	a, err := q.query(at.share, ask)
	if err != nil {
		return nil, err
	}
	all := make([]RecordView, len(a.History))
	for i := range a.History {
		r := &a.History[i]
		all[i] = RecordView{SequenceNumber: uint64(r.Number), MessageID: r.MessageID, SessionID: r.SessionID,
			EnqueuedAt: moment(r.EnqueuedAt), At: moment(r.At), Deliveries: r.Deliveries, By: r.By.String(),
			End: endName(r.End), EndedAt: moment(r.EndedAt), Operator: r.Operator}
		if i < len(a.Messages) && len(a.Messages[i].Body) > 0 {
			if all[i].Message, err = q.o.deps.Show(&a.Messages[i]); err != nil {
				return nil, fmt.Errorf("message %d: %w", r.Number, err)
			}
		}
	}
	audit.Of(q.ctx).Count("records", uint64(len(all)))
	return map[string]any{"records": all, "kept": kept, "next": q.next(at, fmt.Sprint(a.Next), a.Next != 0)}, nil
}

// sessions lists session ids with messages or a state (S-83, S-84).
func (q *inspection) sessions() (any, error) {
	if err := q.only("max", "cursor", "updatedAfter"); err != nil {
		return nil, err
	}
	if !q.d.RequiresSession || q.sub != fsm.Main {
		return nil, refusedAs(fsm.SessionNotSupported, "")
	}
	at, err := q.cursor()
	if err != nil {
		return nil, err
	}
	most, err := q.page()
	if err != nil {
		return nil, err
	}
	since, err := q.time("updatedAfter", 0)
	if err != nil {
		return nil, err
	}
	ask := &fsm.ListSessions{Max: most, UpdatedAfter: since}
	// The empty id is one like any other (RUL-17): a mark tells "behind it" from "from the beginning".
	ask.After, ask.HasAfter = strings.CutPrefix(at.after, "=")
	a, err := q.query(at.share, ask)
	if err != nil {
		return nil, err
	}
	ids, last := a.Sessions, ""
	if len(ids) > 0 {
		last = "=" + ids[len(ids)-1]
	} else {
		ids = []string{}
	}
	return map[string]any{"sessions": ids, "next": q.next(at, last, len(ids) > 0)}, nil
}

// messages lists messages by state and session, without locking them.
func (q *inspection) messages() (any, error) {
	at, after, most, err := q.place("max", "cursor", "state", "session", "from", "filter")
	if err != nil {
		return nil, err
	}
	from, err := q.number("from", 0, 0, 1<<63-1)
	if err != nil {
		return nil, err
	}
	ask := &fsm.Browse{From: fsm.SequenceNumber(from), After: after, Max: most, MaxBytes: operatorBytes}
	if ask.States, err = statesOf(q.values.Get("state")); err != nil {
		return nil, err
	}
	ask.Session, ask.HasSession = q.values.Get("session"), q.values.Has("session")
	if ask.HasSession && !q.d.RequiresSession {
		return nil, refusedAs(fsm.SessionNotSupported, "")
	}
	if q.d.Partitioned && from != 0 {
		if prefix := ask.From.Prefix(); q.d.Prefix(at.share) != prefix {
			if ask.From = 0; q.d.Prefix(at.share) < prefix { // numbers below: nothing of this share
				return map[string]any{"messages": []any{}, "next": q.next(at, "", false)}, nil
			}
		}
	}
	s, err := q.sift()
	if err != nil {
		return nil, err
	}
	if s != nil {
		all := []any{}
		next, err := q.sifted(at, *ask, s, uint64(most), func(m *fsm.Delivery) error {
			shown, err := q.o.deps.Show(m)
			all = append(all, shown)
			return err
		})
		if err != nil {
			return nil, err
		}
		audit.Of(q.ctx).Count("messages", uint64(len(all)))
		return map[string]any{"messages": all, "next": next, "failed": s.failed, "fault": s.fault}, nil
	}
	a, err := q.query(at.share, ask)
	if err != nil {
		return nil, err
	}
	all := make([]any, 0, len(a.Messages))
	for i := range a.Messages {
		m, err := q.o.deps.Show(&a.Messages[i])
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", a.Messages[i].Seq, err)
		}
		all = append(all, m)
	}
	audit.Of(q.ctx).Count("messages", uint64(len(all)))
	return map[string]any{"messages": all, "next": q.next(at, fmt.Sprint(a.Next), a.Next != 0)}, nil
}

// statesOf reads a list of states; none means all.
func statesOf(text string) (bits uint8, err error) {
	if text == "" {
		return 0, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		found := false
		for state, known := range stateNames {
			if name == known {
				bits |= 1 << state
				found = true
			}
		}
		if !found {
			return 0, badRequest("state must be a list of active, deferred and scheduled, not '%s'.", clip(text))
		}
	}
	return bits, nil
}

// droppedView names the counters of messages that ended without being completed; those that are 0 are left
// out (S-169).
func droppedView(d *fsm.Drops) map[string]uint64 {
	view := map[string]uint64{}
	for why, n := range d {
		if n > 0 {
			view[fsm.DropReason(why).String()] = n
		}
	}
	return view
}

// description tells what an operator wants to know of an entity, counters of each share included.
func (q *inspection) description() (any, error) {
	if err := q.only(); err != nil {
		return nil, err
	}
	type share struct {
		Partition fsm.PartitionID   `json:"partition"`
		Counts    *fsm.EntityCounts `json:"counts,omitempty"`
		Error     string            `json:"error,omitempty"` // S-245: a share that does not answer is marked
	}
	shares := make([]share, len(q.d.Partitions))
	complete := true
	var sum fsm.EntityCounts
	for i, p := range q.d.Partitions {
		shares[i].Partition = p
		a, err := q.query(i, &fsm.Counts{})
		if err != nil && q.stale != nil {
			return nil, err // the sum would lack what an earlier read had
		}
		if err != nil {
			shares[i].Error, complete = asProblem(err).text, false
			continue
		}
		shares[i].Counts = &a.Counts
		sum.Add(a.Counts)
	}
	kinds := map[fsm.EntityKind]string{fsm.Queue: "queue", fsm.Topic: "topic", fsm.Subscription: "subscription"}
	return map[string]any{"name": q.d.Name, "kind": kinds[q.d.Kind], "id": q.d.ID, "version": q.d.Version,
		"requiresSession": q.d.RequiresSession, "partitioned": q.d.Partitioned, "counts": sum,
		"complete": complete, "shares": shares, "dropped": droppedView(&sum.Dropped), "options": optionsView(q.d), "status": statusView(q.d)}, nil
}

// transactions lists what clients of the answering node do with the entity and have not committed.
func (q *inspection) transactions() (any, error) {
	if err := q.only("ended"); err != nil {
		return nil, err
	}
	ended := q.values.Get("ended")
	if ended != "" && ended != "true" && ended != "false" {
		return nil, badRequest("ended must be true or false, not '%s'.", clip(ended))
	}
	return map[string]any{"transactions": q.o.deps.Transactions(q.d.Name, ended == "true")}, nil
}
