package partition

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// mostPause is for how long clients of a partition that moves may wait (T-270).
const mostPause = 5 * time.Second

// promises is one partition with everything that a move must keep, made before the move and judged after it.
type promises struct {
	b       *brokers
	t       *testing.T
	queues  map[string]*fsm.Descriptor
	counter atomic.Int64
	longest atomic.Int64 // nanoseconds that a request took which has nothing to wait for
	rehomed bool         // the queues move to another partition, instead of its replicas

	began    time.Time
	held     []fsm.Delivery // locked before the move, for promiseLock
	deferred []fsm.SequenceNumber
	first    fsm.RequestID // of a send whose answer is asked for again
	answer   fsm.Outcome
	sessions []fsm.SessionProof   // accepted before the move
	planned  map[string]time.Time // by body
	cancel   fsm.SequenceNumber   // of a message that is to be cancelled

	mu      sync.Mutex
	sent    map[fsm.SequenceNumber]bool // of the queue with load
	got     map[fsm.SequenceNumber]int
	arrived map[string]time.Time       // scheduled messages
	woken   map[fsm.SequenceNumber]int // what waiters of the quiet queue got
	each    int                        // messages of each kind; one of those for later comes every five seconds
	wg      sync.WaitGroup
}

// promiseLock is how long locks of the queues last. Moves of all replicas take less.
const promiseLock = 5 * time.Minute

const (
	promiseSessions = 5
	promiseWaiters  = 10
)

// newPromises makes the queues, all in one partition.
func newPromises(t *testing.T, b *brokers) *promises {
	p := &promises{b: b, t: t, queues: map[string]*fsm.Descriptor{}, planned: map[string]time.Time{},
		sent: map[fsm.SequenceNumber]bool{}, got: map[fsm.SequenceNumber]int{},
		arrived: map[string]time.Time{}, woken: map[fsm.SequenceNumber]int{}, each: 20}
	if testing.Short() {
		p.each = 8
	}
	for _, name := range []string{"work", "held", "later", "once", "quiet", "sessions"} {
		d := queue(name, false)
		d.LockDuration, d.DetectDuplicates, d.RequiresSession = fsm.Millis(promiseLock.Milliseconds()), name == "once", name == "sessions"
		p.queues[name] = b.createQueue(t.Context(), "n1", d)
	}
	return p
}

// ask proposes a command through a node, and returns its outcome. A failure fails the test.
func (p *promises) ask(ctx context.Context, via fsm.NodeID, name string, c fsm.Command) fsm.Outcome {
	n := int(p.counter.Add(1))
	return p.askAs(ctx, reqOf(3, 1000+n, 1), via, name, c)
}

func (p *promises) askAs(ctx context.Context, id fsm.RequestID, via fsm.NodeID, name string, c fsm.Command) fsm.Outcome {
	began := time.Now()
	k := fsm.Key{Entity: p.queues[name].ID}
	if s := sessionOf(c); s != "" {
		k.By, k.Text = fsm.ByText, s
	}
	o, err := p.b.all[via].r.Propose(ctx, id, k, c)
	if err != nil {
		p.t.Errorf("%T on %s through %s: %v", c, name, via, err)
	}
	if w, waits := c.(fsm.Waiter); !waits || waitOf(w) == 0 {
		for took := int64(time.Since(began)); ; {
			old := p.longest.Load()
			if took <= old || p.longest.CompareAndSwap(old, took) {
				break
			}
		}
	}
	return o
}

func waitOf(w fsm.Waiter) fsm.Millis {
	_, _, wait := w.Waiting(0, 0)
	return wait
}

// sessionOf is the session that a command belongs to.
func sessionOf(c fsm.Command) string {
	switch c := c.(type) {
	case *fsm.Enqueue:
		return c.Messages[0].SessionID
	case *fsm.Lock:
		return c.Session.ID
	case *fsm.AcceptSession:
		return c.ID
	case *fsm.RenewSession:
		return c.Session.ID
	case *fsm.SetSessionState:
		return c.Session.ID
	case *fsm.Settle:
		return c.Session.ID
	}
	return ""
}

func (p *promises) send(name string, m fsm.Message) fsm.SequenceNumber {
	p.t.Helper()
	if m.Body == nil {
		m.Body = []byte("b")
	}
	o := p.ask(p.t.Context(), "n1", name, &fsm.Enqueue{Messages: []fsm.Message{m}})
	if len(o.Numbers) != 1 {
		p.t.Fatalf("send to %s: %+v", name, o)
	}
	return o.Numbers[0]
}

