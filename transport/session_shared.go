package transport

import (
	"context"
	"errors"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/waist"
)

// sharedSession is what a session held without exclusion has more than one held exclusively (S-326).
type sharedSession struct {
	token  fsm.LockToken // the session token; it goes to the client and nowhere else (S-335)
	stop   context.CancelFunc
	unsent []fsm.LockToken // locked for this receiver and not sent to it
	unsure bool            // there may be more of these
}

// watchLoss waits for the end of the session lock, for the client may ask for nothing meanwhile (S-330).
func (h *heldSession) watchLoss() {
	h.c.onLoop()
	ctx, cancel := context.WithCancel(h.c.ctx)
	h.shared.stop = cancel
	r := h.c.s.waist.NewReceiver(h.l.desc, fsm.Main, []int{h.share})
	cmd := &fsm.WatchSession{Session: h.proof, Wait: fsm.Millis(h.c.cfg.LockWait.Milliseconds())}
	h.c.spawn(func() func() {
		defer cancel()
		defer r.Retire()
		for {
			out, err := r.Receive(ctx, cmd)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil && out.Refusal == fsm.SessionLockLost:
				return h.lost
			case err == nil && out.Refusal == fsm.None:
			default: // the entity is disabled or gone, which ends the link by itself, or not to be reached
				if !waist.Sleep(ctx, recheckPause) {
					return nil
				}
			}
		}
	})
}

// unsent notes that a message locked for the receiver was not sent, and could not be given back either
// because the session is another receiver's.
func (h *heldSession) unsent(token fsm.LockToken, why fsm.Refusal, err error) {
	h.c.onLoop()
	if h.shared == nil {
		return
	}
	if err != nil {
		h.shared.unsure = true
	}
	if err == nil && why == fsm.SessionLockLost {
		h.shared.unsent = append(h.shared.unsent, token)
	}
}

// unsure notes that nobody knows what a receive has locked.
func (h *heldSession) unsure(err error) {
	h.c.onLoop()
	if h.shared != nil && errors.Is(err, fsm.ErrUnknown) {
		h.shared.unsure = true
	}
}

// leave completes the command that gives the session back. If the session was taken over, it says what
// this receiver was not sent (S-333).
func (s *sharedSession) leave(cmd *fsm.ReleaseSession) {
	if s.stop != nil {
		s.stop()
	}
	cmd.Unsent, cmd.Unsure = s.unsent, s.unsure
}
