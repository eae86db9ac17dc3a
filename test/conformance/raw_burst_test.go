package conformance

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// wish is one request of the burst and what must be true of its answer.
type wish struct {
	at        int // the $management node: ofQueue, ofSessions or ofRules
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
	grouped    string         // the queue with sessions
	filtered   string         // the subscription with rules
	killing    chan error     // of the kill that is under way, nil before the first
	unexpected int
	kills      int
}

const (
	burstRequests = 10_000
	burstSessions = 100
	burstRules    = 100
	burstKills    = 5
)

// The $management nodes that the requests of a burst go to.
const (
	ofQueue = iota
	ofSessions
	ofRules
	managementNodes
)

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
	b.grouped = e.queue(&admin.QueueProperties{RequiresSession: to(true), LockDuration: to("PT5M")})
	for i := range burstSessions {
		e.receiver(b.grouped, fmt.Sprint("session ", i))
	}
	_, filtered, rules := e.topicOf()
	b.filtered = filtered
	for i := range burstRules {
		e.ask(rules, 200, "add-rule", ruleOf(fmt.Sprint("old ", i)))
	}
}

// ruleOf is the body of a request that adds a rule.
func ruleOf(name string) amqp.Map {
	return fields("rule-name", name, "rule-description", fields("correlation-filter", fields("correlation-id", name)))
}