func settle(d fsm.Delivery, v fsm.Verdict) *fsm.Settle {
	return &fsm.Settle{Items: []fsm.SettleItem{{Seq: d.Seq, Token: d.Token, Verdict: v}}}
}

// settles ends a lock and fails the test if it was lost.
func (p *promises) settles(name string, proof fsm.SessionProof, d fsm.Delivery, v fsm.Verdict) {
	p.t.Helper()
	c := settle(d, v)
	c.Session = proof
	if o := p.ask(p.t.Context(), "n2", name, c); o.Refusal != fsm.None || len(o.Refusals) != 1 || o.Refusals[0] != fsm.None {
		p.t.Errorf("message %d of %s was not settled: %+v", d.Seq, name, o)
	}
}

// make fills the partition with what the move must keep.
func (p *promises) make() {
	p.began = time.Now()
	ctx := p.t.Context()
	for range p.each {
		p.send("held", fsm.Message{})
	}
	p.held = p.ask(ctx, "n1", "held", &fsm.Lock{Max: uint32(p.each), MaxBytes: 1 << 20}).Locked
	if len(p.held) != p.each {
		p.t.Fatalf("%d messages are locked", len(p.held))
	}
	for _, d := range p.held[p.each-2:] {
		p.settles("held", fsm.SessionProof{}, d, fsm.Defer)
		p.deferred = append(p.deferred, d.Seq)
	}
	p.held = p.held[:p.each-2]
	for i := range p.each {
		p.send("once", fsm.Message{MessageID: fmt.Sprint("id-", i)})
		at := time.Now().Add(time.Duration(1+i) * 5 * time.Second)
		body := fmt.Sprint("for later ", i)
		p.send("later", fsm.Message{ScheduledAt: fsm.Wall(at.UnixMilli()), Body: []byte(body)})
		p.planned[body] = at
	}
	p.cancel = p.send("later", fsm.Message{ScheduledAt: fsm.Wall(time.Now().Add(time.Hour).UnixMilli())})
	p.first = reqOf(3, 1, 1)
	p.answer = p.askAs(ctx, p.first, "n1", "once", &fsm.Enqueue{Messages: []fsm.Message{{MessageID: "asked twice", Body: []byte("b")}}})
	for s := range promiseSessions {
		id := fmt.Sprint("s-", s)
		for range 3 {
			p.send("sessions", fsm.Message{SessionID: id, HasSession: true})
		}
		o := p.ask(ctx, "n1", "sessions", &fsm.AcceptSession{ID: id})
		if o.Refusal != fsm.None {
			p.t.Fatalf("session %s: %+v", id, o)
		}
		p.sessions = append(p.sessions, o.Session)
		if o := p.ask(ctx, "n1", "sessions", &fsm.SetSessionState{Session: o.Session, State: []byte("state of " + id)}); o.Refusal != fsm.None {
			p.t.Fatalf("state of session %s: %+v", id, o)
		}
	}
}

// load keeps the partition busy: messages are sent until one context ends, and received by waiting receivers until the other
// one ends. Scheduled messages are awaited, and waiters of the quiet queue wait.
func (p *promises) load(sending, receiving context.Context) {
	for _, via := range []fsm.NodeID{"n1", "n2", "n3"} {
		p.wg.Go(func() {
			for sending.Err() == nil {
				n := p.ask(p.t.Context(), via, "work", &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("b")}}}).Numbers
				p.mu.Lock()
				for _, n := range n {
					p.sent[n] = true
				}
				p.mu.Unlock()
				time.Sleep(20 * time.Millisecond)
			}
		})
		p.wg.Go(func() { p.receive(receiving, via, "work", func(d fsm.Delivery) { p.got[d.Seq]++ }) })
		p.wg.Go(func() {
			p.receive(receiving, via, "later", func(d fsm.Delivery) { p.arrived[string(d.Body)] = time.Now() })
		})
	}
	for i := range promiseWaiters {
		p.wg.Go(func() {
			o := p.ask(p.t.Context(), p.b.ids[i%3], "quiet", &fsm.Lock{Max: 1, MaxBytes: 1 << 20, Wait: 3_600_000})
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(o.Locked) != 1 {
				p.t.Errorf("waiter %d: %+v", i, o)
				return
			}
			p.woken[o.Locked[0].Seq]++
		})
	}
}

