package scenario

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/simulation"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// place is where the model has a message.
type place int

const (
	inQueue place = iota // active or locked
	inDeferral
	inDeadLetters
	nowhere
)

// handled is a delivery that the random client holds.
type handled struct {
	*deal
	text  string
	until time.Time    // the end of its lock, as the client reckons
	in    *transaction // that settles it, nil if none
}

// deed is one operation of an open transaction.
type deed struct {
	sent  string // a message that it sends, "" for a settlement
	of    *handled
	place place // where the settlement puts it
}

// gambler is a client that sends, settles and commits at random, and the model of what must be stored.
type gambler struct {
	b      *bench
	rng    *rand.Rand
	d      *dealer
	places map[string]place
	held   []*handled
	open   map[*transaction][]deed
	begun  map[*transaction]time.Time
	next   int
	seen   map[string]int // what happened, so that a run that did nothing fails
}

const gamblersLock = 20 * time.Second

// sure says that the lock is held: well before its end, however the clocks of leaders go.
func (h *handled) sure() bool { return time.Until(h.until) > 2*time.Second }

// outcomes are the decisions about a message, and where they put it.
var outcomes = []struct {
	state amqp.DeliveryState
	place place
}{
	{amqp.Accepted{}, nowhere},
	{amqp.Modified{DeliveryFailed: amqp.Some(true)}, inQueue},
	{amqp.Released{}, inQueue},
	{amqp.Modified{UndeliverableHere: amqp.Some(true)}, inDeferral},
	{amqp.Rejected{Error: &amqp.Error{Condition: "com.microsoft:dead-letter"}}, inDeadLetters},
}

// connect opens a connection to a node that does not lead.
func (g *gambler) connect() {
	g.b.Helper()
	g.d, g.held = g.b.bystandingDealer(), nil
	g.open, g.begun = map[*transaction][]deed{}, map[*transaction]time.Time{}
}

func (g *gambler) text() string {
	g.next++
	return fmt.Sprint("m", g.next)
}

