package transport

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/waist"
)

// sessionKey names a message session.
type sessionKey struct {
	entity fsm.EntityID
	id     string
}

// heldSession is a message session whose lock a link of this connection holds.
type heldSession struct {
	l        *link
	c        *conn
	key      sessionKey
	proof    fsm.SessionProof
	share    int
	until    fsm.Wall
	pump     *pump
	alarm    *time.Timer
	leaving  bool
	released bool
	doubted  bool           // the lock may have ended before its time
	shared   *sharedSession // nil if it is held exclusively
}

// wantedSession is what a receiver's filter asks for.
type wantedSession struct {
	id     amqp.Opt[string] // absent asks for the next session
	shared bool             // without exclusion (S-326)
	token  fsm.LockToken    // of the session that is to be taken over, zero for none
}

const (
	// timeoutProperty is how long a client waits for the next session (amqp-protocol.md 6.3).
	timeoutProperty = "com.microsoft:timeout"
	// lockedUntilProperty tells a session receiver when its lock ends, in .NET ticks (G16).
	lockedUntilProperty = "com.microsoft:locked-until-utc"
	// expirySlack is added to a session's end before we ask whether it is over; the partition
	// decides by its own clock, and asking too early asks twice.
	expirySlack = 200 * time.Millisecond
	// recheckPause is the pause between two questions about a session that has not ended, as when
	// it was renewed over another connection.
	recheckPause = 5 * time.Second
)

// acceptWait returns how long the client's attach may wait for a session.
func (l *link) acceptWait() time.Duration {
	l.ch.c.onLoop()
	cfg := l.ch.c.cfg
	v, ok := l.asked.Properties.Get(timeoutProperty)
	if !ok {
		return cfg.AcceptWait
	}
	ms, ok := v.Int64()
	if !ok || ms < 0 {
		return cfg.AcceptWait
	}
	return min(time.Duration(min(ms, 1<<40))*time.Millisecond, cfg.MaxAcceptWait)
}

// acceptSession takes the lock of a session; the attach is answered when that is decided.
func (l *link) acceptSession(f wantedSession) {
	l.ch.c.onLoop()
	c, d := l.ch.c, l.desc
	r := c.s.waist.NewReceiver(d, fsm.Main, waist.AllShares(d))
	var named waist.Pump
	key := fsm.Key{Entity: d.ID, By: fsm.ByText, Text: f.id.Value}
	wait := l.acceptWait()
	ctx, cancel := context.WithCancel(c.ctx)
	l.cancel = cancel
	if f.id.Set {
		named = c.s.waist.NewPump()
	}
	c.spawn(func() func() {
		defer cancel()
		var out fsm.Outcome
		var err error
		cmd := &fsm.AcceptSession{ID: f.id.Value, Next: !f.id.Set, Shared: f.shared, Presented: f.token}
		if f.id.Set { // RUL-18: accept by id does not wait
			ctx, stop := context.WithTimeout(ctx, c.cfg.ProposeTimeout)
			defer stop()
			out, err = c.s.waist.Propose(ctx, &named, key, cmd)
			c.s.waist.Retire(&named, key)
		} else {
			cmd.Wait = fsm.Millis(wait.Milliseconds())
			out, err = r.Receive(ctx, cmd)
			r.Retire()
		}
		return func() { l.accepted(out, err) }
	})
}

// accepted handles the answer to an accept.
func (l *link) accepted(out fsm.Outcome, err error) {
	l.ch.c.onLoop()
	c := l.ch.c
	won := err == nil && out.Refusal == fsm.None && !out.Session.Token.IsZero()
	if !l.undecided() {
		if won { // S-42: nobody is there to hear of it
			l.hold(out).release(true, nil)
		}
		return
	}
	l.ch.touch()
	switch {
	case won:
	case err != nil:
		c.fault(l.ch, l, &linkError{siteUnavailable, c.s.errorOf(err, l.addr.path())})
		return
	case out.Refusal == fsm.None:
		c.fault(l.ch, l, &linkError{siteRefused, c.s.refusal(fsm.NoSession, "", l.addr.path())})
		return
	default:
		c.fault(l.ch, l, &linkError{siteRefused, c.s.refusal(out.Refusal, out.Detail, l.addr.path())})
		return
	}
	h := l.hold(out)
	c.sessions[h.key] = h
	reply := l.reply()
	reply.Source = h.echo()
	w := amqp.BeginSymbolMap(nil)
	w.Long(lockedUntilProperty, amqp.Timestamp(h.until).Ticks())
	reply.Properties = w.End()
	l.acceptWith(newEgress(l, h), reply)
}

// hold makes an accepted session ours.
func (l *link) hold(out fsm.Outcome) *heldSession {
	l.ch.c.onLoop()
	h := &heldSession{
		l: l, c: l.ch.c, key: sessionKey{l.desc.ID, out.Session.ID},
		proof: out.Session, until: out.LockedUntil, pump: l.ch.c.newPump(),
		share: max(0, l.desc.ShareOf(out.Session.Token.Prefix())),
	}
	if !out.Shared.IsZero() {
		h.shared = &sharedSession{token: out.Shared}
	}
	return h
}

// echo is the source of the reply, with the session that was accepted.
func (h *heldSession) echo() *amqp.Source {
	h.c.onLoop()
	if h.shared != nil {
		return h.l.asked.Source.EchoShared(h.key.id, amqp.UUID(h.shared.token))
	}
	return h.l.asked.Source.Echo(amqp.Some(h.key.id))
}

// watch has us look when the lock should have ended. A client that waits for messages without credit under way would
// not hear of it otherwise (S-47).
func (h *heldSession) watch() {
	h.c.onLoop()
	if h.shared != nil {
		h.watchLoss()
		return
	}
	h.setAlarm(time.Until(time.UnixMilli(int64(h.until))) + expirySlack)
}