// receive takes messages and completes them, and notes each.
func (p *promises) receive(ctx context.Context, via fsm.NodeID, name string, note func(fsm.Delivery)) {
	for ctx.Err() == nil {
		for _, d := range p.ask(p.t.Context(), via, name, &fsm.Lock{Max: 5, MaxBytes: 1 << 20, Wait: 2000}).Locked {
			p.mu.Lock()
			note(d)
			p.mu.Unlock()
			p.settles(name, fsm.SessionProof{}, d, fsm.Complete)
		}
	}
}

// judge looks at everything that was made before the move, at load that has ended, and then at what time brings.
func (p *promises) judge() {
	ctx := p.t.Context()
	if took := time.Duration(p.longest.Load()); took >= mostPause {
		p.t.Errorf("a client waited for %v", took)
	}
	for range promiseWaiters {
		p.send("quiet", fsm.Message{})
	}
	p.wg.Wait()
	if len(p.woken) != promiseWaiters {
		p.t.Errorf("waiters got %d messages: %v", len(p.woken), p.woken)
	}
	p.judgeLoad()
	p.judgeSessions()
	for i := range p.each {
		o := p.ask(ctx, "n3", "once", &fsm.Enqueue{Messages: []fsm.Message{{MessageID: fmt.Sprint("id-", i), Body: []byte("again")}}})
		if len(o.Duplicate) != 1 || !o.Duplicate[0] {
			p.t.Errorf("message id %d is new: %+v", i, o)
		}
	}
	again := p.askAs(ctx, p.first, "n2", "once", &fsm.Enqueue{Messages: []fsm.Message{{MessageID: "asked twice", Body: []byte("b")}}})
	if p.rehomed { // the new home of the share has another log, and the message id
		again.Repeated, again.Numbers = len(again.Duplicate) == 1 && again.Duplicate[0], p.answer.Numbers
	}
	if !again.Repeated || !slices.Equal(again.Numbers, p.answer.Numbers) {
		p.t.Errorf("a request asked again has the answer %+v, first %+v", again, p.answer)
	}
	if o := p.ask(ctx, "n2", "later", &fsm.Cancel{Numbers: []fsm.SequenceNumber{p.cancel}}); o.Refusal != fsm.None {
		p.t.Errorf("cancel: %+v", o)
	}
	if o := p.ask(ctx, "n1", "held", &fsm.Receive{Numbers: p.deferred}); len(o.Locked) != len(p.deferred) {
		p.t.Errorf("deferred messages: %+v", o)
	}
	p.judgeLocks()
}

// judgeLoad: no message is lost or comes twice, numbers have no gap, and scheduled messages came at their time.
func (p *promises) judgeLoad() {
	for n := range p.sent {
		if p.got[n] != 1 {
			p.t.Errorf("message %d was received %d times", n, p.got[n])
		}
	}
	numbers := fsmNumbers(p.sent)
	if first, last := numbers[0], numbers[len(numbers)-1]; int(last-first)+1 != len(numbers) {
		p.t.Errorf("%d numbers from %d to %d", len(numbers), first, last)
	}
	if len(numbers) < 1000 || len(p.got) != len(numbers) {
		p.t.Errorf("%d messages were sent and %d received", len(numbers), len(p.got))
	}
	for body, at := range p.planned {
		if late := p.arrived[body].Sub(at); late < 0 || late > mostPause {
			p.t.Errorf("the message %q, scheduled for %v, came at %v", body, at, p.arrived[body])
		}
	}
	if len(p.arrived) != len(p.planned) {
		p.t.Errorf("%d of %d scheduled messages came", len(p.arrived), len(p.planned))
	}
}