// composeOthers writes the requests that change session states and rules.
func (b *burst) composeOthers() {
	for i := range burstSessions {
		id, first := fmt.Sprint("session ", i), len(b.wishes)
		body := fields("session-id", id, "session-state", []byte("state of "+id))
		for range 2 {
			b.add("set-session-state", body, 200)
			b.add("get-session-state", fields("session-id", id), 200)
			b.add("renew-session-lock", fields("session-id", id), 200)
		}
		for k := range b.wishes[first:] {
			b.wishes[first+k].at = ofSessions
		}
	}
	first := len(b.wishes)
	for i := range burstRules { // a fifth of them twice
		b.once(1+i%5/4, 409, "add-rule", ruleOf(fmt.Sprint("new ", i)))
		b.once(1+i%5/4, 404, "remove-rule", fields("rule-name", fmt.Sprint("old ", i)))
	}
	for k := range b.wishes[first:] {
		b.wishes[first+k].at = ofRules
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
	b.composeOthers()
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

// run has all requests under way as soon as there is credit, and judges each answer once. With three nodes it has five
// leaders killed at even distances.
func (b *burst) run() {
	e := b.e
	askers := [managementNodes]*raw.Asker{e.asker(b.q), e.asker(b.grouped), e.asker(b.filtered)}
	var waiting, sent [managementNodes][]int // numbers of wishes
	for i, w := range b.wishes {
		waiting[w.at] = append(waiting[w.at], i)
	}
	answered, done := make([]bool, len(b.wishes)), 0
	for done < len(b.wishes) {
		for at, a := range askers {
			for len(waiting[at]) > 0 {
				w := b.wishes[waiting[at][0]]
				_, ok, err := a.Send(w.operation, nil, w.body)
				e.must("send", err)
				if !ok {
					break
				}
				sent[at], waiting[at] = append(sent[at], waiting[at][0]), waiting[at][1:]
			}
			b.killAt(done)
			got := b.next(a, len(waiting[at]) > 0 || b.open(sent[at], answered))
			if got == nil {
				continue
			}
			n := got.ID
			e.check(n < uint64(len(sent[at])) && !answered[sent[at][n]], "request %d was answered twice, or never sent", n)
			answered[sent[at][n]] = true
			done++
			b.wishes[sent[at][n]].judge(e, got)
		}
	}
	if b.killing != nil {
		e.must("kill leaders", <-b.killing)
	}
}

// open reports whether one of the last requests has no answer yet.
func (b *burst) open(sent []int, answered []bool) bool {
	return slices.ContainsFunc(sent, func(i int) bool { return !answered[i] })
}

// next takes what comes next over a pair of links, if anything is awaited.
func (b *burst) next(a *raw.Asker, awaited bool) *raw.Answer {
	if !awaited {
		return nil
	}
	got, err := a.Take()
	b.e.must("wait for an answer", err)
	return got
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
	states := e.asker(b.grouped)
	for i := range burstSessions {
		id := fmt.Sprint("session ", i)
		v, _ := e.ask(states, 200, "get-session-state", fields("session-id", id)).Body.Get("session-state")
		e.check(fmt.Sprintf("%s", v) == "state of "+id, "the state of %s is %q", id, v)
	}
	filters := e.asker(b.filtered)
	v, _ := e.ask(filters, 200, "enumerate-rules", fields("top", int32(1_000), "skip", int32(0))).Body.Get("rules")
	rules, _ := v.(amqp.List)
	e.check(len(rules) == burstRules, "%d rules are left, want the %d new ones", len(rules), burstRules)
	for i := range burstRules {
		e.ask(filters, 409, "add-rule", ruleOf(fmt.Sprint("new ", i)))
	}
}

// S-340, S-341, S-347: 10,000 requests of one client, kinds mixed, session states and rules among them, are answered once each and truly; no link is ended; another
// connection is served meanwhile. With three nodes five leaders are killed while they are under way.
func TestTenThousandRequests(t *testing.T) {
	for _, count := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", count), func(t *testing.T) {
			if !*oneCaseAtATime {
				t.Parallel()
			}
			ctx, cancel := context.WithTimeout(t.Context(), startLimit)
			defer cancel()
			c, err := cluster.Start(ctx, t.TempDir(), count)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { end(t, c) })
			e := &rawEnv{env: newEnv(t, c, false, 0), wire: raw.Plain}
			ctx, cancel = context.WithTimeout(t.Context(), 10*time.Minute)
			t.Cleanup(cancel)
			e.ctx = ctx
			b := &burst{e: e, q: e.queue(&admin.QueueProperties{LockDuration: to("PT5M")}), twice: map[string]int{}}
			first, err := c.LeaderOf(b.q)
			e.must("find the leader", err)
			e.first = slices.Index(c.Nodes, first) + 1 // the client's node is another, if there is one
			e.c = e.connect(0)
			b.prepare()
			b.compose()
			e.check(len(b.wishes) == burstRequests, "%d requests", len(b.wishes))
			stop := make(chan struct{})
			beside := make(chan error, 1)
			go func() { beside <- b.beside(stop) }()
			b.run()
			close(stop)
			e.must("another connection", <-beside)
			e.check(count == 1 || b.kills == burstKills, "%d leaders were killed meanwhile, want %d", b.kills, burstKills)
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

// killAt kills a leader whenever a sixth of the requests is answered, and starts it again. The node that was killed before is
// ready again by then.
func (b *burst) killAt(done int) {
	if len(b.e.cluster.Nodes) == 1 || b.kills == burstKills || done < (b.kills+1)*len(b.wishes)/(burstKills+1) {
		return
	}
	if b.killing != nil {
		b.e.must("kill leaders", <-b.killing)
	}
	n, err := b.victim()
	b.e.must("find a leader", err)
	b.kills++
	b.killing = make(chan error, 1)
	go func() {
		n.Kill()
		time.Sleep(time.Second)
		err := n.Start()
		if err == nil {
			err = n.WaitReady(b.e.ctx)
		}
		b.killing <- err
	}()
}

// victim waits until the queue's leader is a node to which the client is not connected, and returns it. It moves the
// leadership, if need be.
func (b *burst) victim() (*cluster.Node, error) {
	c, own := b.e.cluster, b.e.node(0)
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		n, err := c.LeaderOf(b.q)
		if err == nil && n != own {
			return n, nil
		}
		if err == nil {
			err = b.lead(c.Nodes[(slices.Index(c.Nodes, own)+1+b.kills%2)%len(c.Nodes)])
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("no other node leads the queue: %w", err)
		}
	}
}

// lead moves the leadership of the queue's partition to a node.
func (b *burst) lead(to *cluster.Node) error {
	s, err := b.e.cluster.Status(b.e.ctx)
	if err != nil {
		return err
	}
	for _, entity := range s.Entities {
		if entity.Name != b.q {
			continue
		}
		url := fmt.Sprintf("http://%s/api/cluster/transfer-leader?partition=%d&to=%s", b.e.node(0).Ops, entity.Shares[0], to.ID)
		answer, err := http.Post(url, "", nil)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("transfer the leadership to %s: %s", to.ID, answer.Status)
		}
		return nil
	}
	return fmt.Errorf("%s is not in the list of entities", b.q)
}