func (h *heldSession) setAlarm(d time.Duration) {
	h.c.onLoop()
	if h.alarm != nil {
		h.alarm.Stop()
	}
	if h.leaving {
		return
	}
	h.alarm = time.AfterFunc(max(d, expirySlack), func() { h.c.post(h.check) })
}

// renewed notes a renewal made over this connection.
func (h *heldSession) renewed(until fsm.Wall) {
	h.c.onLoop()
	h.until = until
	if h.shared == nil {
		h.watch()
	}
}

// check asks the partition whether the lock is still held.
func (h *heldSession) check() {
	h.c.onLoop()
	if h.leaving || h.l.state != linkAttached {
		return
	}
	if left := time.Until(time.UnixMilli(int64(h.until))) + expirySlack; left > expirySlack && !h.doubted {
		h.setAlarm(left)
		return
	}
	ctx, cancel := context.WithTimeout(h.c.ctx, h.c.cfg.ProposeTimeout)
	key := h.shareKey()
	h.c.spawn(func() func() {
		defer cancel()
		a, err := h.c.s.broker.Query(ctx, key, &fsm.GetSessionState{Session: h.proof})
		return func() {
			switch {
			case err == nil && a.Refusal == fsm.SessionLockLost:
				h.lost()
			case !h.leaving && h.l.state == linkAttached:
				h.doubted = h.doubted && err != nil
				h.setAlarm(recheckPause)
			}
		}
	})
}

// SessionReleased has whoever holds the session over this node ask whether the lock is still held, because an
// operator took it from its holder (S-54).
func (s *Server) SessionReleased(entity fsm.EntityID, session string) {
	key := sessionKey{entity, session}
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range conns {
		c.post(func() {
			if h := c.sessions[key]; h != nil && h.shared == nil {
				h.doubted = true
				h.check()
			}
		})
	}
}

// lost ends the link because the session is held no more.
func (h *heldSession) lost() {
	h.c.onLoop()
	if h.leaving || h.l.state != linkAttached {
		return
	}
	h.l.ch.touch()
	h.c.fault(h.l.ch, h.l, &linkError{siteRefused, h.c.s.refusal(fsm.SessionLockLost, "", h.l.addr.path())})
}

func (h *heldSession) shareKey() fsm.Key {
	h.c.onLoop()
	return waist.ShareKey(h.l.desc, fsm.Main, h.share)
}

// release gives the session back; then, if any, runs afterwards. Orderly leaves delivery counts as
// they are (S-49, S-52).
func (h *heldSession) release(orderly bool, then func()) {
	h.c.onLoop()
	if h.leaving {
		return
	}
	h.leaving = true
	if h.alarm != nil {
		h.alarm.Stop()
	}
	if h.c.sessions[h.key] == h {
		delete(h.c.sessions, h.key)
	}
	cmd := &fsm.ReleaseSession{Session: h.proof, Orderly: orderly}
	if h.shared != nil {
		h.shared.leave(cmd)
	}
	h.pump.send(h.c.ctx, h.c.cfg.ProposeTimeout, h.shareKey(), cmd, func(_ fsm.Outcome, err error) {
		if err != nil {
			// It ends by its own deadline.
			h.c.log.Debug("release session", "entity", h.l.desc.Name, "error", err)
		}
		h.released = true
		h.pump.retire(h.shareKey())
		h.l.ch.touch()
		if then != nil {
			then()
		}
	})
}

// sessionFilter reads the session that the receiver asks for, if any. Any other filter is refused: JMS
// clients do not look whether theirs is in place, and would take what they have not selected.
func (l *link) sessionFilter() (f wantedSession, wanted bool, err error) {
	l.ch.c.onLoop()
	filters := amqp.ReadMap(l.asked.Source.Filter)
	for {
		k, v, ok := filters.Next()
		if !ok {
			break
		}
		if key, _ := k.Text(); key != string(amqp.FilterSession) && key != string(amqp.FilterShared) && !v.IsNull() {
			return f, false, linkFault(siteAttach, amqp.ConditionNotImplemented, "The filter %q is not supported. "+
				"What a receiver gets is selected by a rule of its subscription.", refusal.Clip(key))
		}
	}
	if err := filters.Err(); err != nil {
		return f, false, linkFault(siteAttach, amqp.ConditionInvalidField, "filter: %v", err)
	}
	exclusive, wanted, err := l.asked.Source.SessionFilter()
	if err != nil {
		return f, false, linkFault(siteAttach, amqp.ConditionInvalidField, "filter: %v", err)
	}
	shared, without, err := l.asked.Source.SharedFilter()
	switch {
	case err != nil:
		return f, false, linkFault(siteAttach, amqp.ConditionInvalidField, "filter %s: %v", amqp.FilterShared, err)
	case without && wanted:
		return f, false, linkFault(siteAttach, amqp.ConditionInvalidField, "A receiver asks for a session with %s or "+
			"with %s, not with both.", amqp.FilterSession, amqp.FilterShared)
	case without && shared.Token.Set && !shared.SessionID.Set:
		return f, false, linkFault(siteAttach, amqp.ConditionInvalidField, "A session token needs the id of its session.")
	case without:
		return wantedSession{id: shared.SessionID, shared: true, token: fsm.LockToken(shared.Token.Value)}, true, nil
	}
	return wantedSession{id: exclusive.SessionID}, wanted, nil
}

// over reports whether the hold has ended as far as this node can tell.
func (h *heldSession) over() bool {
	h.c.onLoop()
	return h.leaving || h.released || h.until < nowWall()
}
