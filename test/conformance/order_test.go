package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/cluster"
)

// long makes the order tests send as many messages as the scenarios say.
var long = flag.Bool("long", false, "run the order tests with 100,000 messages")

const (
	orderSessions = 10
	orderMessages = 5_000
	orderMany     = 100_000
	// orderPause is the longest pause between two sends. Messages then arrive while the SDK receives,
	// while the application settles, and between the two, when the SDK releases what comes.
	orderPause = 4 * time.Millisecond
	// orderLife is how long the three nodes live together between two kills.
	orderLife = 3 * time.Second
)

// TestOrderOnOneNode: S-56, S-58; RUL-28.
func TestOrderOnOneNode(t *testing.T) { testOrder(t, 1) }

// TestOrderOnThreeNodesWhileLeadersDie: S-56, S-58, S-295; RUL-28.
func TestOrderOnThreeNodesWhileLeadersDie(t *testing.T) { testOrder(t, 3) }

// testOrder sends numbered messages to sessions whose receivers run the SDK's default loop, and checks
// that none is handed out before the one in front of it.
func testOrder(t *testing.T, nodes int) {
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := cluster.Start(ctx, t.TempDir(), nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, c) })
	total, limit := orderMessages, 4*time.Minute
	if *long {
		total, limit = orderMany, 40*time.Minute
	}
	ctx, cancel = context.WithTimeout(t.Context(), limit)
	defer cancel()
	e := newEnv(t, c, false, 0)
	e.ctx = ctx
	o := &order{env: e, queue: e.sessionQueue("PT30S"), each: total / orderSessions}
	for i := range orderSessions {
		o.wg.Go(func() { o.produce(i) })
		o.wg.Go(func() { o.consume(i) })
	}
	over := make(chan struct{})
	go func() {
		o.wg.Wait()
		close(over)
	}()
	if nodes > 1 {
		o.kills, err = c.KillLeaders(o.queue, orderLife, over)
		o.must("kill leaders", err)
	}
	<-over
	if n := o.handed.Load(); n < int64(total) {
		t.Errorf("%d of %d messages were handed out", n, total)
	}
	t.Logf("%d messages handed out, %d out of order, %d again, %d links, %d leaders killed",
		o.handed.Load(), o.wrong.Load(), o.again.Load(), o.links.Load(), o.kills)
}

type order struct {
	*env
	queue string
	each  int
	wg    sync.WaitGroup
	kills int

	handed, wrong, again, links atomic.Int64
}

// produce sends the messages of a session, one after the other; a failed send is repeated.
func (o *order) produce(session int) {
	c, err := o.node(session+1).Client(o.secure, cluster.Retry)
	if err != nil {
		o.Errorf("client: %v", err)
		return
	}
	defer c.Close(context.Background())
	s, err := c.NewSender(o.queue, nil)
	if err != nil {
		o.Errorf("sender: %v", err)
		return
	}
	chance := rand.New(rand.NewPCG(uint64(session), 1))
	id := fmt.Sprint("s", session)
	for n := 1; n <= o.each; n++ {
		body := binary.BigEndian.AppendUint32(nil, uint32(n))
		for s.SendMessage(o.ctx, &azservicebus.Message{Body: body, SessionID: &id}, nil) != nil {
			if o.ctx.Err() != nil {
				o.Errorf("session %d: %d of %d messages are sent", session, n-1, o.each)
				return
			}
		}
		if chance.IntN(3) == 0 {
			time.Sleep(rand.N(orderPause))
		}
	}
}

// consume receives a session's messages until it has all. A lost link is opened again, at the next node.
func (o *order) consume(session int) {
	next := 1
	for at := session; next <= o.each && o.ctx.Err() == nil; at++ {
		if err := o.consumeLink(session, at, &next); err != nil && o.ctx.Err() == nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
	if next <= o.each {
		o.Errorf("session %d: message %d never came", session, next)
	}
}

func (o *order) consumeLink(session, at int, next *int) error {
	c, err := o.node(at).Client(o.secure, cluster.Retry)
	if err != nil {
		return err
	}
	defer c.Close(context.Background())
	r, err := c.AcceptSessionForQueue(o.ctx, o.queue, fmt.Sprint("s", session), nil)
	if err != nil {
		return err
	}
	o.links.Add(1)
	defer r.Close(context.Background())
	for *next <= o.each {
		ms, err := r.ReceiveMessages(o.ctx, 10, nil)
		if err != nil {
			return err
		}
		for _, m := range ms {
			n := int(binary.BigEndian.Uint32(m.Body))
			switch {
			case n == *next:
				*next++
				o.handed.Add(1)
			case n > *next:
				o.wrong.Add(1)
				o.Errorf("session %d: message %d was handed out before %d", session, n, *next)
				return errors.New("out of order")
			default:
				o.again.Add(1)
			}
			if err := r.CompleteMessage(o.ctx, m, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