func fsmNumbers(all map[fsm.SequenceNumber]bool) (numbers []fsm.SequenceNumber) {
	for n := range all { // order-free: sorted below
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}

// judgeSessions: sessions have their holder, their lock, their state and their order.
func (p *promises) judgeSessions() {
	ctx := p.t.Context()
	for i, proof := range p.sessions {
		if o := p.ask(ctx, "n3", "sessions", &fsm.AcceptSession{ID: proof.ID}); o.Refusal != fsm.SessionCannotBeLocked {
			p.t.Errorf("session %s was given to another one: %+v", proof.ID, o)
		}
		k := fsm.Key{Entity: p.queues["sessions"].ID, By: fsm.ByText, Text: proof.ID}
		a, err := p.b.all["n2"].r.Query(ctx, k, &fsm.GetSessionState{Session: proof})
		if err != nil || string(a.State) != "state of "+proof.ID {
			p.t.Errorf("session %s has the state %q, %v", proof.ID, a.State, err)
		}
		if o := p.ask(ctx, "n1", "sessions", &fsm.RenewSession{Session: proof}); o.Refusal != fsm.None {
			p.t.Errorf("session %s is not renewed: %+v", proof.ID, o)
		}
		o := p.ask(ctx, "n1", "sessions", &fsm.Lock{Session: proof, Max: 3, MaxBytes: 1 << 20})
		if len(o.Locked) != 3 || o.Locked[0].Seq >= o.Locked[1].Seq || o.Locked[1].Seq >= o.Locked[2].Seq {
			p.t.Errorf("session %d: %+v", i, o)
			continue
		}
		for _, d := range o.Locked {
			p.settles("sessions", proof, d, fsm.Complete)
		}
	}
}

// judgeLocks: half of the locks settle, the others end at the time that they had before the move, neither earlier nor
// later than the pauses of the partition.
func (p *promises) judgeLocks() {
	ctx := p.t.Context()
	until := p.began.Add(promiseLock)
	if time.Now().After(until.Add(-10 * time.Second)) {
		p.t.Fatalf("the move took %v: locks have ended", time.Since(p.began))
	}
	half := len(p.held) / 2
	for _, d := range p.held[:half] {
		p.settles("held", fsm.SessionProof{}, d, fsm.Complete)
	}
	time.Sleep(time.Until(until.Add(-time.Second)))
	if o := p.ask(ctx, "n1", "held", &fsm.Lock{Max: uint32(p.each), MaxBytes: 1 << 20}); len(o.Locked) > 0 {
		p.t.Errorf("locks ended a second too early: %+v", o.Locked)
	}
	time.Sleep(time.Until(until.Add(mostPause)))
	o := p.ask(ctx, "n1", "held", &fsm.Lock{Max: uint32(p.each), MaxBytes: 1 << 20})
	var again, want []fsm.SequenceNumber
	for _, d := range o.Locked {
		again = append(again, d.Seq)
		if d.Attempts != 1 {
			p.t.Errorf("message %d was delivered %d times before", d.Seq, d.Attempts)
		}
	}
	for _, d := range p.held[half:] {
		want = append(want, d.Seq)
	}
	if !slices.Equal(again, want) {
		p.t.Errorf("when their locks had ended, %v came back, want %v", again, want)
	}
}

// S-318, T-270: all replicas of a partition, and its leadership, move to other nodes while its clients go on. The new
// replicas are filled by an image, because the log is cut behind all that was promised.
func TestT270AMoveKeepsWhatThePartitionPromised(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokersAs(t, 3, func(b *brokers) {
			b.partitions, b.tune = 1, func(c *Config) { c.TrailingLogs = 64 }
		})
		defer b.close()
		b.net.SetDelay(2*time.Millisecond, 0)
		p := newPromises(t, b)
		b.wantVersion("n1", fsm.NewestVersion)
		for _, id := range []fsm.NodeID{"n4", "n5", "n6"} {
			b.grow(id)
		}
		p.make()
		sending, stop := context.WithCancel(t.Context())
		receiving, end := context.WithCancel(t.Context())
		defer end()
		p.load(sending, receiving)
		time.Sleep(3 * time.Second)
		for _, id := range []fsm.NodeID{"n1", "n2", "n3"} {
			if err := b.all[id].host.Replica(1).Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []fsm.NodeID{"n1", "n2", "n3"} {
			b.wish("n1", id, catalog.Drain)
		}
		b.until("the partition has moved", func() string {
			return b.drained("n1") + b.drained("n2") + b.drained("n3") + b.unfinished("n1")
		})
		if images := b.net.Calls(KindSnapshot); images < 3 {
			t.Errorf("%d images were sent", images)
		}
		if got := b.voters(1); got != "n4 n5 n6" {
			t.Errorf("the partition has the members %s", got)
		}
		t.Logf("moved after %v", time.Since(p.began))
		time.Sleep(time.Until(p.began.Add(time.Duration(p.each+1) * 5 * time.Second))) // the last scheduled message has come
		stop()
		time.Sleep(10 * time.Second) // the queues are empty by then
		end()
		p.judge()
		t.Logf("%d messages, the longest pause was %v", len(p.sent), time.Duration(p.longest.Load()))
	})
}
