package replica

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// market is a queue between senders that never pause and receivers that take what they can. Its time is its own.
type market struct {
	b    *backpressure
	now  time.Time
	to   fsm.EntityID // where messages are sent
	from fsm.EntityID // where they are received

	// receives returns how many messages receivers take in a second while senders store some in a second.
	receives func(sends float64) float64
	demand   float64 // of senders, messages in a second
	bytes    int     // of a message

	links  []*sending  // requests that are held, of one sender each; nil for a sender that may go on
	heldAt []time.Time // since when
	queued []time.Time // when each message was stored
	owed   float64     // parts of a message that receivers may take
	debt   float64     // the same of senders
	recent float64     // sends in a second, a running mean

	sent, received int
	lag            time.Duration // of the last message
}

const (
	floodFrom     = 5_000
	marketStep    = 2 * time.Millisecond
	marketRequest = 20 // messages
)

func newMarket(demand float64, receives func(sends float64) float64) *market {
	return &market{b: &backpressure{floodFrom: floodFrom}, now: time.Unix(0, 0), to: 1, from: 1, receives: receives, demand: demand,
		bytes: 1024, links: make([]*sending, 8), heldAt: make([]time.Time, 8)}
}

func (m *market) parent(fsm.EntityID) fsm.EntityID { return m.to }

// run lets some time pass.
func (m *market) run(d time.Duration) {
	m.sent, m.received = 0, 0
	for end := m.now.Add(d); m.now.Before(end); m.now = m.now.Add(marketStep) {
		m.debt = min(m.debt+m.demand*marketStep.Seconds(), 400)
		stored := 0
		for i, held := range m.links {
			if held != nil {
				select {
				case <-held.pass:
					m.links[i] = nil
					stored += marketRequest
				default:
					if m.now.Sub(m.heldAt[i]) >= longestHold {
						m.b.leave(held)
						m.links[i] = nil
						stored += marketRequest
					}
				}
			}
			if m.links[i] == nil && m.debt >= marketRequest {
				m.debt -= marketRequest
				m.heldAt[i] = m.now
				if m.links[i] = m.b.queue(m.to, count(marketRequest), m.now); m.links[i] == nil {
					stored += marketRequest
				}
			}
		}
		for range stored {
			m.queued = append(m.queued, m.now)
		}
		m.recent += (float64(stored)/marketStep.Seconds() - m.recent) / 20
		m.sent += stored
		if stored > 0 {
			m.b.stored(m.to, stored, stored*m.bytes, m.now)
		}
		m.owed = min(m.owed+m.receives(m.recent)*marketStep.Seconds(), 1000)
		if n := min(int(m.owed), len(m.queued)); n > 0 {
			m.owed -= float64(n)
			m.lag = m.now.Sub(m.queued[n-1])
			m.queued = m.queued[n:]
			m.received += n
			m.b.received(m.from, n, m.lag, m.now, m.parent)
		}
	}
}

// perSecond returns the rates of a run.
func (m *market) perSecond(d time.Duration) (sends, receives int) {
	return int(float64(m.sent) / d.Seconds()), int(float64(m.received) / d.Seconds())
}

// shared is what receivers get of processors that they share with senders: 28,000 messages in a second without any.
func shared(sends float64) float64 { return max(28_000*(1-sends/100_000), 2_000) }

// Senders are held while receivers get more by that, and messages wait for a short time.
func TestSendersAreHeldWhereReceiversGain(t *testing.T) {
	m := newMarket(60_000, shared)
	m.run(5 * time.Second)
	m.run(10 * time.Second)
	sends, receives := m.perSecond(10 * time.Second)
	if free := int(shared(60_000)); receives < 19_000 || receives < free*3/2 {
		t.Errorf("%d received in a second, and %d without backpressure", receives, free)
	}
	if sends > receives*105/100 || m.lag > 100*time.Millisecond {
		t.Errorf("%d sent and %d received in a second; the last message has waited for %v", sends, receives, m.lag)
	}
	// What has waited before is received first.
	m = newMarket(60_000, shared)
	for range 200_000 {
		m.queued = append(m.queued, m.now.Add(-time.Minute))
	}
	m.run(time.Minute)
	m.run(5 * time.Second)
	if m.lag > 100*time.Millisecond {
		t.Errorf("behind a backlog the last message has waited for %v", m.lag)
	}
}

// Receivers that are slow by themselves slow nobody: senders lose less than a twentieth in the first minute.
func TestSlowReceiversHoldNobody(t *testing.T) {
	rates := []float64{100, 2_000, 9_000}
	if testing.Short() {
		rates = []float64{2_000}
	}
	for _, rate := range rates {
		m := newMarket(60_000, func(float64) float64 { return rate })
		m.run(time.Minute)
		if sends, _ := m.perSecond(time.Minute); sends < 57_000 {
			t.Errorf("beside a receiver of %v messages in a second, %d of 60,000 are sent", rate, sends)
		}
		m.run(time.Minute)
		if sends, _ := m.perSecond(time.Minute); sends < 59_000 {
			t.Errorf("beside a receiver of %v messages in a second, %d of 60,000 are sent in the second minute", rate, sends)
		}
	}
}

