package replica

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// lagFrom is how long messages must have waited when a receiver gets them, for senders to be looked at. A flow that is
	// held keeps them waiting for about lagKept.
	lagFrom = 60 * time.Millisecond
	lagKept = 30 * time.Millisecond
	// floodBytes is what senders must store in a second to be held, if it is not floodFrom messages. With less they take nothing
	// from receivers.
	floodBytes = 32 << 20
	// watchFor is how long the rates without backpressure are measured, trialFor those with it. A trial begins with settleFor,
	// which does not count.
	watchFor  = 250 * time.Millisecond
	trialFor  = 300 * time.Millisecond
	settleFor = 100 * time.Millisecond
	// holdWorth is how many more messages must be received for each one that is not sent. A measurement may be wrong by
	// holdNoise of the rate of senders.
	holdWorth = 0.2
	holdNoise = 0.05
	// firstRest and longestRest bound the pause after a trial that brought nothing. The pause doubles each time.
	firstRest   = time.Second
	longestRest = time.Minute
	// longestHold is how long one request of a sender is held at most. Without a delivery for so long, receivers are gone.
	longestHold = 250 * time.Millisecond
	// easyAfter is how long no request must have been held for the flow to be forgotten.
	easyAfter = 2 * time.Second
	// maxAhead is how many messages senders may save up.
	maxAhead = 256
	// maxFlows bounds the entities that are looked at.
	maxFlows = 64
)

// backpressure holds senders of an entity back while its receivers get more messages because of that. Senders and
// receivers share processors and disks. A sender that never pauses would take so much of them that messages wait for seconds,
// although there is a receiver for each.
//
// Senders are held by measurement only. While messages wait for long, both rates are measured, and senders are held for
// a trial. They stay held if receivers have gained. A receiver that is slow by itself gains nothing, and slows nobody.
//
// The proposer tells of what is stored and received; many callers of Propose pass. A leadership that ends resets it.
type backpressure struct {
	any       atomic.Int32 // flows; without any of them, nothing here costs anything
	floodFrom float64      // messages in a second
	// onHold is told how long a request was held; nil for nobody.
	onHold func(time.Duration)

	mu    sync.Mutex
	flows []*flow
}

// flow is what senders and receivers of an entity do. Its times are monotonic.
type flow struct {
	to    fsm.EntityID // the entity that takes messages: a queue or a topic
	from  fsm.EntityID // the entity that receivers ask: the queue, or a subscription of the topic
	state flowState
	since time.Time // of the window
	// The messages and bytes of the window.
	sent, bytes, received uint64
	delivered             time.Time     // the last time
	lag                   time.Duration // of the last delivery
	// sends and receives are the rates without backpressure, in messages a second.
	sends, receives float64
	failed          int // windows in a row in which holding brought too little
	rest            time.Duration
	budget          float64 // messages that senders may store now; less than nothing if they were ahead
	waiting         []*sending
	waited          time.Time // when a request was held last
}

type flowState uint8

const (
	flowWatched flowState = iota // rates are measured
	flowSettles                  // senders are held, and rates change
	flowTried                    // senders are held for a trial
	flowHeld                     // senders are held, because that is worth it
	flowRests                    // senders are not held, because that was not worth it
)

// sending is a request that is held.
type sending struct {
	messages func() int
	pass     chan struct{} // closed when it may go on
	left     bool          // it waits no more
}

// stored notes messages that an entity has taken from senders.
func (b *backpressure) stored(to fsm.EntityID, messages, bytes int, now time.Time) {
	if b.any.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.flows) - 1; i >= 0; i-- { // from behind: the flow may be forgotten
		if f := b.flows[i]; f.to == to {
			f.sent += uint64(messages)
			f.bytes += uint64(bytes)
			b.look(f, now)
		}
	}
}

// received notes messages that a receiver has got. lag is how long the last new one of them has waited, less than nothing if none
// is new. parent returns the entity that messages for another one are sent to.
func (b *backpressure) received(from fsm.EntityID, messages int, lag time.Duration, now time.Time,
	parent func(fsm.EntityID) fsm.EntityID) {
	if b.any.Load() == 0 && lag < lagFrom {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.flows, func(f *flow) bool { return f.from == from })
	if i < 0 {
		if lag >= lagFrom {
			b.begin(&flow{to: parent(from), from: from, since: now, delivered: now, lag: lag, rest: firstRest})
		}
		return
	}
	f := b.flows[i]
	f.received += uint64(messages)
	if f.delivered = now; lag >= 0 {
		f.lag = lag
	}
	if f.holds() {
		f.budget = min(f.budget+float64(messages)*f.share(), maxAhead)
		f.release()
	}
	b.look(f, now)
}

// begin looks at one more flow.
func (b *backpressure) begin(f *flow) {
	if len(b.flows) >= maxFlows {
		b.flows = slices.DeleteFunc(b.flows, func(old *flow) bool {
			if f.since.Sub(old.delivered) <= longestHold {
				return false
			}
			old.open()
			return true
		})
	}
	if len(b.flows) < maxFlows {
		b.flows = append(b.flows, f)
	}
	b.any.Store(int32(len(b.flows)))
}

// end forgets a flow.
func (b *backpressure) end(f *flow) {
	f.open()
	b.flows = slices.DeleteFunc(b.flows, func(other *flow) bool { return other == f })
	b.any.Store(int32(len(b.flows)))
}

// reset forgets all flows.
func (b *backpressure) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.flows {
		f.open()
	}
	b.flows = nil
	b.any.Store(0)
}

