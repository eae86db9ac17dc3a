package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// paused is a cluster whose node n2 leads all that is used and is about to be paused, and a node that is
// asked meanwhile.
type paused struct {
	t    *testing.T
	b    *brokers
	via  *broker
	dest *fsm.Descriptor // a queue that holds a deferred, a scheduled and a locked message
	wait *fsm.Descriptor // an empty queue
	sess *fsm.Descriptor // a queue with sessions, one of them held
	from *fsm.Descriptor // forwards to dest; its leader is not paused
	held fsm.SessionProof
	// The numbers and the lock of the messages in dest.
	deferred, scheduled, locked fsm.SequenceNumber
	token                       fsm.LockToken
	requests                    int
}

const pausedNode = "n2"

func newPaused(t *testing.T, b *brokers) *paused {
	t.Helper()
	p := &paused{t: t, b: b, via: b.all["n1"]}
	ctx := shortly(t, time.Minute)
	create := func(name string, change func(*fsm.Descriptor)) *fsm.Descriptor {
		d := queue(name, false)
		change(&d)
		return b.createQueue(ctx, "n1", d)
	}
	p.dest = create("dest", func(*fsm.Descriptor) {})
	p.wait = create("wait", func(*fsm.Descriptor) {})
	p.sess = create("sess", func(d *fsm.Descriptor) { d.RequiresSession = true })
	p.from = create("from", func(d *fsm.Descriptor) { d.ForwardTo = "dest" })
	apart := p.from.Partitions[0]
	if slices.Contains([]fsm.PartitionID{p.dest.Partitions[0], p.wait.Partitions[0], p.sess.Partitions[0]}, apart) {
		t.Fatal("the source of the forward shares a partition with what is paused")
	}
	for _, part := range []fsm.PartitionID{fsm.CatalogPartition, 1, 2, 3, 4} {
		to := fsm.NodeID(pausedNode)
		if part == apart {
			to = "n1"
		}
		for b.leader(part).Node() != to {
			_ = b.all["n1"].host.TransferLeadership(ctx, part, to) // asked again until it has happened
			time.Sleep(time.Second)
		}
	}
	for range 3 {
		sendOne(t, p.via.r, p.id(), fsm.Key{Entity: p.dest.ID})
	}
	o := p.must(p.dest, &fsm.Lock{Max: 2})
	p.deferred, p.locked, p.token = o.Locked[0].Seq, o.Locked[1].Seq, o.Locked[1].Token
	p.must(p.dest, &fsm.Settle{Items: []fsm.SettleItem{
		{Seq: p.deferred, Token: o.Locked[0].Token, Verdict: fsm.Defer}}})
	later := fsm.Wall(time.Now().Add(time.Hour).UnixMilli())
	p.scheduled = p.must(p.dest, &fsm.Enqueue{Messages: []fsm.Message{{ScheduledAt: later, Body: []byte("x")}}}).Numbers[0]
	p.must(p.sess, &fsm.Enqueue{Messages: []fsm.Message{{HasSession: true, SessionID: "held", Body: []byte("x")}}})
	p.held = p.must(p.sess, &fsm.AcceptSession{ID: "held"}).Session
	return p
}

func (p *paused) id() fsm.RequestID {
	p.requests++
	return reqOf(0, p.requests, 1)
}

// must proposes and wants no refusal.
func (p *paused) must(d *fsm.Descriptor, c fsm.Command) fsm.Outcome {
	p.t.Helper()
	o, err := p.via.r.Propose(shortly(p.t, time.Minute), p.id(), fsm.Key{Entity: d.ID}, c)
	if err != nil || o.Refusal != fsm.None {
		p.t.Fatalf("%T: %+v, %v", c, o, err)
	}
	return o
}

// request is something under way while the leader is paused. It answers with what is wrong.
type request struct {
	name string
	do   func(ctx context.Context) error
	// slack is how much longer than the others it may take.
	slack time.Duration
}

