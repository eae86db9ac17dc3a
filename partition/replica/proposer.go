package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// proposer packs the requests of all callers into entries while this replica leads (A4). Calls that arrive while an
// entry is in flight ride in the next one: load makes batches, not queues. One entry is in flight at a time, and one
// goroutine, run, owns everything but the fields under mu.
type proposer struct {
	cfg     *Config
	raft    *raft.Raft
	machine *machine
	waits   *waiters
	log     hclog.Logger
	stuck   func(error)  // raft no longer takes entries although it leads
	end     func() error // why nothing is accepted once closed is closed
	stalled func() bool  // the disk does not answer
	room    *Room        // of the disk

	stamps stamper
	ticks  ticker
	linger linger
	term   uint64 // of the leadership served, 0 while not leading
	marked time.Time
	// checkpoint asks for a digest behind the next entry.
	checkpoint atomic.Bool
	hooks      atomic.Pointer[Hooks]

	signal chan struct{} // something to do; capacity 1
	closed chan struct{}

	// encoding is held while an entry is encoded: commands are their callers' memory, so a caller
	// that gives up waits until the bytes are copied.
	encoding sync.Mutex

	mu      sync.Mutex
	leading bool
	epoch   uint64 // index of this leadership's BecomeLeader, 0 until it is applied
	// ledTerm and ledEpoch are those of the last leadership that was applied, also when it is over.
	ledTerm, ledEpoch uint64
	ending            error // why nothing is accepted any more
	pending           []*call
	lingering         bool // a round waits for more
	bytes             int
	riding            []*call
	parking           parking
	pendingWakes      []fsm.WaitKey
	knownEmpty        map[fsm.WaitKey]struct{} // keys whose empty answers need no entry
	traffic           traffic
	backpressure      backpressure
	// gone are entities dropped under this leadership. A description that was on its way when its
	// entity was deleted must not bring it back: ids are never used again (S-259).
	gone      map[fsm.EntityID]struct{}
	barrierAt time.Time // when the last entry was proposed that has been applied
	given     time.Time // when the entry that is under way was given to raft; zero without one
}

// maxGone bounds the remembered ids. The next reconciliation drops what comes back beyond that.
const maxGone = 1 << 16

// maxPlain bounds the remembered keys; forgetting them costs an entry each.
const maxPlain = 4096

func newProposer(cfg *Config, r *raft.Raft, m *machine, w *waiters, log hclog.Logger,
	stalled func() bool, stuck func(error), end func() error) *proposer {
	return &proposer{
		cfg: cfg, raft: r, machine: m, waits: w, log: log, stalled: stalled, stuck: stuck, end: end,
		room: &Room{}, stamps: stamper{clock: cfg.Clock}, linger: linger{length: cfg.RoundLinger},
		signal: make(chan struct{}, 1), closed: make(chan struct{}),
		parking: newParking(), knownEmpty: map[fsm.WaitKey]struct{}{},
		gone: map[fsm.EntityID]struct{}{}, backpressure: backpressure{onHold: cfg.OnHold, floodFrom: float64(cfg.FloodFrom)},
	}
}

func (p *proposer) poke() {
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// propose brings one request into the log and returns what it did, or its error with the meaning
// of fsm/errors.go.
func (p *proposer) propose(ctx context.Context, req fsm.Request) (fsm.Outcome, error) {
	c := newCall(req, time.Now())
	c.answer = make(chan answer, 1)
	if c.size > p.cfg.MaxCommandBytes {
		return fsm.Outcome{
			Refusal: fsm.MessageSizeExceeded,
			Detail:  fmt.Sprintf("%d bytes, maximum %d", c.size, p.cfg.MaxCommandBytes),
		}, nil
	}
	if err := p.accept(c); err != nil {
		return fsm.Outcome{}, err
	}
	return p.wait(ctx, c)
}

// barrier returns when an entry proposed after its call has been applied (A16). A reserved one may use the quota that
// is kept from clients (A21).
func (p *proposer) barrier(ctx context.Context, reserved bool) error {
	c := &call{query: true, size: 1, reserved: reserved, answer: make(chan answer, 1)}
	if err := p.accept(c); err != nil {
		return err
	}
	_, err := p.wait(ctx, c)
	return err
}

// accept queues c, or says why not; an error means that nothing happened.
func (p *proposer) accept(c *call) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ending != nil:
		return p.ending
	case !p.leading:
		return p.notLeader()
	}
	requests, bytes := p.cfg.MaxPendingRequests, p.cfg.MaxPendingBytes
	if c.reserved {
		requests += p.cfg.ReservedRequests
		bytes += p.cfg.ReservedBytes
	}
	if len(p.pending) >= requests || p.bytes+c.size > bytes {
		return fmt.Errorf("%d requests of %d bytes wait for the log: %w",
			len(p.pending), p.bytes, fsm.ErrBusy)
	}
	if c.parkable {
		if p.parking.count >= p.cfg.MaxParked {
			return fmt.Errorf("%d requests are parked: %w", p.parking.count, fsm.ErrBusy)
		}
		if err := p.enterLocked(c); err != nil {
			return err
		}
		p.takeOverLocked(c)
	}
	p.pending = append(p.pending, c)
	p.bytes += c.size
	if send, is := c.req.Command.(*fsm.Enqueue); is && send.Late != nil {
		send.Late.OnMore(p.poke)
	}
	if !p.quietLocked(c) {
		p.poke()
	}
	return nil
}

