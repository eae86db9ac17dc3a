package partition

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// A connection between nodes breaks with the answer to a request on it. The request had waited for what it got, and there is
// nothing else now. Asked again, it gets the same answer, and does not wait for more. A6, S-308.
func TestALostAnswerIsGivenAgainWhereNothingElseWaits(t *testing.T) {
	eachTaker(t, 1, answerIsLost)
}

// eachTaker runs f with each request that takes something and waits for it, once begun and once proposed.
func eachTaker(t *testing.T, most uint32, f func(t *testing.T, b *brokers, c fsm.Command, begins bool)) {
	for name, c := range map[string]fsm.Command{
		"receive":            &fsm.Lock{Max: most, Wait: 30_000},
		"receive and delete": &fsm.Lock{Max: most, Delete: true, Wait: 30_000},
		"accept":             &fsm.AcceptSession{Next: true, Wait: 30_000},
	} {
		for _, begins := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, begun %v", name, begins), func(t *testing.T) {
				cluster3(t, func(t *testing.T, b *brokers, _ *fsm.Descriptor) { f(t, b, c, begins) })
			})
		}
	}
}

// ask has a router make the first request of pump 1.
func ask(ctx context.Context, r *Router, k fsm.Key, c fsm.Command, begins bool) (fsm.Outcome, error) {
	id := fsm.RequestID{Node: 9, Pump: 1, Counter: 1}
	if begins {
		return beginAt(r, id, k, c).wait(ctx)
	}
	return r.Propose(ctx, id, k, c)
}

func answerIsLost(t *testing.T, b *brokers, c fsm.Command, begins bool) {
	q, message := queue("again", false), fsm.Message{Body: []byte("a")}
	if _, is := c.(*fsm.AcceptSession); is {
		q.RequiresSession, message.HasSession, message.SessionID = true, true, "s"
	}
	ctx := shortly(t, time.Minute)
	d := b.createQueue(ctx, "n1", q)
	leader := b.leader(d.Partitions[0]).Node()
	via := b.others(leader)[0]
	r, k := b.all[via].r, fsm.Key{Entity: d.ID, By: fsm.ByShare}
	b.net.SetDelay(20*time.Millisecond, 0)
	began := time.Now()
	answer := make(chan fsm.Outcome)
	go func() {
		o, err := ask(ctx, r, k, c, begins)
		if err != nil || o.Refusal != fsm.None {
			t.Errorf("%+v, %v", o, err)
		}
		answer <- o
	}()
	time.Sleep(time.Second)
	send := &fsm.Enqueue{Messages: []fsm.Message{message}}
	if o, err := b.all[leader].r.Propose(ctx, fsm.RequestID{Node: 9, Pump: 2, Counter: 1}, k, send); err != nil || o.Refusal != fsm.None {
		t.Fatalf("send: %+v, %v", o, err)
	}
	time.Sleep(5 * time.Millisecond) // the answer is on its way
	b.net.SetCut(leader, via, true)
	time.Sleep(time.Millisecond)
	b.net.SetCut(leader, via, false)
	o := <-answer
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("answered after %v", took)
	}
	if !o.Repeated {
		t.Error("the answer was not lost: this test shows nothing")
	}
	if _, is := c.(*fsm.AcceptSession); is {
		if o.Session.ID != "s" {
			t.Errorf("accepted %+v", o.Session)
		}
		return
	}
	if got := bodies(o); len(got) != 1 || got[0] != "a" {
		t.Errorf("received %q", got)
	}
}

// A client leaves while its node cannot reach the leader, and its receive was not done. The node asks what it took, and that takes
// nothing: messages that have come meanwhile are there for others. A18, S-142.
func TestAClientThatHasGoneIsGivenNothingNew(t *testing.T) {
	eachTaker(t, 100, clientLeaves)
}

func clientLeaves(t *testing.T, b *brokers, c fsm.Command, begins bool) {
	_, accepts := c.(*fsm.AcceptSession)
	q := queue("again", false)
	q.RequiresSession = accepts
	ctx := shortly(t, time.Minute)
	d := b.createQueue(ctx, "n1", q)
	leader := b.leader(d.Partitions[0]).Node()
	via, other := b.others(leader)[0], b.others(leader)[1]
	k := fsm.Key{Entity: d.ID, By: fsm.ByShare}
	client, leaves := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o, err := ask(client, b.all[via].r, k, c, begins)
		if len(o.Locked) > 0 || o.Session.ID != "" {
			t.Errorf("the client that has gone is given %+v, %v", o, err)
		}
		want := fsm.None
		if accepts {
			want = fsm.NoSession
		}
		if err == nil && o.Refusal != want {
			t.Errorf("refusal %d, %q, want %d", o.Refusal, o.Detail, want)
		}
	}()
	time.Sleep(time.Second) // the request is parked at the leader
	cut := func(is bool) {
		b.net.SetCut(leader, via, is)
		b.net.SetCut(via, leader, is)
	}
	cut(true)
	time.Sleep(300 * time.Millisecond)
	leaves()
	time.Sleep(300 * time.Millisecond)
	propose := func(pump uint64, c fsm.Command) fsm.Outcome {
		o, err := b.all[other].r.Propose(ctx, fsm.RequestID{Node: 8, Pump: pump, Counter: 1}, k, c)
		if err != nil || o.Refusal != fsm.None {
			t.Errorf("%T: %+v, %v", c, o, err)
		}
		return o
	}
	send := &fsm.Enqueue{}
	for _, text := range []string{"a", "b", "c"} {
		m := fsm.Message{Body: []byte(text), HasSession: accepts}
		if accepts {
			m.SessionID = "s"
		}
		send.Messages = append(send.Messages, m)
	}
	propose(1, send)
	cut(false)
	<-ended
	if accepts {
		if o := propose(2, &fsm.AcceptSession{ID: "s"}); o.Session.ID != "s" {
			t.Errorf("another client accepts %+v", o.Session)
		}
		return
	}
	o := propose(2, &fsm.Lock{Max: 10})
	if got := bodies(o); !slices.Equal(got, []string{"a", "b", "c"}) || o.Locked[0].Attempts != 0 {
		t.Errorf("another client receives %q: %+v", got, o.Locked)
	}
}

// S-314: messages without a key go to all shares in turn, also where a request is too large to be begun.
func TestLargeMessagesGoToAllShares(t *testing.T) {
	const each = 15
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		ctx := shortly(t, 10*time.Minute)
		for _, size := range []int{100, 100 << 10} {
			for node, via := range b.ids {
				of, begun := map[fsm.PartitionID]int{}, 0
				for i := range each * len(d.Partitions) {
					id := fsm.RequestID{Node: fsm.Incarnation(10 + node), Pump: uint64(size), Counter: uint64(i + 1)}
					k, c := fsm.Key{Entity: d.ID, By: fsm.ByAny}, &fsm.Enqueue{Messages: []fsm.Message{{Body: make([]byte, size)}}}
					var o fsm.Outcome
					var err error
					if one := beginAt(b.all[via].r, id, k, c); one != nil {
						begun++
						o, err = one.wait(ctx)
					} else {
						o, err = b.all[via].r.Propose(ctx, id, k, c)
					}
					if err != nil || len(o.Numbers) != 1 {
						t.Fatalf("%d bytes through %s: %+v, %v", size, via, o, err)
					}
					of[o.Numbers[0].Prefix()]++
				}
				for _, p := range d.Partitions {
					if of[p] != each {
						t.Errorf("%d bytes through %s, %d begun: partition %d has %d messages, want %d", size, via, begun, p, of[p], each)
					}
				}
			}
		}
	})
}
