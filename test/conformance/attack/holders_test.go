package attack

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// fill creates a queue and sends numbered messages to it.
func (a *attack) fill(name string, count, bytes int) {
	a.Helper()
	m, err := a.c.Nodes[0].Admin(false)
	a.must("admin client", err)
	_, err = m.CreateQueue(a.ctx, name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{LockDuration: to.Ptr("PT5M")}})
	a.must("create a queue", err)
	c, err := a.c.Nodes[0].Client(false, azservicebus.RetryOptions{})
	a.must("client", err)
	defer c.Close(a.ctx)
	s, err := c.NewSender(name, nil)
	a.must("sender", err)
	padding := strings.Repeat("x", bytes)
	for i := 0; i < count; {
		batch, err := s.NewMessageBatch(a.ctx, nil)
		a.must("batch", err)
		for ; i < count && batch.NumMessages() < 2000; i++ {
			if batch.AddMessage(&azservicebus.Message{Body: []byte(fmt.Sprint(i, " ", padding))}, nil) != nil {
				break
			}
		}
		a.must("send", s.SendMessageBatch(a.ctx, batch, nil))
	}
}

// drained receives all messages of a queue and demands that each is there once.
func (a *attack) drained(name string, count int) {
	a.Helper()
	c, err := a.c.Nodes[0].Client(false, azservicebus.RetryOptions{})
	a.must("client", err)
	defer c.Close(a.ctx)
	r, err := c.NewReceiverForQueue(name, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	a.must("receiver", err)
	seen := make([]int, count)
	for left := count; left > 0; {
		got, err := r.ReceiveMessages(a.ctx, min(left, 1000), nil)
		a.must("receive", err)
		for _, m := range got {
			number := -1
			if _, err := fmt.Sscan(string(m.Body), &number); err != nil || number < 0 || number >= count {
				a.Fatalf("%.50q was received", m.Body)
			}
			seen[number]++
			left--
		}
	}
	for i, n := range seen {
		if n != 1 {
			a.Errorf("message %d was received %d times", i, n)
		}
	}
	a.empty(name)
}

// One client takes everything and settles nothing. When it is gone, everything is there for others.
func TestDeliveriesThatNobodySettles(t *testing.T) {
	onClusters(t, func(a *attack) string {
		count, name := size(5_000, 100_000), a.queue+"-held"
		a.fill(name, count, 0)
		c, err := raw.Dial(a.ctx, a.c.Pick(1), raw.Plain)
		a.must("connect", err)
		a.sockets.Add(1)
		defer c.Close()
		const each = 2_500
		for range count / each {
			r, err := c.Receiver(name, nil)
			a.must("receiver", err)
			c.Credit(r.Handle, each, false)
		}
		for range count {
			_, err := c.Await(func(f raw.Frame) bool {
				p, ok := f.P.(*amqp.Transfer)
				return ok && !p.More
			})
			a.must("a delivery", err)
		}
		m, err := a.c.Nodes[0].Admin(false)
		a.must("admin client", err)
		got, err := m.GetQueueRuntimeProperties(a.ctx, name, nil)
		if err != nil || got == nil || got.ActiveMessageCount != int32(count) {
			a.Errorf("the queue shows %+v, %v", got, err)
		}
		c.Close()
		a.drained(name, count)
		return fmt.Sprintf("%d deliveries", count)
	})
}

// stalled is a proxy in front of a node, which carries nothing to the client once it is stopped.
type stalled struct {
	net.Listener
	stop atomic.Bool
}

func (a *attack) stall(n *cluster.Node) *stalled {
	a.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	a.must("listen", err)
	p := &stalled{Listener: l}
	a.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", n.AMQP)
			if err != nil {
				_ = client.Close()
				continue
			}
			a.sockets.Add(1)
			go func() { // from the client; its end ends both
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			go p.back(client, server)
		}
	}()
	return p
}