// takeOverLocked makes c the call of its request id. An earlier call with the same id belongs to a
// connection that its caller no longer listens to.
func (p *proposer) takeOverLocked(c *call) {
	if c.req.ID.IsZero() {
		return
	}
	if old := p.parking.byID[c.req.ID]; old != nil && old.state == callParked {
		p.parking.remove(old)
		old.finish(fsm.Outcome{}, errAskedAgain)
	}
	p.parking.byID[c.req.ID] = c
}

// errAskedAgain ends a call whose request came once more: its caller listens to the later one.
var errAskedAgain = fmt.Errorf("asked again elsewhere: %w", fsm.ErrUnknown)

func (p *proposer) notLeader() error {
	_, id := p.raft.LeaderWithID()
	return &NotLeaderError{Hint: fsm.NodeID(id)}
}

// NotLeaderError wraps fsm.ErrNotLeader and says who may lead; the hint may be empty.
type NotLeaderError struct{ Hint fsm.NodeID }

func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("%v (leader may be %q)", fsm.ErrNotLeader, string(e.Hint))
}

func (e *NotLeaderError) Unwrap() error { return fsm.ErrNotLeader }

// GoneWait bounds how long a caller that has given up waits to hear what it was given.
const GoneWait = 5 * time.Second

// wait waits for the answer, the end of a parked request's wait, or the caller's end.
func (p *proposer) wait(ctx context.Context, c *call) (fsm.Outcome, error) {
	defer p.forget(c)
	var over <-chan time.Time
	if c.parkable {
		t := time.NewTimer(time.Until(c.until))
		defer t.Stop()
		over = t.C
	}
	for {
		select {
		case a := <-c.answer:
			return a.outcome, a.err
		case <-over:
			over = nil
			p.waited(c)
		case <-ctx.Done():
			return p.abandon(ctx, c)
		}
	}
}

// waited ends the wait of a call.
func (p *proposer) waited(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.over = true
	if c.state == callParked {
		p.parking.remove(c)
		c.finish(c.nothing(), nil)
	}
}

// abandon ends a call whose caller is gone: what did not enter the log never will; what did is
// answered if it takes something, so that it can be given back (A18).
func (p *proposer) abandon(ctx context.Context, c *call) (fsm.Outcome, error) {
	p.withdraw(c, ctx.Err())
	p.encoded()

	var gone <-chan time.Time
	if command := c.req.Command; command != nil && command.Traits().Has(fsm.Takes) { // a barrier has none
		t := time.NewTimer(GoneWait)
		defer t.Stop()
		gone = t.C
	} else {
		expired := make(chan time.Time)
		close(expired)
		gone = expired
	}
	select {
	case a := <-c.answer:
		return a.outcome, a.err
	case <-gone:
	}
	select {
	case a := <-c.answer:
		return a.outcome, a.err
	default:
		return fsm.Outcome{}, fmt.Errorf("%w: %w", fsm.ErrUnknown, ctx.Err())
	}
}

// withdraw ends a call with an error if it is not in the log, and reports whether it has ended.
func (p *proposer) withdraw(c *call, cause error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.over = true
	switch c.state {
	case callParked:
		p.parking.remove(c)
		c.finish(fsm.Outcome{}, cause)
	case callPending:
		p.pending = slices.DeleteFunc(p.pending, func(o *call) bool { return o == c })
		p.bytes -= c.size
		c.finish(fsm.Outcome{}, cause)
	}
	return c.state == callDone
}

// encoded returns when no entry is being encoded that was under encoding before the call.
func (p *proposer) encoded() {
	p.encoding.Lock()
	//lint:ignore SA2001 passing through is the point
	p.encoding.Unlock()
}

func (p *proposer) forget(c *call) {
	if !c.parkable {
		return
	}
	p.mu.Lock()
	p.forgetLocked(c)
	p.mu.Unlock()
}

// forgetLocked forgets a call that may have waited.
func (p *proposer) forgetLocked(c *call) {
	p.leaveLocked(c)
	if p.parking.byID[c.req.ID] == c {
		delete(p.parking.byID, c.req.ID)
	}
}

// unpark ends the parked request with that id: its propose returns ErrUnparked. It reports false if
// no such request is parked, because it is in the log, answered, or unknown.
func (p *proposer) unpark(id fsm.RequestID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.parking.byID[id]
	if c == nil {
		return false
	}
	c.over = true
	switch c.state {
	case callParked:
		p.parking.remove(c)
	case callPending:
		p.pending = slices.DeleteFunc(p.pending, func(o *call) bool { return o == c })
		p.bytes -= c.size
	default:
		return false
	}
	c.finish(fsm.Outcome{}, ErrUnparked)
	return true
}

// ErrUnparked ends a proposal that never entered the log because its caller took it back.
var ErrUnparked = errors.New("request was unparked")

// listeners returns entities that somebody waits on, for Tick (A22).
func (p *proposer) listeners() []fsm.EntityID {
	p.mu.Lock()
	ids := make([]fsm.EntityID, 0, len(p.parking.queues))
	for k := range p.parking.queues {
		ids = append(ids, k.Entity)
	}
	p.mu.Unlock()
	ids = append(ids, p.waits.entities()...)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return ids[:min(len(ids), maxListeners)]
}

// maxListeners bounds a Tick; TTL of the entities beyond is swept when somebody receives (S-290).
const maxListeners = 1024

// freshWithin reports whether an entry proposed at most age ago has been applied by this
// leadership.
func (p *proposer) freshWithin(age time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leading && !p.barrierAt.IsZero() && time.Since(p.barrierAt) <= age
}

// led returns the epoch of the present leadership.
func (p *proposer) led() (epoch uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch, p.leading && p.epoch != 0
}
