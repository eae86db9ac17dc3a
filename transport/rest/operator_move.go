package rest

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

const (
	// maxRedrive is what one request sends on at most.
	maxRedrive = 1_000
	// redriveScans bounds the commands of one request that find nothing to its filter.
	redriveScans = 16
)

// RedriveView answers a redrive or a move. A client repeats the request with Until and Next until Next
// is empty; after an interruption it goes on from there.
type RedriveView struct {
	Moved uint64     `json:"moved"`
	Until *time.Time `json:"until"`
	Next  string     `json:"next"`
	SiftView
}

// SiftView is what an answer adds if the request has a filter.
type SiftView struct {
	Left   uint64 `json:"left,omitempty"`   // selected, but held by receivers or gone meanwhile
	Failed uint64 `json:"failed,omitempty"` // messages on which the filter fails; they are not selected
	Fault  string `json:"fault,omitempty"`  // of the first of them
}

// redrive sends dead letters again, those that the filter lets through: to their own main queue, or
// to another entity (S-178).
func (q *inspection) redrive() (any, error) {
	if q.values.Has("number") {
		return q.redriveOne()
	}
	if q.sub == fsm.Main {
		q.sub = fsm.DeadLetter
	}
	return q.sendOn("sent again")
}

// move sends waiting messages to another entity. Each leaves its place and enters the transfer queue in one entry of
// the log, and the forwarder takes it from there. So it is moved exactly once whatever crashes, and a request that is
// repeated finds only what is left (S-212).
func (q *inspection) move() (any, error) {
	if !q.values.Has("to") {
		return nil, badRequest("The parameter to must name the queue or topic to move to.")
	}
	return q.sendOn("moved")
}

func (q *inspection) sendOn(what string) (any, error) {
	at, after, err := q.begin("max", "cursor", "to", "reason", "session", "from", "until", "filter")
	if err != nil {
		return nil, err
	}
	cmd := q.choice(after)
	if cmd.HasReason && q.sub == fsm.Main {
		return nil, badRequest("Only dead letters have a reason.")
	}
	if cmd.To, err = q.destination(); err != nil {
		return nil, err
	}
	if cmd.From, err = q.time("from", 0); err != nil {
		return nil, err
	}
	// A message that dies again while this goes on is behind its beginning, so the loop ends.
	if cmd.Until, err = q.time("until", fsm.Wall(q.o.deps.Now().UnixMilli())); err != nil {
		return nil, err
	}
	most, err := q.number("max", operatorPage, 1, maxRedrive)
	if err != nil {
		return nil, err
	}
	s, err := q.filtered()
	if err != nil {
		return nil, err
	}
	v := &RedriveView{Until: moment(cmd.Until)}
	if v.Moved, v.Next, v.SiftView, err = q.scan(at, cmd, s, most); err != nil {
		return nil, err
	}
	q.log(what, v.Moved)
	return v, nil
}

// choice is what the request says of the messages that it is about.
func (q *inspection) choice(after uint64) fsm.Redrive {
	return fsm.Redrive{After: after, Reason: q.values.Get("reason"), HasReason: q.values.Has("reason"),
		Session: q.values.Get("session"), HasSession: q.values.Has("session")}
}

// scan does the command to at most so many messages that it, or the filter, chooses, in as many steps as that takes. It
// returns to how many it did and where to go on.
func (q *inspection) scan(at cursor, cmd fsm.Redrive, s *sift, most uint64) (done uint64, next string, v SiftView, err error) {
	if s != nil {
		out, err := q.scanSifted(at, cmd, s, most)
		return out.done, out.next, SiftView{Left: out.left, Failed: s.failed, Fault: s.fault}, err
	}
	for range redriveScans {
		step := cmd
		step.Max = uint32(most - done)
		out, err := q.propose(at.share, &step)
		if err != nil {
			if done > 0 {
				break // what is done is told, and the cursor says where to go on
			}
			return 0, "", v, err
		}
		done += out.Count
		cmd.After = out.Next
		if next = q.next(at, fmt.Sprint(out.Next), out.Next != 0); done >= most || out.Next == 0 {
			break
		}
	}
	return done, next, v, nil
}

// destination is the entity that messages go to, 0 for the main queue of their own. A request of which it would
// refuse every message is refused here (S-237).
func (q *inspection) destination() (fsm.EntityID, error) {
	if !q.values.Has("to") {
		return 0, nil
	}
	name := q.values.Get("to")
	if !q.claim.Allows(name, auth.Send) {
		return 0, &problem{status: http.StatusUnauthorized, text: "Send claim is required for the destination."}
	}
	d, err := q.o.deps.Entities.Get(q.ctx, name)
	switch {
	case errors.Is(err, fsm.ErrNoEntity):
		return 0, &problem{status: http.StatusNotFound, text: fmt.Sprintf("There is no entity %q to move to.", clip(name))}
	case err != nil:
		return 0, err
	case d.Kind == fsm.Subscription:
		return 0, badRequest("Messages cannot be sent to a subscription; name its topic.")
	case d.ID == q.d.ID && q.sub == fsm.Main:
		return 0, badRequest("The messages are in %s already.", d.Name)
	case d.ID == q.d.ID:
		return 0, nil
	case d.Status != fsm.Active && d.Status != fsm.ReceiveDisabled:
		return 0, &problem{status: http.StatusConflict, text: fmt.Sprintf("The entity %q does not take messages now.", d.Name)}
	}
	return d.ID, nil
}