func (p *stalled) back(client, server net.Conn) {
	b := make([]byte, 4096)
	for !p.stop.Load() {
		n, err := server.Read(b)
		if err != nil {
			_ = client.Close()
			return
		}
		if p.stop.Load() {
			return // without it, and without another read
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
	}
}

// Receivers with credit for everything that stop reading their sockets. What the node holds for them is bounded, and when
// they are gone everything is there for others.
func TestReadersThatDoNotRead(t *testing.T) {
	onClusters(t, func(a *attack) string {
		count, readers, name := size(300, 3_000), size(20, 200), a.queue+"-held"
		a.fill(name, count, 30_000)
		n := a.c.Pick(1)
		before, err := n.RSS()
		a.must("resident memory", err)
		p := a.stall(n)
		var all []*raw.Client
		for range readers {
			c, err := raw.Dial(a.ctx, &cluster.Node{AMQP: p.Addr().String()}, raw.Plain)
			a.must("connect", err)
			all = append(all, c)
		}
		for i, c := range all {
			r, err := c.Receiver(name, nil)
			a.must("receiver", err)
			if i == len(all)-1 {
				p.stop.Store(true)
			}
			if i%2 == 0 {
				c.Credit(r.Handle, 1_000, false)
			}
		}
		time.Sleep(time.Duration(size(1, 45)) * time.Second) // the long form waits until the node ends those it cannot write to
		rss, err := n.RSS()
		a.must("resident memory", err)
		if grown := rss - before; grown > int64(readers)*4<<20+256<<20 {
			a.Errorf("resident memory grew by %d MB for %d readers", grown>>20, readers)
		}
		for _, c := range all {
			c.Close()
		}
		_ = p.Close()
		a.drained(name, count)
		return fmt.Sprintf("%d readers, %d messages of 30 KB", readers, count)
	})
}

// Thousands of subscriptions: each gets each message.
func TestThousandsOfSubscriptions(t *testing.T) {
	onClusters(t, func(a *attack) string {
		count, messages := size(300, 10_000), size(5, 20)
		const each = 2_000 // the limit of a topic
		m, err := a.c.Nodes[0].Admin(false)
		a.must("admin client", err)
		for topic := 0; topic*each < count; topic++ {
			name, subscriptions := fmt.Sprint(a.queue, "-topic-", topic), min(each, count-topic*each)
			_, err = m.CreateTopic(a.ctx, name, nil)
			a.must("create a topic", err)
			var next atomic.Int64
			a.each(16, func(int) error {
				for i := next.Add(1); i <= int64(subscriptions); i = next.Add(1) {
					if _, err := m.CreateSubscription(a.ctx, name, fmt.Sprint("s", i), nil); err != nil {
						return err
					}
				}
				return nil
			})
			a.publish(name, messages)
			a.arrived(m, name, subscriptions, messages)
			_, err = m.DeleteTopic(a.ctx, name, nil)
			a.must("delete the topic", err)
		}
		return fmt.Sprintf("%d subscriptions, %d messages each", count, messages)
	})
}

func (a *attack) publish(topic string, messages int) {
	a.Helper()
	c, err := a.c.Pick(1).Client(false, azservicebus.RetryOptions{})
	a.must("client", err)
	defer c.Close(a.ctx)
	s, err := c.NewSender(topic, nil)
	a.must("sender", err)
	for i := range messages {
		a.must("send", s.SendMessage(a.ctx, &azservicebus.Message{Body: []byte(fmt.Sprint("published ", i))}, nil))
	}
}

// arrived demands that each subscription of a topic holds so many messages.
func (a *attack) arrived(m *admin.Client, topic string, subscriptions, messages int) {
	a.Helper()
	seen := 0
	for pager := m.NewListSubscriptionsRuntimePropertiesPager(topic, nil); pager.More(); {
		page, err := pager.NextPage(a.ctx)
		a.must("list the subscriptions", err)
		for _, s := range page.SubscriptionRuntimeProperties {
			if seen++; s.ActiveMessageCount != int32(messages) {
				a.Errorf("%s holds %d messages, want %d", s.SubscriptionName, s.ActiveMessageCount, messages)
			}
		}
	}
	if seen != subscriptions {
		a.Errorf("%s has %d subscriptions, want %d", topic, seen, subscriptions)
	}
}
