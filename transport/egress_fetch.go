package transport

import (
	"context"
	"errors"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/waist"
)

const (
	// lockMargin is how much of its lock a delivery must have left to be worth sending.
	lockMargin fsm.Millis = 1_000
	// turnWait is how long a receive-and-delete fetch may keep frames of the client's window that other
	// links of the AMQP session need.
	turnWait = time.Second
)

// fetch asks the entity for messages if the client wants some, and ends a drain if there are none. It
// asks for no more than can go onto the wire now: no more than link credit, session window and socket
// take (RUL-28).
func (e *egress) fetch() {
	e.c.onLoop()
	if e.closing || e.c.phase >= phaseClosing || e.fetching || e.out.now != nil || e.returning > 0 {
		return // whoever gives back and asks for more gets the same one again: it is next (S-58)
	}
	if e.out.drain && (e.out.credit == 0 || e.tried && len(e.queue) == 0) {
		e.out.drained()
		return
	}
	if e.out.credit == 0 || len(e.queue) > 0 {
		return
	}
	if e.c.queuedBytes >= e.c.cfg.MaxConnBytes && !e.out.drain {
		e.c.starved = append(e.c.starved, &e.out)
		return
	}
	want := min(int(e.out.credit), int(e.c.cfg.MaxLock))
	if !e.remove {
		if e.unsettled >= e.c.cfg.MaxUnsettled {
			e.unsettled -= e.l.ch.prune(e)
		}
		want = min(want, e.c.cfg.MaxUnsettled-e.unsettled)
	}
	if want <= 0 { // the next settlement calls again
		if e.out.drain {
			e.out.drained()
		}
		return
	}
	if e.l.ch.room(&e.out) == 0 || e.c.outputFull() {
		e.out.ready() // asks when there is room
		return
	}
	lock := fsm.Lock{
		Session: e.proof(), Max: uint32(want), MaxBytes: e.c.cfg.MaxLockBytes, Delete: e.remove,
		Wait: fsm.Millis(e.c.cfg.LockWait / time.Millisecond),
	}
	if e.out.drain {
		lock.Wait = 0
	} else if !e.pace.limit(&lock) {
		return // a disposition, a flow or the pace's own timer calls again
	}
	if e.remove {
		e.fitWhole(&lock)
	} else {
		e.fit(&lock)
	}
	e.take(&lock)
}

// framePayload is how many bytes of a message one transfer to the client carries.
func (c *conn) framePayload() uint32 { return c.peerFrame - transferOverhead }

// fit shortens a fetch to what the client's window and the socket take. Deliveries that turn out to be too many go
// back.
func (e *egress) fit(lock *fsm.Lock) {
	e.c.onLoop()
	room := e.l.ch.room(&e.out)
	lock.Max = min(lock.Max, room)
	lock.MaxBytes = uint32(min(uint64(lock.MaxBytes), uint64(room)*uint64(e.c.framePayload()),
		uint64(max(1, e.c.cfg.MaxWriteBytes-len(e.c.out)))))
}

// fitWhole shortens a fetch to what the client's window takes for certain, and keeps these frames for
// it: what is removed cannot go back. Links that remove share what is free; when they have it all, each
// keeps it for a short time only.
func (e *egress) fitWhole(lock *fsm.Lock) {
	e.c.onLoop()
	ch, payload := e.l.ch, e.c.framePayload()
	free := ch.room(&e.out)
	share := max(1, free/max(1, ch.removers))
	frames := lock.Max + lock.MaxBytes/payload + 1
	if frames > share {
		frames = share
		lock.Max = min(lock.Max, max(1, share/2))
		lock.MaxBytes = max(1, share-lock.Max) * payload
	}
	e.out.keep(frames)
	if free-frames < ch.removers {
		lock.Wait = min(lock.Wait, fsm.Millis(turnWait/time.Millisecond))
	}
}

