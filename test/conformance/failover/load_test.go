package failover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/ledger"
)

// once makes the SDK try every operation a single time: what the broker cannot hide, the test sees.
var once = azservicebus.RetryOptions{MaxRetries: -1}

const (
	pause     = 30 * time.Millisecond // between two sends of one producer
	patience  = time.Second           // of one receive or accept that may find nothing
	callLimit = 30 * time.Second      // of one call that must succeed
)

// load is a set of producers and consumers on the nodes of a cluster.
type load struct {
	cluster *cluster.Cluster
	ledger  *ledger.Ledger
	secure  bool
	down    []atomic.Bool   // by node: about to be killed, or not yet back
	deaths  []atomic.Int64  // by node: how often it was killed
	stop    chan struct{}   // closed: producers end
	over    context.Context // consumers end
	finish  context.CancelFunc
	wg      sync.WaitGroup // consumers
	makers  sync.WaitGroup // producers
}

// home is where a worker's connection is. It moves on when its node dies.
type home struct {
	l      *load
	at     int
	deaths int64 // of the node, when the client was made
	client *azservicebus.Client
}

func (h *home) open() error {
	if h.client != nil {
		return nil
	}
	for h.l.down[h.at].Load() {
		h.at = (h.at + 1) % len(h.l.cluster.Nodes)
	}
	h.deaths = h.l.deaths[h.at].Load()
	c, err := h.l.cluster.Nodes[h.at].Client(h.l.secure, once)
	h.client = c
	return err
}

func (h *home) leave() {
	if h.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = h.client.Close(ctx)
	h.client = nil
}

// excuse says whether an error is the fate of a client whose node was killed since the client was
// made, and moves on; an error of any other client is a fault.
func (h *home) excuse(what string, err error) {
	if h.l.deaths[h.at].Load() == h.deaths {
		h.l.ledger.Fault("%s on the living node n%d: %v", what, h.at+1, err)
		time.Sleep(100 * time.Millisecond) // a fault that repeats must not fill the log
	}
	h.leave()
}

// nothing reports whether an error only says that nothing came in time.
func nothing(err error) bool {
	var se *azservicebus.Error
	return errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &se) && se.Code == azservicebus.CodeTimeout
}

// begin makes the two queues and starts a producer for each session and node, a consumer of the plain queue on each node,
// and so many holders of sessions on each. All of them end with the test, or by end.
func begin(ctx context.Context, t *testing.T, c *cluster.Cluster, holders int) *load {
	t.Helper()
	l := prepare(ctx, t, c, true)
	l.work(holders)
	return l
}

// prepare makes the two queues, of which the one with sessions is partitioned or not.
func prepare(ctx context.Context, t *testing.T, c *cluster.Cluster, partitioned bool) *load {
	t.Helper()
	over, finish := context.WithCancel(ctx)
	t.Cleanup(finish)
	createQueue(ctx, t, c.Nodes[0], ordered, true, partitioned)
	createQueue(ctx, t, c.Nodes[1], plain, false, false)
	return &load{cluster: c, ledger: ledger.New(), over: over, finish: finish, stop: make(chan struct{}),
		down: make([]atomic.Bool, nodes), deaths: make([]atomic.Int64, nodes)}
}

// work starts the clients.
func (l *load) work(holders int) {
	for i := range sessions {
		l.produce(ordered, fmt.Sprintf("session-%02d", i), i, true)
	}
	for i := range nodes {
		l.produce(plain, fmt.Sprintf("lane-%d", i), i, false)
		l.consume(plain, i, false)
		for range holders {
			l.consume(ordered, i, true)
		}
	}
}

// end lets the consumers take what is left, ends all clients, and judges what they saw. A load of fewer acknowledged
// messages than least was none.
func (l *load) end(ctx context.Context, t *testing.T, least int) {
	t.Helper()
	close(l.stop)
	l.makers.Wait()
	drain(ctx, t, l)
	l.finish()
	l.wg.Wait()
	for _, fault := range l.ledger.Judge(map[string]bool{ordered: true}) {
		t.Error(fault)
	}
	sent, doubt, completed := l.ledger.Tally()
	deaths := int64(0)
	for i := range l.deaths {
		deaths += l.deaths[i].Load()
	}
	t.Logf("%d acknowledged, %d in doubt, %d completed, %d times a node went", sent, doubt, completed, deaths)
	if sent < least {
		t.Errorf("only %d messages were acknowledged: that was no load", sent)
	}
	if deaths == 0 && doubt > 0 {
		t.Errorf("%d messages are in doubt, and no node went", doubt)
	}
	if t.Failed() {
		for _, n := range l.cluster.Nodes {
			t.Logf("%s printed at last:\n%s", n.ID, n.Log(3000))
		}
	}
}

