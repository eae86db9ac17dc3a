package failover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
)

const (
	nodes      = 3
	sessions   = 12
	kills      = 3
	testLimit  = 4 * time.Minute
	drainLimit = 90 * time.Second
	lockTime   = 20 * time.Second // of the queues

	ordered = "orders" // partitioned, with sessions
	plain   = "events"
)

// TestLeaderKilledAndNobodyNotices: S-294, S-295, S-297, S-298, S-307; T-46, T-135; RUL-2.
func TestLeaderKilledAndNobodyNotices(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	c, err := cluster.Start(ctx, t.TempDir(), nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l := begin(ctx, t, c, 3)
	for round := range kills {
		killBusiest(ctx, t, l, round)
	}
	l.end(ctx, t, 100*kills)
}

func createQueue(ctx context.Context, t *testing.T, n *cluster.Node, name string, session, partitioned bool) {
	t.Helper()
	a, err := n.Admin(false)
	if err != nil {
		t.Fatal(err)
	}
	lock := fmt.Sprintf("PT%dS", int(lockTime.Seconds()))
	_, err = a.CreateQueue(ctx, name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		RequiresSession: &session, EnablePartitioning: &partitioned, LockDuration: &lock}})
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
}

// killBusiest takes locks through a survivor, kills the leader, uses the locks, and brings the node
// back.
func killBusiest(ctx context.Context, t *testing.T, l *load, round int) {
	t.Helper()
	sleep(ctx, 2*time.Second) // load before the kill
	target, victim := busiest(ctx, t, l.cluster)
	survivor := l.cluster.Nodes[(victim+1)%nodes]
	h := holdLocks(ctx, t, survivor, round, target)

	l.down[victim].Store(true)
	l.deaths[victim].Add(1)
	dead := l.cluster.Nodes[victim]
	dead.Kill()
	began := time.Now()
	h.use(ctx, t, round)
	t.Logf("round %d: at %s partition %d lost its leader %s; locks renewed and settled %s after the change",
		round, began.Format("15:04:05.000"), target, dead.ID, time.Since(began).Round(time.Millisecond))
	sleep(ctx, 2*time.Second) // load without the node
	if err := dead.Start(); err != nil {
		t.Fatal(err)
	}
	if err := dead.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	l.down[victim].Store(false)
}

// busiest returns the data partition with the longest log and the index of the node that leads it.
func busiest(ctx context.Context, t *testing.T, c *cluster.Cluster) (partition, leader int) {
	t.Helper()
	for ctx.Err() == nil {
		s, err := c.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		data := slices.DeleteFunc(s.Partitions, func(p cluster.Partition) bool { return p.ID == 0 })
		if len(data) == 0 {
			t.Fatal("the cluster tells of no data partition")
		}
		p := slices.MaxFunc(data, func(a, b cluster.Partition) int { return cmp.Compare(a.Applied, b.Applied) })
		if p.Leader != "" {
			n, err := c.NodeOf(ctx, p.Leader)
			if err != nil {
				t.Fatal(err)
			}
			return p.ID, slices.Index(c.Nodes, n)
		}
		sleep(ctx, 100*time.Millisecond)
	}
	t.Fatal("the busiest partition has no leader")
	return 0, 0
}

// held are locks of every kind in the partition whose leader will die.
type held struct {
	message  *azservicebus.Receiver
	locked   []*azservicebus.ReceivedMessage
	session  []*azservicebus.SessionReceiver
	inFlight []*azservicebus.ReceivedMessage // one per session
}

