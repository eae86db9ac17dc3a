package rest

import (
	"fmt"
	"net/http"

	"github.com/busbar-mq/busbar/fsm"
)

// oneView answers an act on one message.
type oneView struct {
	Number uint64 `json:"number"`
	Status string `json:"status"`
}

// deleteOne removes one message by its number: one that waits, a scheduled or a deferred one, or a dead letter.
func (q *inspection) deleteOne() (any, error) {
	if err := q.only("number"); err != nil {
		return nil, err
	}
	m, share, err := q.one()
	if err != nil {
		return nil, err
	}
	var out fsm.Outcome
	switch {
	case q.sub != fsm.Main && m.State != fsm.StateDeferred:
		return q.chooseOne(m, share, fsm.Redrive{Discard: true}, "deleted")
	case m.State == fsm.StateScheduled:
		out, err = q.propose(share, &fsm.Cancel{Numbers: []fsm.SequenceNumber{m.Seq}})
	case m.State == fsm.StateDeferred && q.sub == fsm.Main && q.d.RequiresSession:
		return nil, &problem{status: http.StatusConflict, text: "A deferred message of a session is deleted by who holds the session."}
	case m.State == fsm.StateDeferred:
		out, err = q.propose(share, &fsm.Receive{Numbers: []fsm.SequenceNumber{m.Seq}, Delete: true})
	default:
		return q.chooseOne(m, share, fsm.Redrive{Discard: true}, "deleted")
	}
	if err != nil {
		return nil, err
	}
	_ = out // all that there is to know is that it was not refused
	q.log("deleted a message", 1)
	return &oneView{Number: uint64(m.Seq), Status: "deleted"}, nil
}

// redriveOne sends one dead letter again, to its own queue or elsewhere.
func (q *inspection) redriveOne() (any, error) {
	if err := q.only("number", "to"); err != nil {
		return nil, err
	}
	if q.sub == fsm.Main {
		q.sub = fsm.DeadLetter
	}
	to, err := q.destination()
	if err != nil {
		return nil, err
	}
	m, share, err := q.one()
	if err != nil {
		return nil, err
	}
	return q.chooseOne(m, share, fsm.Redrive{To: to}, "sent again")
}

// one finds the message that the parameter number names.
func (q *inspection) one() (m *fsm.Delivery, share int, err error) {
	n, err := q.number("number", 0, 1, 1<<63-1)
	if err != nil {
		return nil, 0, err
	}
	if n == 0 {
		return nil, 0, badRequest("Name the number of a message.")
	}
	gone := &problem{status: http.StatusNotFound, text: fmt.Sprintf("There is no message %d here.", n)}
	if share = q.d.ShareOf(fsm.SequenceNumber(n).Prefix()); share < 0 {
		return nil, 0, gone
	}
	a, err := q.query(share, &fsm.Browse{From: fsm.SequenceNumber(n), Max: 1, MaxBytes: 1})
	switch {
	case err != nil:
		return nil, 0, err
	case len(a.Messages) == 0 || a.Messages[0].Seq != fsm.SequenceNumber(n):
		return nil, 0, gone
	}
	return &a.Messages[0], share, nil
}

// chooseOne does to one message what a redrive does to many.
func (q *inspection) chooseOne(m *fsm.Delivery, share int, c fsm.Redrive, what string) (any, error) {
	kind := "message"
	if q.sub != fsm.Main {
		kind = "dead letter"
	}
	c.Numbers = []fsm.SequenceNumber{m.Seq}
	out, err := q.propose(share, &c)
	if err != nil {
		return nil, err
	}
	if out.Count == 0 {
		return nil, &problem{status: http.StatusConflict, text: fmt.Sprintf("The %s %d is held by a receiver, or gone.", kind, m.Seq)}
	}
	q.log(what+" a "+kind, out.Count)
	return &oneView{Number: uint64(m.Seq), Status: what}, nil
}

// arrivalOf is the place of a message in its share: its number without what names the share.
func arrivalOf(d *fsm.Descriptor, n fsm.SequenceNumber) uint64 {
	if d.Partitioned {
		return uint64(n) & (1<<48 - 1)
	}
	return uint64(n)
}