// Senders with little to send are not held, however long their messages wait; what counts is messages or bytes.
func TestFewMessagesAreNotHeld(t *testing.T) {
	held := func(m *market) bool {
		for range 1000 {
			m.run(10 * time.Millisecond)
			for _, f := range m.b.flows {
				if f.holds() {
					return true
				}
			}
		}
		return false
	}
	if held(newMarket(floodFrom*9/10, func(float64) float64 { return 1_000 })) {
		t.Error("senders of a few messages are held")
	}
	if !held(newMarket(floodFrom*12/10, func(float64) float64 { return 1_000 })) {
		t.Error("senders of many messages are never held")
	}
	m := newMarket(1000, func(float64) float64 { return 100 })
	m.bytes = 64 << 10
	if !held(m) {
		t.Error("senders of many bytes are never held")
	}
}

// A flow is forgotten when senders pause, and when receivers go away. Nothing is held then.
func TestBackpressureEnds(t *testing.T) {
	m := newMarket(60_000, shared)
	m.run(5 * time.Second)
	m.demand = 3_000
	m.run(10 * time.Second)
	if n := m.b.any.Load(); n > 0 {
		t.Errorf("%d flows are left when senders have little to send", n)
	}
	m = newMarket(60_000, shared)
	m.run(5 * time.Second)
	if len(m.b.flows) != 1 || !m.b.flows[0].holds() {
		t.Fatalf("nobody is held: %+v", m.b.flows)
	}
	m.receives = func(float64) float64 { return 0 }
	m.run(time.Second)
	m.run(time.Second)
	if sends, _ := m.perSecond(time.Second); sends < 59_000 || m.b.any.Load() > 0 {
		t.Errorf("without receivers %d of 60,000 are sent, and %d flows are left", sends, m.b.any.Load())
	}
}

// A leadership that ends holds nobody.
func TestBackpressureIsReset(t *testing.T) {
	m := newMarket(60_000, shared)
	m.run(5 * time.Second)
	held := 0
	for range 1000 {
		if m.b.queue(1, count(1), m.now) != nil {
			held++
		}
	}
	f := m.b.flows[0]
	m.b.reset()
	if held == 0 || len(f.waiting) > 0 || m.b.any.Load() != 0 || m.b.queue(1, count(1), m.now) != nil {
		t.Errorf("%d were held, %d wait still, %d flows", held, len(f.waiting), m.b.any.Load())
	}
}

// Receivers of a subscription hold the senders of its topic, and no others.
func TestSubscriptionsHoldTheSendersOfTheirTopic(t *testing.T) {
	m := newMarket(60_000, shared)
	m.from = 2
	m.run(5 * time.Second)
	for m.b.flows[0].budget > 0 {
		m.b.queue(1, count(100), m.now)
	}
	if m.b.queue(1, count(1), m.now) == nil {
		t.Error("a sender of the topic is not held")
	}
	if m.b.queue(2, count(1), m.now) != nil || m.b.queue(3, count(1), m.now) != nil {
		t.Error("a sender of something else is held")
	}
}

// The entities that are looked at are bounded, and those whose receivers are gone make room.
func TestFlowsAreBounded(t *testing.T) {
	var b backpressure
	now := time.Unix(0, 0)
	same := func(id fsm.EntityID) fsm.EntityID { return id }
	for id := range fsm.EntityID(maxFlows + 10) {
		b.received(id, 1, time.Second, now, same)
	}
	if n := b.any.Load(); n != maxFlows {
		t.Errorf("%d flows", n)
	}
	b.received(1000, 1, time.Second, now.Add(time.Minute), same)
	if n := b.any.Load(); n != 1 {
		t.Errorf("%d flows when the others are over", n)
	}
}

// A request waits for longestHold at most, and not at all when its context has ended.
func TestARequestIsHeldForAWhileAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		b := backpressure{onHold: func(d time.Duration) { told = append(told, d) }}
		same := func(id fsm.EntityID) fsm.EntityID { return id }
		b.received(1, 1, time.Second, time.Now(), same)
		b.flows[0].enter(flowHeld, time.Now())
		began := time.Now()
		b.hold(t.Context(), 1, count(1))
		if took := time.Since(began); took != longestHold {
			t.Errorf("held for %v", took)
		}
		b.flows[0].delivered = time.Now()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		b.hold(ended, 1, count(1))
		b.hold(t.Context(), 2, count(1))
		if took := time.Since(began); took != 0 {
			t.Errorf("held for %v", took)
		}
		if want := []time.Duration{longestHold, 0}; !slices.Equal(told, want) {
			t.Errorf("told of %v, want %v", told, want)
		}
	})
}

// Only new messages tell how long messages wait.
func TestLagIsThatOfNewMessages(t *testing.T) {
	at := fsm.Wall(10_000)
	for _, row := range []struct {
		locked []fsm.Delivery
		want   time.Duration
	}{
		{[]fsm.Delivery{{EnqueuedAt: 9_000}, {EnqueuedAt: 9_900}}, 100 * time.Millisecond},
		{[]fsm.Delivery{{EnqueuedAt: 9_000}, {EnqueuedAt: 1_000, Attempts: 1}}, time.Second},
		{[]fsm.Delivery{{EnqueuedAt: 1_000, Attempts: 1}}, -1},
		{[]fsm.Delivery{{EnqueuedAt: 10_001}}, 0},
		{[]fsm.Delivery{{}}, -1},
	} {
		if got := lagOf(row.locked, at); got != row.want {
			t.Errorf("%+v: %v, want %v", row.locked, got, row.want)
		}
	}
}

// count is a request of so many messages.
func count(n int) func() int { return func() int { return n } }