// proposal is a request that proposes; ok judges its outcome.
func (p *paused) proposal(name string, d *fsm.Descriptor, c fsm.Command, ok func(*fsm.Outcome) bool) request {
	id := p.id()
	return request{name: name, do: func(ctx context.Context) error {
		o, err := p.via.r.Propose(ctx, id, fsm.Key{Entity: d.ID}, c)
		if err == nil && (o.Refusal != fsm.None || !ok(&o)) {
			err = fmt.Errorf("outcome %+v", o)
		}
		return err
	}}
}

func (p *paused) query(name string, d *fsm.Descriptor, q fsm.Query, ok func(*fsm.Answer) bool) request {
	return request{name: name, do: func(ctx context.Context) error {
		a, err := p.via.r.Query(ctx, fsm.Key{Entity: d.ID}, q)
		if err == nil && (a.Refusal != fsm.None || !ok(&a)) {
			err = fmt.Errorf("answer %+v", a)
		}
		return err
	}}
}

// await is answered when whom to ask has changed.
func (p *paused) await(name string) request {
	return request{name: name, do: func(ctx context.Context) error {
		return p.via.r.Await(ctx, fsm.Key{Entity: p.wait.ID})
	}}
}

// kinds returns one request of each kind that is answered as soon as somebody leads.
func (p *paused) kinds() []request {
	any := func(*fsm.Outcome) bool { return true }
	one := func(o *fsm.Outcome) bool { return len(o.Locked) == 1 }
	moved := p.id()
	return []request{
		p.proposal("send", p.dest, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("sent")}}},
			func(o *fsm.Outcome) bool { return len(o.Numbers) == 1 }),
		p.proposal("lock", p.dest, &fsm.Lock{Max: 1}, one),
		p.proposal("settle", p.dest, &fsm.Settle{Items: []fsm.SettleItem{
			{Seq: p.locked, Token: p.token, Verdict: fsm.Complete}}},
			func(o *fsm.Outcome) bool { return len(o.Refusals) == 1 && o.Refusals[0] == fsm.None }),
		p.proposal("receive deferred", p.dest, &fsm.Receive{Numbers: []fsm.SequenceNumber{p.deferred}}, one),
		p.proposal("cancel", p.dest, &fsm.Cancel{Numbers: []fsm.SequenceNumber{p.scheduled}}, any),
		p.proposal("set session state", p.sess, &fsm.SetSessionState{Session: p.held, State: []byte("s")}, any),
		p.proposal("renew session", p.sess, &fsm.RenewSession{Session: p.held}, any),
		p.query("peek", p.dest, &fsm.Peek{From: p.deferred, Max: 1}, func(a *fsm.Answer) bool { return len(a.Messages) == 1 }),
		p.query("counts", p.sess, &fsm.Counts{}, func(a *fsm.Answer) bool { return a.Counts.Active == 1 }),
		{name: "counts of all shares", do: func(ctx context.Context) error {
			c, complete, err := p.via.r.Counts(ctx, p.sess)
			if err == nil && (!complete || c.Active != 1) {
				err = fmt.Errorf("counts %+v, complete %v", c, complete)
			}
			return err
		}},
		{name: "get an entity", do: func(ctx context.Context) error {
			_, err := p.via.dir.Get(ctx, "dest")
			return err
		}},
		{name: "look up what is not there", do: func(ctx context.Context) error {
			if _, err := p.via.dir.Entity(ctx, "nowhere"); !errors.Is(err, fsm.ErrNoEntity) {
				return fmt.Errorf("got %w, want %w", err, fsm.ErrNoEntity)
			}
			return nil
		}},
		{name: "list entities", do: func(ctx context.Context) error {
			_, err := p.via.dir.List(ctx, fsm.Queue, 0, -1)
			return err
		}},
		{name: "forward", do: func(ctx context.Context) error {
			k := fsm.Key{Entity: p.from.ID} // led by a node that is not paused
			_, err := p.via.r.Propose(ctx, moved, k, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("x")}}})
			for err == nil {
				var a fsm.Answer
				a, err = p.via.r.Query(ctx, k, &fsm.Counts{})
				if a.Counts.Active+a.Counts.Transfer == 0 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			return err
		}},
		// A change waits for nodes that do not answer, see publishTimeout.
		{name: "create an entity", slack: publishTimeout, do: func(ctx context.Context) error {
			_, err := p.via.dir.Create(ctx, queue("made", false))
			return err
		}},
		{name: "change an entity", slack: publishTimeout, do: func(ctx context.Context) error {
			d := *p.wait
			d.MaxDelivery = 3
			_, err := p.via.dir.Update(ctx, d)
			return err
		}},
		p.await("ask for a hint"),
	}
}