// holdLocks spreads messages over all partitions and locks them.
func holdLocks(ctx context.Context, t *testing.T, n *cluster.Node, round, target int) held {
	t.Helper()
	const spread = 60 // so many keys miss one of six partitions once in 50,000 runs
	free, grouped := fmt.Sprintf("held-%d", round), fmt.Sprintf("held-sessions-%d", round)
	createQueue(ctx, t, n, free, false, true)
	createQueue(ctx, t, n, grouped, true, true)
	c, err := n.Client(false, once)
	fatal(t, "client of the survivor", err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	var keys []string
	for i := range spread {
		keys = append(keys, fmt.Sprintf("key-%d-%d", round, i))
	}
	for _, q := range []string{free, grouped} {
		s, err := c.NewSender(q, nil)
		fatal(t, "sender", err)
		for _, key := range keys {
			m := &azservicebus.Message{Body: []byte(key), SessionID: &key}
			if q == free {
				m = &azservicebus.Message{Body: []byte(key), PartitionKey: &key}
			}
			fatal(t, "send", s.SendMessage(ctx, m, nil))
		}
	}
	var h held
	h.message, err = c.NewReceiverForQueue(free, nil)
	fatal(t, "receiver", err)
	for len(h.locked) < spread {
		got, err := h.message.ReceiveMessages(ctx, spread-len(h.locked), nil)
		fatal(t, "receive", err)
		h.locked = append(h.locked, got...)
	}
	h.holdSessions(ctx, t, c, grouped, keys, target)
	in := func(m *azservicebus.ReceivedMessage) bool { return int(*m.SequenceNumber>>48) == target }
	if !slices.ContainsFunc(h.locked, in) || !slices.ContainsFunc(h.inFlight, in) {
		t.Fatalf("no lock in partition %d: the test would prove nothing", target)
	}
	return h
}

// holdSessions keeps up to three sessions of the target partition and two others, each with a message
// in flight, and gives the rest back.
func (h *held) holdSessions(ctx context.Context, t *testing.T, c *azservicebus.Client, queue string, keys []string, target int) {
	t.Helper()
	inside, outside := 3, 2
	for _, key := range keys {
		if inside+outside == 0 {
			return
		}
		r, err := c.AcceptSessionForQueue(ctx, queue, key, nil)
		fatal(t, "accept", err)
		got, err := r.ReceiveMessages(ctx, 1, nil)
		fatal(t, "receive in session", err)
		quota := &outside
		if int(*got[0].SequenceNumber>>48) == target {
			quota = &inside
		}
		if *quota == 0 {
			fatal(t, "give a session back", r.Close(ctx))
			continue
		}
		*quota--
		h.session = append(h.session, r)
		h.inFlight = append(h.inFlight, got...)
	}
}

// use renews and settles what was locked before. No call is repeated.
func (h *held) use(ctx context.Context, t *testing.T, round int) {
	t.Helper()
	for _, m := range h.locked {
		before := *m.LockedUntil
		fatal(t, "renew a message lock after the change", h.message.RenewMessageLock(ctx, m, nil))
		if m.LockedUntil.Before(before) {
			t.Errorf("round %d: renewing moved locked-until back", round)
		}
		fatal(t, "complete after the change", h.message.CompleteMessage(ctx, m, nil))
	}
	for i, r := range h.session {
		fatal(t, "renew a session lock after the change", r.RenewSessionLock(ctx, nil))
		fatal(t, "set session state after the change", r.SetSessionState(ctx, []byte("on"), nil))
		fatal(t, "complete in a session after the change", r.CompleteMessage(ctx, h.inFlight[i], nil))
		fatal(t, "close the session", r.Close(ctx))
	}
}

// holdOn has a client of the first node hold messages and sessions, and renew their locks, until the function that it
// returns settles them. Each renewal must succeed at the first try.
func (l *load) holdOn(ctx context.Context, t *testing.T) (settle func()) {
	t.Helper()
	h := holdLocks(ctx, t, l.cluster.Nodes[0], 0, 1)
	stop, done, renewed := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-ctx.Done():
				return
			case <-time.After(lockTime / 4):
			}
			for _, m := range h.locked {
				if err := h.message.RenewMessageLock(ctx, m, nil); err != nil {
					l.ledger.Fault("renew a message lock of a node that stays: %v", err)
				}
			}
			for _, r := range h.session {
				if err := r.RenewSessionLock(ctx, nil); err != nil {
					l.ledger.Fault("renew a session lock of a node that stays: %v", err)
				}
			}
			renewed++
		}
	}()
	return func() {
		t.Helper()
		close(stop)
		<-done
		h.use(ctx, t, 0)
		t.Logf("%d messages and %d sessions were held by one client for %d renewals", len(h.locked), len(h.session), renewed)
	}
}

// drain waits until both queues are empty: locks of dead clients must first run out.
func drain(ctx context.Context, t *testing.T, l *load) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	a, err := l.cluster.Nodes[0].Admin(false)
	fatal(t, "admin client", err)
	for _, q := range []string{plain, ordered} {
		for {
			p, err := a.GetQueueRuntimeProperties(ctx, q, nil)
			if ctx.Err() != nil {
				n, example := l.ledger.Missing()
				t.Errorf("%s is not empty after %s; %d acknowledged messages missing, such as %v",
					q, drainLimit, n, example)
				return
			}
			fatal(t, "count what is left", err)
			if p.DeadLetterMessageCount > 0 {
				t.Errorf("%s has %d dead letters", q, p.DeadLetterMessageCount)
				return
			}
			if p.TotalMessageCount == 0 {
				break
			}
			sleep(ctx, 250*time.Millisecond)
		}
	}
}

func fatal(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// sleep lets the load go on for a while.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