func (e *egress) take(lock *fsm.Lock) {
	e.c.onLoop()
	e.fetching, e.void, e.asked, e.parked = true, false, lock.Max, lock.Wait > 0
	began := time.Now()
	took := func(out fsm.Outcome, err error) {
		e.fetching = false
		e.l.ch.touch()
		e.took(lock, began, out, err)
	}
	wait := time.Duration(lock.Wait) * time.Millisecond
	if e.begun.begin(e.c, wait+e.c.cfg.ProposeTimeout, func(ended func(fsm.Outcome, error, waist.Rest)) (waist.Cancel, bool) {
		return e.receiver.Begin(lock, ended)
	}, took) {
		e.cancel = func() { e.begun.giveUp(context.Canceled) }
		return
	}
	ctx, cancel := context.WithCancel(e.c.ctx)
	e.cancel = cancel
	e.c.spawn(func() func() {
		defer cancel()
		out, err := e.receiver.Receive(ctx, lock)
		return func() { took(out, err) }
	})
}

// took handles what a fetch brought.
func (e *egress) took(lock *fsm.Lock, began time.Time, out fsm.Outcome, err error) {
	e.c.onLoop()
	if e.session != nil {
		e.session.unsure(err)
	}
	if e.closing {
		e.tookLate(out.Locked)
		e.finish()
		return
	}
	if cause := e.ended(out, err); cause != nil {
		e.giveBack(out.Locked)
		e.c.fault(e.l.ch, e.l, cause)
		return
	}
	if e.void {
		e.giveBack(out.Locked)
		out.Locked = nil
	} else {
		e.pace.took(lock, out.Locked)
		if lock.Wait == 0 && len(out.Locked) == 0 {
			e.tried = true
		}
	}
	if !e.remove {
		out.Locked = e.unspoiled(began, out.Locked)
	}
	if !e.remove && e.c.queuedBytes >= e.c.cfg.MaxConnBytes {
		// Other links hold all that a client that does not read may have; nothing gets lost.
		e.giveBack(out.Locked)
		out.Locked = nil
		e.tried = true // a drain is over with that
	}
	e.queue = out.Locked
	if room := int(e.out.credit); !e.remove && len(e.queue) > room {
		e.giveBack(e.queue[room:]) // the client took credit back meanwhile
		e.queue = e.queue[:room:room]
	}
	for i := range e.queue {
		e.c.queuedBytes += len(e.queue[i].Body)
	}
	if len(e.queue) > 0 {
		e.out.ready()
		return
	}
	if e.remove { // behind those that wait for the frames that were kept
		e.out.keep(0)
		e.out.ready()
		return
	}
	e.fetch()
}

// tookLate handles what a fetch brought for a link that has ended meanwhile.
func (e *egress) tookLate(ds []fsm.Delivery) {
	e.c.onLoop()
	if !e.remove {
		e.giveBack(ds)
		return
	}
	e.queue = ds
	for i := range ds {
		e.c.queuedBytes += len(ds[i].Body)
	}
	e.sendRest()
}

// unspoiled gives back deliveries whose locks were over, or nearly, before the answer came, and returns the others
// (S-148). The partition's leader has set the times by a clock of its own. So they are looked at only if the fetch
// has taken as long as a lock.
func (e *egress) unspoiled(began time.Time, ds []fsm.Delivery) []fsm.Delivery {
	e.c.onLoop()
	if len(ds) == 0 || time.Since(began) < time.Duration(e.desc.LockDuration-lockMargin)*time.Millisecond {
		return ds
	}
	limit := nowWall().After(lockMargin)
	good := 0
	for good < len(ds) && (ds[good].LockedUntil == 0 || ds[good].LockedUntil > limit) {
		good++ // they were locked together, or in order
	}
	e.giveBack(ds[good:])
	return ds[:good:good]
}

// ended returns why the link must end, nil if it goes on. The receiver has waited for an answer that only means "not
// now". In a session an unknown outcome ends the link: messages may be locked that nobody will send, and those behind
// them must not overtake them.
func (e *egress) ended(out fsm.Outcome, err error) error {
	e.c.onLoop()
	switch {
	case err != nil && e.c.ctx.Err() == nil && (waist.IsFinal(err) || e.receiver.Sure && errors.Is(err, fsm.ErrUnknown)):
		return &linkError{siteRefused, e.c.s.errorOf(err, e.l.addr.path())}
	case err != nil || out.Refusal == fsm.None || out.Refusal == fsm.NoSession:
		return nil
	}
	return &linkError{siteRefused, e.c.s.refusal(out.Refusal, out.Detail, e.l.addr.path())}
}