// produce sends numbered messages in one lane until told to stop.
func (l *load) produce(queue, lane string, at int, session bool) {
	l.makers.Go(func() {
		h := &home{l: l, at: at % len(l.cluster.Nodes)}
		defer h.leave()
		var s *azservicebus.Sender
		for n := 1; ; n++ {
			select {
			case <-l.stop:
				return
			case <-time.After(pause):
			}
			m := ledger.Message{Queue: queue, Series: lane, Number: n}
			out := &azservicebus.Message{Body: m.Body()}
			if session {
				out.SessionID = &lane
			}
			if h.client == nil {
				s = nil
			}
			if err := l.sendOne(h, &s, queue, out); err != nil {
				l.ledger.Submitted(m, ledger.Unknown)
				h.excuse("send", err)
				continue
			}
			l.ledger.Submitted(m, ledger.Acknowledged)
		}
	})
}

func (l *load) sendOne(h *home, s **azservicebus.Sender, queue string, out *azservicebus.Message) error {
	ctx, cancel := context.WithTimeout(l.over, callLimit)
	defer cancel()
	if err := h.open(); err != nil {
		return err
	}
	if *s == nil {
		fresh, err := h.client.NewSender(queue, nil)
		if err != nil {
			return err
		}
		*s = fresh
	}
	return (*s).SendMessage(ctx, out, nil)
}

type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
}

// consume takes and completes until the load is over.
func (l *load) consume(queue string, at int, session bool) {
	l.wg.Go(func() {
		h := &home{l: l, at: at % len(l.cluster.Nodes)}
		defer h.leave()
		var r receiver
		for l.over.Err() == nil {
			if h.client == nil {
				r = nil
			}
			if err := h.open(); err != nil {
				h.excuse("new client", err)
				continue
			}
			if session {
				l.oneSession(h, queue)
				continue
			}
			if r == nil {
				fresh, err := h.client.NewReceiverForQueue(queue, nil)
				if err != nil {
					h.excuse("new receiver", err)
					continue
				}
				r = fresh
			}
			_, _ = l.takeSome(h, queue, r, 10)
		}
	})
}

// oneSession accepts the next session, takes what it has, and gives it back.
func (l *load) oneSession(h *home, queue string) {
	ctx, cancel := context.WithTimeout(l.over, patience)
	r, err := h.client.AcceptNextSessionForQueue(ctx, queue, nil)
	expired := ctx.Err() != nil
	cancel()
	if err != nil {
		switch {
		case nothing(err) || l.over.Err() != nil:
		case expired && strings.Contains(err.Error(), "i/o timeout"):
			// go-amqp writes each frame of a call with the call's deadline (Conn.getWriteTimeout), and ends its
			// connection if that passes meanwhile: here, if the refusal comes in the call's last moment.
			h.leave()
		default:
			h.excuse("accept next", err)
		}
		return
	}
	// One at a time: with more credit outstanding the SDK gives back what comes after it has returned,
	// and takes it again behind its successors.
	for range 25 {
		n, ok := l.takeSome(h, queue, r, 1)
		if !ok {
			return
		}
		if n == 0 {
			break
		}
	}
	ctx, cancel = context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		h.excuse("close session", err)
	}
}

// takeSome receives once and completes what came; ok is false when the connection is gone.
func (l *load) takeSome(h *home, queue string, r receiver, most int) (n int, ok bool) {
	ctx, cancel := context.WithTimeout(l.over, patience)
	got, err := r.ReceiveMessages(ctx, most, nil)
	cancel()
	for _, g := range got {
		m, bad := ledger.Parse(queue, g.Body)
		if bad != nil {
			l.ledger.Fault("%s: body %q: %v", queue, g.Body, bad)
			continue
		}
		l.ledger.Received(m, *g.SequenceNumber)
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		began := time.Now()
		settled := r.CompleteMessage(ctx, g, nil)
		cancel()
		if settled != nil {
			h.excuse(fmt.Sprintf("complete %v after %s", m, time.Since(began).Round(time.Millisecond)), settled)
			return n, false
		}
		l.ledger.Done(m)
		n++
	}
	if err != nil && !nothing(err) && l.over.Err() == nil {
		h.excuse("receive", err)
		return n, false
	}
	return n, true
}
