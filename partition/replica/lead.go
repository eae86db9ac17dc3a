package replica

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// run is the proposer's goroutine. It ends when closed is closed.
func (p *proposer) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer func() { p.stepDown(p.end()) }()
	for {
		timer.Stop()
		if p.observe() {
			if !p.await(timer) {
				return
			}
			if p.round() {
				continue
			}
			if next := p.ticks.next(); next > 0 {
				timer.Reset(next)
			}
		}
		select {
		case <-p.closed:
			return
		case <-p.raft.LeaderCh():
		case <-p.signal:
		case <-timer.C:
		}
	}
}

// astray reports whether leadership is not what the proposer takes it for. Raft's channel keeps only the latest news, so
// it is a hint, and the term tells one leadership from the next.
func (p *proposer) astray() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leading != (p.raft.State() == raft.Leader) || p.leading && p.ledTerm != 0 && p.ledTerm != p.raft.CurrentTerm()
}

// observe follows raft's state and reports whether this replica leads and may propose.
func (p *proposer) observe() bool {
	select {
	case <-p.closed:
		return false
	default:
	}
	leads := p.raft.State() == raft.Leader
	term := p.raft.CurrentTerm()
	// A stalled disk dismisses a leader that raft may keep; see leave. It begins anew then.
	if p.term != 0 && (!leads || term != p.term || !p.accepting()) {
		p.stepDown(nil)
	}
	if !leads || p.stalled() {
		return false
	}
	if p.term == 0 {
		return p.lead(term)
	}
	return true
}

// lead begins a leadership with BecomeLeader: when it is applied, everything of earlier terms is,
// and its index fences their late entries off (A15).
func (p *proposer) lead(term uint64) bool {
	p.mu.Lock()
	p.leading = true
	p.mu.Unlock()
	p.term = term
	c := p.machine.clocks()
	p.stamps.lead(c.wall, c.lease)
	e := &fsm.Entry{Requests: []fsm.Request{{Command: &fsm.BecomeLeader{Node: p.cfg.Node}}}}
	p.stamps.stamp(e)
	// Lease time stands still until the leadership is applied: nobody could renew meanwhile.
	e.Lease = c.lease
	a, err := p.commit(encode(e))
	if err != nil {
		p.log.Warn("leadership did not begin", "term", term, "error", err)
		p.failed(err)
		return false
	}
	c = p.machine.clocks()
	p.stamps.lead(c.wall, c.lease)
	p.ticks.reset(time.Now())
	p.marked = time.Now() // a leadership begins with other work
	p.mu.Lock()
	p.epoch = a.index
	p.machine.ledEpoch.Store(a.index)
	p.ledTerm, p.ledEpoch = term, a.index
	p.mu.Unlock()
	p.log.Info("leading", "term", term, "epoch", a.index)
	p.waits.leaderChanged()
	return true
}

// stepDown ends a leadership, or with a not-nil err the proposer.
func (p *proposer) stepDown(err error) {
	p.dismiss(err)
	if p.term != 0 {
		p.log.Info("leading no more", "term", p.term)
	}
	p.term = 0
	p.backpressure.reset()
	p.linger.reset()
	p.waits.leaderChanged()
}

// dismiss answers everybody: what is in the log has an unknown outcome, the rest never happened.
// Nothing is accepted until the next leadership begins, or ever, if err is not nil.
func (p *proposer) dismiss(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	never := err
	if err != nil {
		p.ending = err
	} else {
		never = p.notLeader()
	}
	p.leading, p.epoch = false, 0
	// The places go with the parking. So a caller that hears of it later gives back no place of the next leadership.
	for _, c := range p.riding {
		c.placed = false
		c.finish(fsm.Outcome{}, fmt.Errorf("leadership ended: %w", fsm.ErrUnknown))
	}
	for _, c := range p.pending {
		c.placed = false
		c.finish(fsm.Outcome{}, never)
	}
	for _, q := range p.parking.queues {
		for e := q.Front(); e != nil; e = e.Next() {
			c := e.Value.(*call)
			c.placed = false
			c.finish(fsm.Outcome{}, never)
		}
	}
	p.riding, p.pending, p.bytes, p.pendingWakes = nil, nil, 0, nil
	p.parking = newParking()
	p.knownEmpty = map[fsm.WaitKey]struct{}{}
	p.gone = map[fsm.EntityID]struct{}{}
}

// leave dismisses everybody because the disk does not answer (R1) or, with a not-nil err, because the replica ends. The goroutine
// that waits for raft finds out when it comes back.
func (p *proposer) leave(err error) {
	p.dismiss(err)
	p.waits.leaderChanged()
}

// errFenced is the ending of an entry that a newer leadership's BecomeLeader preceded in the log.
var errFenced = errors.New("entry of a deposed leadership")

