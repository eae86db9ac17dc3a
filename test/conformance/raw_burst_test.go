package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/conformance/node"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// wish is one request of the burst and what must be true of its answer.
type wish struct {
	operation string
	body      amqp.Map
	judge     func(e *rawEnv, a *raw.Answer)
}

// burst is 10,000 requests of all kinds that a client has under way at a time, and what they must leave behind.
type burst struct {
	e          *rawEnv
	q          string
	wishes     []wish
	scheduled  atomic.Int64 // accepted
	doomed     []int64
	locked     []amqp.UUID
	deferred   []int64
	twice      map[string]int // successes of what may succeed once
	unexpected int
	kills      int
}

const burstRequests = 10_000

// add gives the burst a request whose answer must have one of the codes.
func (b *burst) add(operation string, body amqp.Map, codes ...int64) *wish {
	b.wishes = append(b.wishes, wish{operation: operation, body: body, judge: func(e *rawEnv, a *raw.Answer) {
		for _, code := range codes {
			if a.Code == code {
				return
			}
		}
		if b.unexpected++; b.unexpected < 10 {
			e.Errorf("%s: %d %s %s, want one of %v", operation, a.Code, a.Condition, a.Text, codes)
		}
	}})
	return &b.wishes[len(b.wishes)-1]
}

// once adds the same request n times: one of them must succeed, and the others must be refused with a code.
func (b *burst) once(n int, refusal int64, operation string, body amqp.Map) {
	key := fmt.Sprint(operation, len(b.wishes))
	for range n {
		w := b.add(operation, body, 200, refusal)
		inner := w.judge
		w.judge = func(e *rawEnv, a *raw.Answer) {
			inner(e, a)
			if a.Code == 200 {
				b.twice[key]++
			}
		}
	}
	b.twice[key] += 0
}

// prepare stores what the burst works on.
func (b *burst) prepare() {
	e := b.e
	tx, a := e.sender(b.q), e.asker(b.q)
	for i := range 1_000 {
		answer := e.ask(a, 200, "schedule-message", fields("messages", amqp.List{
			fields("message", annotatedTime(encode(fmt.Sprint("doomed ", i))))}))
		v, _ := answer.Body.Get("sequence-numbers")
		b.doomed = append(b.doomed, v.([]int64)...)
	}
	for i := range 1_500 {
		e.c.Transfer(tx, amqp.FormatAMQP, true, nil, encode(fmt.Sprint("message ", i)))
	}
	rx := e.receiver(b.q, nil)
	for i := range 1_500 {
		m := e.take(rx)
		if i >= 1_000 {
			v, _ := m.Parts.Annotation("x-opt-sequence-number")
			n, _ := v.Int64()
			b.deferred = append(b.deferred, n)
			e.settle(m, amqp.Modified{UndeliverableHere: amqp.Some(true)})
			continue
		}
		b.locked = append(b.locked, m.Token)
	}
}

// compose writes the requests, kind by kind, and mixes them.
func (b *burst) compose() {
	for i, n := range b.doomed { // a fifth of them twice
		b.once(1+i%5/4, 404, "cancel-scheduled-message", fields("sequence-numbers", []int64{n}))
	}
	for i, token := range b.locked {
		tokens := []amqp.UUID{token}
		if i%2 == 0 {
			b.once(1+i%5/4, 410, "update-disposition", fields("disposition-status", "completed", "lock-tokens", tokens))
			continue
		}
		b.add("renew-lock", fields("lock-tokens", tokens), 200)
		b.add("renew-lock", fields("lock-tokens", tokens), 200)
	}
	for i, n := range b.deferred {
		b.once(1+i%5/4, 404, "receive-by-sequence-number",
			fields("sequence-numbers", []int64{n}, "receiver-settle-mode", uint32(0)))
	}
	for range 1_000 {
		b.add("peek-message", fields("from-sequence-number", int64(0), "message-count", int32(1)), 200, 204)
		b.add("renew-lock", fields("lock-tokens", []amqp.UUID{{1}}), 410)
		b.add("set-session-state", fields("session-id", "s", "session-state", []byte("x")), 400)
		b.add("no-such-operation", fields(), 501)
	}
	for i := range burstRequests - len(b.wishes) {
		w := b.add("schedule-message", fields("messages", amqp.List{
			fields("message", annotatedTime(encode(fmt.Sprint("scheduled ", i))))}), 200)
		inner := w.judge
		w.judge = func(e *rawEnv, a *raw.Answer) {
			if inner(e, a); a.Code == 200 {
				b.scheduled.Add(1)
			}
		}
	}
	mixed := make([]wish, 0, len(b.wishes))
	for step := range 97 { // every 97th, from each beginning: kinds alternate
		for i := step; i < len(b.wishes); i += 97 {
			mixed = append(mixed, b.wishes[i])
		}
	}
	b.wishes = mixed
}

