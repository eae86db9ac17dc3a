package conformance

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
)

// largeMB is the size of the messages here, as the service counts: 100 is the most that an entity takes.
var largeMB = flag.Int("large", 20, "megabytes of a large message; 100 is the limit")

// largeLimit bounds one step with a large message, which a killed leader may make longer.
const largeLimit = 4 * time.Minute

const (
	// largeLock is longer than a message of 100 MB is under way. A message that a killed node was handing out
	// stays locked for that long: its client may have it.
	largeLock = "PT30S"
	// firstLife is shorter than the sending of a large message takes.
	firstLife = 300 * time.Millisecond
	lastLife  = 40 * time.Second
)

// largeBody is a body that no compression and no mix-up of its parts leaves as it is.
func largeBody() []byte {
	b := make([]byte, *largeMB<<20-4096)
	var seed [32]byte
	copy(seed[:], "large")
	_, _ = rand.NewChaCha8(seed).Read(b)
	return b
}

// S-226, RUL-25: a message as large as an entity may take is sent through one node, dead-lettered,
// forwarded and received through others, whole, once, and one at a time with small ones beside it, while
// leaders are killed.
func TestALargeMessageSurvivesItsLeaders(t *testing.T) {
	t.Parallel()
	c := startThree(t)
	e := newEnv(t, c, false, 0)
	var stop context.CancelFunc
	e.ctx, stop = context.WithTimeout(t.Context(), 3*largeLimit)
	defer stop()

	props := func(p admin.QueueProperties) *admin.QueueProperties {
		p.MaxMessageSizeInKilobytes, p.LockDuration = to(int64(102_400)), to(largeLock)
		p.RequiresDuplicateDetection = to(true) // a send of which nobody knows the outcome is done again
		return &p
	}
	final := e.queue(props(admin.QueueProperties{}))
	dead := e.queue(props(admin.QueueProperties{ForwardDeadLetteredMessagesTo: &final}))
	first := e.queue(props(admin.QueueProperties{ForwardTo: &dead}))
	body := largeBody()
	want := sha256.Sum256(body)
	kills := 0

	kills += e.killLeaders(func() {
		s := e.sender(e.client(0), first)
		e.must("send", again(e, func() error {
			return s.SendMessage(e.ctx, &azservicebus.Message{MessageID: to("large"), Body: body}, nil)
		}))
	})
	var reason = "reason of a large one"
	kills += e.killLeaders(func() {
		r := e.receiver(e.client(1), dead, nil)
		e.settleOnce(r, func(m *azservicebus.ReceivedMessage) error {
			e.check(sha256.Sum256(m.Body) == want, "the body of %d bytes is another one", len(m.Body))
			return r.DeadLetterMessage(e.ctx, m, &azservicebus.DeadLetterOptions{Reason: &reason})
		})
	})
	kills += e.killLeaders(func() {
		r := e.receiver(e.client(2), final, nil)
		e.settleOnce(r, func(m *azservicebus.ReceivedMessage) error {
			e.check(sha256.Sum256(m.Body) == want && m.MessageID == "large" && deref(m.DeadLetterReason) == reason,
				"got %d bytes, id %q, reason %q", len(m.Body), m.MessageID, deref(m.DeadLetterReason))
			return r.CompleteMessage(e.ctx, m, nil)
		})
		e.none(r)
	})
	e.check(kills > 0, "no leader was killed")
	e.Logf("%d leaders were killed", kills)
	e.none(e.receiver(e.client(0), dead, nil))
}

// errNothing says that a receive ended without a message, as it does when its link is lost.
var errNothing = errors.New("no message")

// again repeats what a lost leader made fail for a time.
func again(e *env, f func() error) (err error) {
	for e.ctx.Err() == nil {
		if err = f(); err == nil {
			return nil
		}
		e.Logf("again after: %v", err)
		time.Sleep(time.Second) // the client's own pause
	}
	return err
}

// settleOnce receives the only message of a queue and settles it, again and again until that is known to be
// done: a settlement that failed may have been done all the same, and then the queue is empty.
func (e *env) settleOnce(r *azservicebus.Receiver, settle func(*azservicebus.ReceivedMessage) error) {
	e.Helper()
	tried := false
	e.must("settle", again(e, func() error {
		if tried {
			if left, err := r.PeekMessages(e.ctx, 1, nil); err != nil || len(left) == 0 {
				return err
			}
		}
		// Once settled, no message will come: the wait ends.
		ctx, cancel := context.WithTimeout(e.ctx, largeLimit)
		defer cancel()
		got, err := r.ReceiveMessages(ctx, 1, nil)
		if err != nil || len(got) == 0 {
			return errors.Join(err, errNothing)
		}
		tried = true
		return settle(got[0])
	}))
}

// killLeaders runs f and meanwhile kills, one after the other, a node that leads and starts it again. The
// nodes live twice as long each time, so that however slow the machine is, one life is long enough for a message.
// It returns the number of kills.
func (e *env) killLeaders(f func()) (kills int) {
	e.Helper()
	done, over := make(chan struct{}), sync.WaitGroup{}
	over.Go(func() {
		for live := firstLife; ; live = min(2*live, lastLife) {
			select {
			case <-done:
				return
			case <-time.After(live):
			}
			n := e.aLeader(kills)
			if n == nil {
				continue
			}
			n.Kill()
			kills++
			if err := n.Start(); err != nil {
				e.Errorf("start %s: %v", n.ID, err)
				return
			}
			wait, cancel := context.WithTimeout(e.ctx, startLimit)
			err := n.WaitReady(wait)
			cancel()
			if err != nil {
				e.Errorf("%s does not come back: %v", n.ID, err)
				return
			}
		}
	})
	f()
	close(done)
	over.Wait()
	return kills
}