// round proposes one entry with whatever waits, and answers. It reports false if there was nothing
// to do, or if the leadership is over.
func (p *proposer) round() bool {
	// Callers that the last entry has answered go first. Most have more to ask, and would do so just after this entry
	// is closed, so that each would ride in every other entry only.
	runtime.Gosched()
	tick := p.ticks.due(p.machine.clocks(), &p.stamps)
	p.encoding.Lock()
	e := p.collect(tick)
	if e == nil {
		p.encoding.Unlock()
		return false
	}
	p.stamps.stamp(e)
	b := encode(e)
	p.encoding.Unlock()
	started := time.Now()
	a, err := p.commitMarked(b, p.mark(started))
	if err != nil {
		p.failed(err)
		return false
	}
	now := time.Now()
	p.ticks.reset(now)
	if p.cfg.OnCommit != nil {
		p.cfg.OnCommit(now.Sub(started))
	}
	p.linger.round(contents(e), now)
	p.complete(e, a, started)
	if !p.accepting() {
		p.stepDown(nil) // dismissed while raft was busy: begin anew
		return false
	}
	return true
}

func (p *proposer) accepting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leading
}

// encode returns the bytes of e in a buffer that is never used again, because raft, its cache and the state machine
// keep it.
func encode(e *fsm.Entry) []byte {
	size := 128
	for i := range e.Requests {
		size += e.Requests[i].Command.Weight()
	}
	return fsm.AppendEntry(make([]byte, 0, size), e)
}

// commit gives an encoded entry to raft and waits until it is applied here.
func (p *proposer) commit(b []byte) (*applied, error) { return p.commitMarked(b, nil) }

// mark returns the extension of the next entry: that of a checkpoint if one is due or was asked for.
func (p *proposer) mark(now time.Time) []byte {
	if !p.checkpoint.Swap(false) && !p.machine.digests.due(p.marked, p.cfg.CheckpointEvery) {
		return nil
	}
	p.marked = now
	return checkpointMark
}

func (p *proposer) commitMarked(b, extension []byte) (*applied, error) {
	p.note(time.Now())
	defer p.note(time.Time{})
	future := p.raft.ApplyLog(raft.Log{Data: b, Extensions: extension}, 0)
	done := make(chan error, 1)
	// Raft can forget a future when it shuts down; then only this goroutine waits for ever.
	go func() { done <- future.Error() }()
	select {
	case err := <-done:
		if err != nil {
			return nil, err
		}
	case <-p.closed:
		return nil, raft.ErrRaftShutdown
	}
	a, ok := future.Response().(*applied)
	if !ok {
		return nil, fmt.Errorf("entry was answered with %T", future.Response())
	}
	if len(a.result.Outcomes) > 0 && a.result.Outcomes[0].Refusal == fsm.NotLeader {
		return nil, errFenced
	}
	return a, nil
}

func (p *proposer) note(given time.Time) {
	p.mu.Lock()
	p.given = given
	p.mu.Unlock()
}

// oldest returns for how long the entry that is under way has been.
func (p *proposer) oldest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given.IsZero() {
		return 0
	}
	return time.Since(p.given)
}

// failed ends the riding calls according to what the error says about the log, and the leadership.
func (p *proposer) failed(err error) {
	never := errors.Is(err, raft.ErrNotLeader) || errors.Is(err, errFenced) ||
		errors.Is(err, raft.ErrEnqueueTimeout) ||
		errors.Is(err, raft.ErrLeadershipTransferInProgress)
	p.mu.Lock()
	for _, c := range p.riding {
		if never {
			c.finish(fsm.Outcome{}, p.notLeader())
		} else {
			c.finish(fsm.Outcome{}, fmt.Errorf("entry was not answered (%w): %w", err, fsm.ErrUnknown))
		}
	}
	p.riding = nil
	p.mu.Unlock()
	p.log.Debug("entry failed", "error", err)
	if errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		p.transferring()
		return
	}
	p.ticks.untransferred()
	select {
	case <-p.closed:
		p.stepDown(p.end())
		return
	default:
	}
	p.stepDown(nil)
	// A fenced or failed entry does not say that raft stepped down; a new BecomeLeader settles it.
	p.pause(failurePause)
}

// failurePause keeps a leader whose entries fail from spinning.
const failurePause = 20 * time.Millisecond

// transferring waits out a leadership transfer. A transfer that never ends is a known wedge of
// raft (R10): the replica is opened anew.
func (p *proposer) transferring() {
	if p.ticks.transferring(time.Now()) > 2*p.cfg.ElectionTimeout {
		p.stuck(errors.New("raft is transferring its leadership for too long"))
	}
	p.pause(failurePause)
}

func (p *proposer) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.closed:
	}
	p.poke()
}