// run has all requests under way as soon as there is credit, and judges each answer once.
func (b *burst) run() {
	e := b.e
	a := e.asker(b.q)
	answered := make([]bool, len(b.wishes))
	for sent, done := 0, 0; done < len(b.wishes); {
		for sent < len(b.wishes) {
			_, ok, err := a.Send(b.wishes[sent].operation, nil, b.wishes[sent].body)
			e.must("send", err)
			if !ok {
				break
			}
			sent++
		}
		got, err := a.Take()
		e.must(fmt.Sprintf("%d of %d answered, %d sent", done, len(b.wishes), sent), err)
		if got == nil {
			continue
		}
		e.check(got.ID < uint64(sent) && !answered[got.ID], "request %d was answered twice, or never sent", got.ID)
		answered[got.ID] = true
		done++
		b.wishes[got.ID].judge(e, got)
	}
}

// audit compares what is there with what was answered.
func (b *burst) audit() {
	e := b.e
	for key, n := range b.twice {
		e.check(n == 1, "%s succeeded %d times", key, n)
	}
	e.check(b.unexpected == 0, "%d answers were not what must be true", b.unexpected)
	p, err := e.admin(0).GetQueueRuntimeProperties(e.ctx, b.q, nil)
	e.must("count", err)
	completed := (len(b.locked) + 1) / 2
	e.check(int64(p.ScheduledMessageCount) == b.scheduled.Load(), "%d are scheduled, %d were answered", p.ScheduledMessageCount, b.scheduled.Load())
	left := int64(len(b.locked)-completed) + b.scheduled.Load()
	e.check(p.TotalMessageCount == left, "%d messages are left, want %d", p.TotalMessageCount, left)
}

// S-340, S-341, S-347: 10,000 requests of one client, kinds mixed, are answered once each and truly; no link is ended; another
// connection is served meanwhile. With three nodes leaders are killed while they are under way.
func TestTenThousandRequests(t *testing.T) {
	for _, count := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", count), func(t *testing.T) {
			if !*oneCaseAtATime {
				t.Parallel()
			}
			ctx, cancel := context.WithTimeout(t.Context(), startLimit)
			defer cancel()
			cluster, err := node.StartCluster(ctx, t.TempDir(), count)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { end(t, cluster) })
			e := &rawEnv{env: newEnv(t, cluster, false, 0), wire: raw.Plain}
			ctx, cancel = context.WithTimeout(t.Context(), 10*time.Minute)
			t.Cleanup(cancel)
			e.ctx = ctx
			b := &burst{e: e, q: e.queue(&admin.QueueProperties{LockDuration: to("PT5M")}), twice: map[string]int{}}
			first, err := b.leader()
			e.must("find the leader", err)
			e.first = slices.Index(cluster.Nodes, first) + 1 // the client's node is another, if there is one
			e.c = e.connect(0)
			b.prepare()
			b.compose()
			e.check(len(b.wishes) == burstRequests, "%d requests", len(b.wishes))
			stop := make(chan struct{})
			beside := make(chan error, 1)
			go func() { beside <- b.beside(stop) }()
			killed := make(chan error, 1)
			go func() { killed <- b.killLeaders(stop) }()
			b.run()
			close(stop)
			e.must("another connection", <-beside)
			e.must("kill leaders", <-killed)
			e.check(count == 1 || b.kills > 0, "no leader was killed meanwhile")
			t.Logf("%d leaders killed", b.kills)
			b.audit()
		})
	}
}

// beside is another connection that asks for something small, again and again: it must be answered each time.
func (b *burst) beside(stop <-chan struct{}) error {
	c, err := raw.Dial(b.e.ctx, b.e.node(0), b.e.wire)
	if err != nil {
		return err
	}
	defer c.Close()
	a, err := c.Asker(b.q)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		select {
		case <-stop:
			if n == 0 {
				return fmt.Errorf("it was not served once")
			}
			return nil
		default:
		}
		got, err := a.Ask("peek-message", nil, fields("from-sequence-number", int64(0), "message-count", int32(1)))
		if err != nil {
			return err
		}
		if got.Code != 200 {
			return fmt.Errorf("peek %d: %d %s %s", n, got.Code, got.Condition, got.Text)
		}
	}
}

// killLeaders kills the leader of the queue's partition, unless the client is connected to it, and starts it again.
func (b *burst) killLeaders(stop <-chan struct{}) error {
	c := b.e.cluster
	if len(c.Nodes) == 1 {
		return nil
	}
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(time.Second):
		}
		n, err := b.leader()
		if err != nil || n == b.e.node(0) {
			continue
		}
		n.Kill()
		b.kills++
		if err := n.Start(); err != nil {
			return err
		}
		if err := n.WaitReady(b.e.ctx); err != nil {
			return err
		}
	}
}

func (b *burst) leader() (*node.Node, error) {
	s, err := b.e.cluster.Status(b.e.ctx)
	if err != nil {
		return nil, err
	}
	for _, entity := range s.Entities {
		for _, p := range s.Partitions {
			if entity.Name == b.q && p.ID == entity.Shares[0] {
				return b.e.cluster.NodeOf(b.e.ctx, p.Leader)
			}
		}
	}
	return nil, fmt.Errorf("no leader of %s", b.q)
}