// free returns a random delivery that no transaction settles.
func (g *gambler) free() *handled {
	var all []*handled
	for _, h := range g.held {
		if h.in == nil {
			all = append(all, h)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[g.rng.IntN(len(all))]
}

func (g *gambler) drop(h *handled) {
	g.held = slices.DeleteFunc(g.held, func(o *handled) bool { return o == h })
}

// any returns an open transaction, or nil.
func (g *gambler) any() *transaction {
	all := slices.SortedFunc(maps.Keys(g.open), func(a, b *transaction) int { return slices.Compare(a.id, b.id) })
	if len(all) == 0 {
		return nil
	}
	return all[g.rng.IntN(len(all))]
}

// send sends a message, within a transaction or not.
func (g *gambler) send(x *transaction) {
	text := g.text()
	if x != nil {
		g.b.must("send in a transaction", x.trySend("q", message(text)))
		g.open[x] = append(g.open[x], deed{sent: text})
		return
	}
	h, err := g.d.sender("q", "")
	g.b.must("attach", err)
	payload, err := message(text).MarshalBinary()
	g.b.must("encode", err)
	_, err = g.d.transfer(h, nil, payload)
	g.b.must("send", err)
	g.places[text] = inQueue
}

// receive takes a message, if one must be there.
func (g *gambler) receive() {
	there := 0
	for _, p := range g.places {
		if p == inQueue {
			there++
		}
	}
	if there-len(g.held) <= 0 || len(g.held) >= 20 {
		return
	}
	m, err := g.d.receive("q", nil)
	g.b.must("receive", err)
	h := &handled{deal: m, text: m.text(), until: time.Now().Add(gamblersLock)}
	if p, known := g.places[h.text]; !known || p != inQueue {
		g.b.Fatalf("%s was received, which is in place %d (known %t)", h.text, p, known)
	}
	for _, o := range slices.Clone(g.held) {
		if o.text != h.text {
			continue
		}
		if o.sure() {
			g.b.Fatalf("%s was received again while it was locked", h.text)
		}
		g.seen["expired"]++
		if o.in == nil {
			g.drop(o)
		} // else its transaction learns of it when it commits
	}
	g.held = append(g.held, h)
}

// settle decides about a delivery, within a transaction or not.
func (g *gambler) settle(x *transaction) {
	h := g.free()
	if h == nil {
		return
	}
	how := outcomes[g.rng.IntN(len(outcomes))]
	sure := h.sure()
	switch err := h.decide(x, how.state); {
	case err == nil && x == nil:
		g.places[h.text] = how.place
		g.drop(h)
		g.seen["settled"]++
	case err == nil:
		h.in = x
		g.open[x] = append(g.open[x], deed{of: h, place: how.place})
	case !sure && conditionOf(err) == lockLost:
		g.drop(h)
		g.seen["lock lost"]++
	default:
		g.b.Fatalf("settle %s, sure %t: %v", h.text, sure, err)
	}
}

// decide settles a delivery. Within a transaction the answer is unsettled, and a refusal is settled (RUL-30).
func (h *handled) decide(x *transaction, state amqp.DeliveryState) error {
	if x == nil {
		return h.deal.settle(nil, state)
	}
	h.d.send(&amqp.Disposition{Role: amqp.RoleReceiver, First: h.id, State: &amqp.TransactionalState{TxnID: x.id, Outcome: state}})
	f, err := h.d.await("an outcome", func(f dealt) bool {
		p, ok := f.p.(*amqp.Disposition)
		return ok && p.Role == amqp.RoleSender && p.First <= h.id && h.id <= p.Last.Or(p.First)
	})
	if err != nil {
		return err
	}
	p := f.p.(*amqp.Disposition)
	if r, ok := p.State.(amqp.Rejected); ok && p.Settled {
		return refusal(r.Error)
	}
	if _, ok := p.State.(*amqp.TransactionalState); !ok || p.Settled {
		return fmt.Errorf("answered with %T, settled %t", p.State, p.Settled)
	}
	x.settles = append(x.settles, h.id)
	return nil
}

// end commits or rolls back.
func (g *gambler) end(x *transaction, fail bool) {
	deeds := g.open[x]
	sure := true
	for _, d := range deeds {
		sure = sure && (d.of == nil || d.of.sure())
	}
	err := x.discharge(fail)
	delete(g.open, x)
	switch {
	case err == nil && !fail:
		g.seen["committed"]++
		for _, d := range deeds {
			if d.of == nil {
				g.places[d.sent] = inQueue
				continue
			}
			g.places[d.of.text] = d.place
			g.drop(d.of)
		}
	case err == nil:
		g.seen["rolled back"]++
		g.release(deeds)
	case !fail && !sure && conditionOf(err) == rolledBack:
		g.seen["aborted"]++
		g.release(deeds)
	default:
		g.b.Fatalf("discharge, fail %t, sure %t: %v", fail, sure, err)
	}
}

// release gives the deliveries of a transaction that did nothing back to the client, which may settle them again.
func (g *gambler) release(deeds []deed) {
	for _, d := range deeds {
		if d.of != nil {
			d.of.in = nil
		}
	}
}

// lose breaks the connection off, in the middle of a commit or not. Who commits and does not hear of it asks the node.
func (g *gambler) lose() {
	x := g.any()
	if x == nil || g.rng.IntN(2) == 0 {
		g.part(nil)
		return
	}
	x.commitUnheard()
	if g.rng.IntN(2) == 0 {
		g.b.pass(time.Duration(g.rng.IntN(20)) * time.Millisecond)
	}
	g.part(x)
}

// unheard breaks the connection off 20 ms after a commit of one settlement, whose lock has run out or has not.
func (g *gambler) unanswered(late bool) {
	x := g.settling()
	if late {
		g.b.pass(gamblersLock + 3*time.Second)
	}
	x.commitUnheard()
	g.b.pass(20 * time.Millisecond)
	g.part(x)
}

// settling returns a transaction of a new connection with one settlement, whose lock has just begun.
func (g *gambler) settling() *transaction {
	g.part(nil)
	for g.free() == nil {
		g.send(nil)
		g.receive()
	}
	x := g.d.begin()
	g.open[x], g.begun[x] = nil, time.Now()
	for len(g.open[x]) == 0 {
		g.settle(x)
	}
	return x
}

// part breaks the connection off, opens another and asks the node what became of a commit, nil if none is under way.
func (g *gambler) part(x *transaction) {
	var deeds []deed
	if x != nil {
		deeds = g.open[x]
	}
	node := g.d.node
	g.d.die()
	g.b.pass(8 * time.Second) // the grace of the locks
	if x != nil {
		switch outcome := g.b.lab.Front(node).Outcome(x.id); outcome {
		case "committed":
			g.seen["committed unheard"]++
			for _, d := range deeds {
				if d.of == nil {
					g.places[d.sent] = inQueue
				} else {
					g.places[d.of.text] = d.place
				}
			}
		case "aborted":
			g.seen["aborted unheard"]++
		default:
			g.b.Fatalf("nobody knows of a commit: %s", outcome)
		}
	}
	g.seen["lost"]++
	g.connect()
}

// kill crashes the leader, if the client is connected to another node: alone, or over the commit of a transaction.
func (g *gambler) kill() {
	leader := g.b.lab.Leader(1)
	if leader == g.d.node {
		g.lose() // the next connection is to another
		return
	}
	if x := g.any(); x != nil && len(g.open[x]) > 0 && g.rng.IntN(2) == 0 {
		g.killOver(x)
		return
	}
	g.seen["killed"]++
	start := g.b.crashLeader()
	g.b.must("lead", g.b.lab.Led())
	start()
}

// killOver crashes the leader before or after it applies the next entry, which is that of the commit.
func (g *gambler) killOver(x *transaction) {
	leader := g.b.lab.Leader(1)
	g.seen["killed over a commit"]++
	down := g.b.lab.CrashAt(1, simulation.Point(g.rng.IntN(2)), g.b.lab.Applied(leader, 1)+1)
	g.end(x, false)
	g.b.lab.Disarm()
	select {
	case <-down:
		g.b.must("lead", g.b.lab.Led())
		g.b.must("start", g.b.lab.Start(leader))
		g.b.must("serve", g.b.lab.Settled())
	default: // nothing was written
	}
}

// step does one thing.
func (g *gambler) step() {
	x := g.any()
	if x != nil && time.Since(g.begun[x]) > 60*time.Second { // it has two minutes
		g.end(x, g.rng.IntN(2) == 0)
		return
	}
	switch n := g.rng.IntN(1000); {
	case n < 200:
		g.send(nil)
	case n < 300 && x != nil:
		g.send(x)
	case n < 550:
		g.receive()
	case n < 650:
		g.settle(nil)
	case n < 800 && x != nil && len(g.open[x]) < 50:
		g.settle(x)
	case n < 880 && len(g.open) < 5:
		x := g.d.begin()
		g.open[x], g.begun[x] = nil, time.Now()
	case n < 930 && x != nil:
		g.end(x, false)
	case n < 960 && x != nil:
		g.end(x, true)
	case n < 990:
		g.b.pass(time.Duration(g.rng.IntN(3_000)) * time.Millisecond)
	case n < 994:
		g.b.pass(time.Duration(20+g.rng.IntN(5)) * time.Second)
	case n < 997:
		g.lose()
	default:
		g.kill()
	}
}

// audit compares what is stored with what was answered.
func (g *gambler) audit() {
	b := g.b
	g.d.die()
	b.pass(30 * time.Second)
	c := b.bystander()
	var queue, deferred, dead []string
	for text, p := range g.places {
		switch p {
		case inQueue:
			queue = append(queue, text)
		case inDeferral:
			deferred = append(deferred, text)
		case inDeadLetters:
			dead = append(dead, text)
		}
	}
	exactly(b, "in the queue", texts(c.peekAll("q")), append(slices.Clone(queue), deferred...))
	exactly(b, "in the dead letters", texts(c.peekAll("q/$DeadLetterQueue")), dead)
	n := b.counts("q")
	want(b, "active, deferred ones too", int(n.Active), len(queue)+len(deferred))
	want(b, "deferred", int(n.Deferred), len(deferred))
}

// S-231 to S-238, S-240 to S-243, RUL-30: random steps of a client with transactions — declare, send, settle every way, roll back,
// commit, locks that run out, connections that are lost, leaders that are killed — and no difference between what was
// answered and what is stored.
func TestRandomTransactionsAgreeWithTheirAnswers(t *testing.T) {
	steps, seen := size("T-229", "random steps of transactions", 1_000_000, 6_000), map[string]int{}
	const each = 2_000 // steps of one cluster
	for seed := range steps / each {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			onThree(t, func(b *bench) {
				b.queue("q", lockFor(gamblersLock), maxDelivery(10_000))
				g := &gambler{b: b, rng: rand.New(rand.NewPCG(22, uint64(seed))), places: map[string]place{}, seen: seen}
				g.connect()
				for range each {
					g.step()
				}
				g.unanswered(false)
				g.unanswered(true)
				g.killOver(g.settling())
				g.audit()
			})
		})
		if t.Failed() {
			return
		}
	}
	t.Log(seen)
	for _, what := range []string{"settled", "lock lost", "committed", "rolled back", "aborted", "expired",
		"committed unheard", "aborted unheard", "lost", "killed", "killed over a commit"} {
		if seen[what] == 0 {
			t.Errorf("%s: never", what)
		}
	}
}