// aLeader finds the leader of one of the partitions, in turn; nil if none is known now.
func (e *env) aLeader(turn int) *cluster.Node {
	s, err := e.cluster.Status(e.ctx)
	if err != nil {
		return nil
	}
	leading := slices.DeleteFunc(s.Partitions, func(p cluster.Partition) bool { return p.Leader == "" || p.ID == 0 })
	if len(leading) == 0 {
		return nil
	}
	n, err := e.cluster.NodeOf(e.ctx, leading[turn%len(leading)].Leader)
	if err != nil {
		return nil
	}
	return n
}

// RUL-25: the state of a session is as large as a message of its entity.
func largeSessionState(e *env) {
	q := e.queue(&admin.QueueProperties{RequiresSession: to(true), MaxMessageSizeInKilobytes: to(int64(102_400))})
	c := e.client(1)
	e.send(e.sender(c, q), inSession("s", "m"))
	want := largeBody()
	r := e.accept(c, q, "s")
	e.must("set state", r.SetSessionState(e.ctx, want, nil))
	got, err := r.GetSessionState(e.ctx, nil)
	e.must("get state", err)
	e.check(sha256.Sum256(got) == sha256.Sum256(want), "the state of %d bytes is another one", len(got))
	e.must("clear state", r.SetSessionState(e.ctx, nil, nil))
	got, err = r.GetSessionState(e.ctx, nil)
	e.must("get state", err)
	e.check(len(got) == 0, "a state of %d bytes is left", len(got))
}

// S-226, RUL-25: sent, peeked, deferred, received by number and completed, through two nodes.
func largeMessage(e *env) {
	q := e.queue(&admin.QueueProperties{MaxMessageSizeInKilobytes: to(int64(102_400))})
	body := largeBody()
	want := sha256.Sum256(body)
	e.send(e.sender(e.client(0), q), &azservicebus.Message{Body: body})
	r := e.receiver(e.client(1), q, nil)
	peeked, err := r.PeekMessages(e.ctx, 1, nil)
	e.must("peek", err)
	e.check(len(peeked) == 1 && sha256.Sum256(peeked[0].Body) == want, "peeked %d messages", len(peeked))
	m := e.one(r)
	e.check(sha256.Sum256(m.Body) == want, "the body of %d bytes is another one", len(m.Body))
	e.must("defer", r.DeferMessage(e.ctx, m, nil))
	again, err := r.ReceiveDeferredMessages(e.ctx, []int64{*m.SequenceNumber}, nil)
	e.must("receive deferred", err)
	e.check(len(again) == 1 && sha256.Sum256(again[0].Body) == want, "got %d deferred messages", len(again))
	e.complete(r, again...)
	e.none(r)
}

// TestSmallMessagesBesideALargeOne measures; scripts and people read what it prints. BUSBAR_BESIDE is the time
// of each half.
func TestSmallMessagesBesideALargeOne(t *testing.T) {
	half, err := time.ParseDuration(os.Getenv("BUSBAR_BESIDE"))
	if err != nil {
		t.Skip("a measurement, not a test: set BUSBAR_BESIDE=20s")
	}
	c := startThree(t)
	e := newEnv(t, c, false, 0)
	var stop context.CancelFunc
	e.ctx, stop = context.WithTimeout(t.Context(), largeLimit)
	defer stop()
	q := e.queue(&admin.QueueProperties{MaxMessageSizeInKilobytes: to(int64(102_400))})
	e.send(e.sender(e.client(0), q), text("the first one"))
	alone, _ := e.small(q, half)
	most, over := make([]int64, len(c.Nodes)), make(chan struct{})
	body := largeBody()
	var large sync.WaitGroup
	times := 0
	base := make([]int64, len(c.Nodes))
	for i, n := range c.Nodes {
		base[i], _ = n.RSS()
	}
	large.Go(func() {
		s := e.sender(e.client(0), q)
		for {
			began := time.Now()
			e.must("send a large one", s.SendMessage(e.ctx, &azservicebus.Message{Body: body}, nil))
			e.Logf("a message of %d MB took %v", *largeMB, time.Since(began))
			times++
			select {
			case <-over:
				return
			default:
			}
		}
	})
	large.Go(func() {
		for {
			for i, n := range c.Nodes {
				rss, _ := n.RSS()
				most[i] = max(most[i], rss)
			}
			select {
			case <-over:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	beside, n := e.small(q, half)
	close(over)
	large.Wait()
	e.Logf("alone:  %v", alone)
	e.Logf("beside: %v, %d small messages, %d large ones", beside, n, times)
	for i := range most {
		e.Logf("%s: resident %d MiB, at most %d", c.Nodes[i].ID, base[i]>>20, most[i]>>20)
	}
}

// small sends 2,000 messages of 1 KiB a second and returns the median, p99 and p99.9 of what each took.
func (e *env) small(queue string, d time.Duration) ([3]time.Duration, int) {
	e.Helper()
	const senders, every = 80, 40 * time.Millisecond
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	var clients []*azservicebus.Client
	for i := range 4 {
		clients = append(clients, e.client(i))
	}
	for i := range senders {
		s := e.sender(clients[i%len(clients)], queue)
		all.Go(func() {
			time.Sleep(every * time.Duration(i) / senders)
			t := time.NewTicker(every)
			defer t.Stop()
			for until := time.Now().Add(d); time.Now().Before(until); <-t.C {
				began := time.Now()
				if err := s.SendMessage(e.ctx, &azservicebus.Message{Body: make([]byte, 1024)}, nil); err != nil {
					e.Errorf("send: %v", err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	at := func(n int) time.Duration { return took[len(took)*n/1000] }
	return [3]time.Duration{at(500), at(990), at(999)}, len(took)
}