// asked are requests that were made and whose ends are awaited.
type asked struct {
	requests []request
	done     chan ended
}

type ended struct {
	index int
	at    time.Time
	err   error
}

// answeredWithin is how long after the news of another leader a request may take.
const answeredWithin = 200 * time.Millisecond

// answered wants an answer of each request soon after a time.
func (u *asked) answered(t *testing.T, since time.Time) {
	t.Helper()
	open := map[int]bool{}
	for i := range u.requests {
		open[i] = true
	}
	for patience := time.After(10 * time.Second); len(open) > 0; {
		select {
		case e := <-u.done:
			r := u.requests[e.index]
			if late := e.at.Sub(since) - r.slack - answeredWithin; e.err != nil || late > 0 {
				t.Errorf("%s: %v too late, %v", r.name, max(late, 0), e.err)
			}
			delete(open, e.index)
		case <-patience:
			for i := range open {
				t.Errorf("%s: no answer while the pause lasts", u.requests[i].name)
			}
			return
		}
	}
}

// A request that is under way to a leader that is paused is asked again as soon as another node is known to
// lead. The network of this test never gives a call up, so nothing else ends one. S-296, S-299.
func TestRequestsLeaveAPausedLeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		p := newPaused(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		run := func(rs ...request) *asked {
			u := &asked{requests: rs, done: make(chan ended, len(rs))}
			for i, r := range rs {
				go func() {
					err := r.do(ctx)
					u.done <- ended{i, time.Now(), err}
				}()
			}
			return u
		}

		// These wait at the leader, and are parked anew at the next one for what is left of their time.
		parked := run(
			p.proposal("wait for a message", p.wait, &fsm.Lock{Max: 1, Wait: 600_000},
				func(o *fsm.Outcome) bool { return len(o.Locked) == 1 }),
			p.proposal("wait for a session", p.sess, &fsm.AcceptSession{Next: true, Wait: 600_000},
				func(o *fsm.Outcome) bool { return o.Session.ID == "late" }))
		hint := run(p.await("wait for a hint"))
		kinds := p.kinds()
		synctest.Wait()
		b.net.Freeze(pausedNode, true)
		defer b.net.Heal()
		simple := run(kinds...)
		p.leaders(pausedNode)
		known := time.Now()
		simple.answered(t, known)
		hint.answered(t, known)

		sendOne(t, p.via.r, p.id(), fsm.Key{Entity: p.wait.ID})
		p.must(p.sess, &fsm.Enqueue{Messages: []fsm.Message{{HasSession: true, SessionID: "late", Body: []byte("x")}}})
		parked.answered(t, time.Now())

		// One effect each: the message that is left of three, the one sent and the one forwarded.
		c, complete, err := p.via.r.Counts(ctx, p.dest)
		if err != nil || !complete || c.Active != 3 || c.Scheduled != 0 || c.Deferred != 1 {
			t.Errorf("counts %+v, complete %v, %v", c, complete, err)
		}
		b.net.Freeze(pausedNode, false)
		b.leader(1)
	})
}

// leaders waits until every partition is led by another node than the one, as the asked node knows.
func (p *paused) leaders(other fsm.NodeID) {
	p.t.Helper()
	limit := time.Now().Add(time.Minute)
	for _, part := range []fsm.PartitionID{fsm.CatalogPartition, 1, 2, 3, 4} {
		p.b.leader(part, other)
		for id := p.via.host.believed(part); id == "" || id == other; id = p.via.host.believed(part) {
			if time.Now().After(limit) {
				p.t.Fatalf("no other leader of partition %d is known", part)
			}
			time.Sleep(time.Millisecond)
		}
	}
}