// hold waits until a sender may store messages: never longer than longestHold, and not at all where nobody is held. How many they
// are is asked when they may.
func (b *backpressure) hold(ctx context.Context, to fsm.EntityID, messages func() int) {
	if b.any.Load() == 0 {
		return
	}
	began := time.Now()
	s := b.queue(to, messages, began)
	if s == nil {
		return
	}
	if b.onHold != nil {
		defer func() { b.onHold(time.Since(began)) }()
	}
	t := time.NewTimer(longestHold)
	defer t.Stop()
	select {
	case <-s.pass:
		return
	case <-ctx.Done():
	case <-t.C:
	}
	b.leave(s)
}

// leave notes that a request waits no more.
func (b *backpressure) leave(s *sending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.left = true
}

// queue takes messages from the budget, or returns what to wait for.
func (b *backpressure) queue(to fsm.EntityID, messages func() int, now time.Time) *sending {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.flows, func(f *flow) bool { return f.to == to && f.holds() })
	if i < 0 {
		return nil
	}
	f := b.flows[i]
	if now.Sub(f.delivered) > longestHold { // the receivers are gone
		b.end(f)
		return nil
	}
	if f.budget > 0 && len(f.waiting) == 0 {
		f.budget -= float64(messages())
		return nil
	}
	f.waited = now
	s := &sending{messages: messages, pass: make(chan struct{})}
	f.waiting = append(f.waiting, s)
	return s
}

// holds reports whether senders are held.
func (f *flow) holds() bool {
	return f.state == flowSettles || f.state == flowTried || f.state == flowHeld
}

// share is how many messages may be sent for one that was received. It is fewer than one while messages wait for longer
// than lagKept, and more while they wait for less.
func (f *flow) share() float64 {
	return min(max(1+float64(lagKept-f.lag)/float64(4*lagKept), 0.5), 1.25)
}

// release lets requests pass for which there is a budget, in the order in which they came.
func (f *flow) release() {
	for len(f.waiting) > 0 && f.budget > 0 {
		s := f.waiting[0]
		f.waiting = f.waiting[1:]
		if !s.left {
			f.budget -= float64(s.messages())
		}
		close(s.pass)
	}
}

// open lets everything pass.
func (f *flow) open() {
	for _, s := range f.waiting {
		close(s.pass)
	}
	f.waiting, f.budget = nil, 0
}

// enter begins a state, and a window.
func (f *flow) enter(s flowState, now time.Time) {
	f.state, f.since, f.sent, f.bytes, f.received = s, now, 0, 0, 0
}

// look does what is due.
func (b *backpressure) look(f *flow, now time.Time) {
	took := now.Sub(f.since)
	switch {
	case f.state == flowWatched && took >= watchFor:
		b.judge(f, took, now)
	case f.state == flowSettles && took >= settleFor:
		f.enter(flowTried, now)
	case f.state == flowTried && took >= trialFor, f.state == flowHeld && took >= 2*trialFor:
		b.weigh(f, took, now)
	case f.state == flowRests && now.Sub(f.delivered) > longestHold:
		b.end(f)
	case f.state == flowRests && took >= f.rest:
		f.rest = min(2*f.rest, longestRest)
		f.enter(flowWatched, now)
	}
}

// judge begins a trial if senders store many messages.
func (b *backpressure) judge(f *flow, took time.Duration, now time.Time) {
	f.sends, f.receives = float64(f.sent)/took.Seconds(), float64(f.received)/took.Seconds()
	flood := f.sends >= b.floodFrom || float64(f.bytes)/took.Seconds() >= floodBytes
	switch {
	case f.lag < lagFrom || now.Sub(f.delivered) > longestHold:
		b.end(f)
	case flood:
		f.waited = now
		f.enter(flowSettles, now)
	default:
		f.enter(flowWatched, now)
	}
}

// weigh compares the rates of a window with those without backpressure. A trial that brought too little ends it, and
// so do two such windows in a row later.
func (b *backpressure) weigh(f *flow, took time.Duration, now time.Time) {
	gained := float64(f.received)/took.Seconds() - f.receives
	lost := f.sends - float64(f.sent)/took.Seconds()
	good := gained >= holdWorth*lost-holdNoise*f.sends
	switch {
	case good && now.Sub(f.waited) > easyAfter:
		b.end(f)
	case good:
		f.failed, f.rest = 0, firstRest
		f.enter(flowHeld, now)
	case f.state == flowHeld && f.failed == 0:
		f.failed = 1
		f.enter(flowHeld, now)
	default:
		f.failed = 0
		f.open()
		f.enter(flowRests, now)
	}
}

// press tells the backpressure what a call has done in an entry that was stamped with a time.
func (p *proposer) press(c *call, o *fsm.Outcome, at fsm.Wall) {
	switch c.req.Command.(type) {
	case *fsm.Enqueue:
		if p.backpressure.any.Load() > 0 {
			p.backpressure.stored(c.req.Entity, len(o.Numbers), c.size, time.Now())
		}
	case *fsm.Lock:
		if len(o.Locked) > 0 && c.req.Sub == fsm.Main {
			p.backpressure.received(c.req.Entity, len(o.Locked), lagOf(o.Locked, at), time.Now(), p.parent)
		}
	}
}

// lagOf returns how long the last message that is delivered for the first time has waited, less than nothing if there is
// none.
func lagOf(locked []fsm.Delivery, at fsm.Wall) time.Duration {
	for i := len(locked) - 1; i >= 0; i-- {
		if d := &locked[i]; d.Attempts == 0 && d.EnqueuedAt != 0 {
			return max(0, time.Duration(at-d.EnqueuedAt)*time.Millisecond)
		}
	}
	return -1
}

// parent returns the topic of a subscription, and any other entity itself.
func (p *proposer) parent(id fsm.EntityID) (to fsm.EntityID) {
	to = id
	p.machine.view(func(m Machine, _ uint64) {
		if s, ok := m.(Descender); ok {
			to = s.Parent(id)
		}
	})
	return to
}
