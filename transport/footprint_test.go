package transport

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// closed returns the condition and text of the close that ends the connection, skipping what comes before it.
func (c *rawClient) closed() string {
	c.t.Helper()
	for {
		p, _ := c.next()
		if p, ok := p.(*amqp.Close); ok {
			if p.Error == nil {
				return "no error"
			}
			return string(p.Error.Condition) + " " + p.Error.Description
		}
		if p == nil {
			return "gone"
		}
	}
}

// F2: before its first valid token a client has few sessions and links and may send little. Whoever takes more is
// disconnected and the node holds nothing for it.
func TestAStrangerHoldsLittle(t *testing.T) {
	const limit = "amqp:resource-limit-exceeded "
	for name, c := range map[string]struct {
		attack func(c *rawClient)
		want   string
	}{
		"sessions": {func(c *rawClient) {
			for i := range uint16(100) {
				c.send(i+1, &amqp.Begin{IncomingWindow: 1, OutgoingWindow: 1})
			}
		}, limit + "a client has at most 8 sessions before its first valid token."},
		"links": {func(c *rawClient) {
			for i := range uint32(100) {
				a := receiverOf(i, "orders/$management")
				a.Name = fmt.Sprint(i)
				c.send(0, a)
			}
		}, limit + "a client has at most 16 links before its first valid token."},
		"links to $cbs with long addresses": {func(c *rawClient) {
			for i := range uint32(12) {
				a := senderTo(i, "orders/$management")
				a.Source = &amqp.Source{Address: amqp.Some(strings.Repeat("s", 40_000))}
				c.send(0, a)
			}
		}, limit + "a client may send at most 262144 bytes before its first valid token."},
		"half requests": {func(c *rawClient) {
			for i := range uint32(6) {
				a := senderTo(i, "orders/$management")
				c.send(0, a)
				p := transferOf(i, i)
				p.More = true
				c.send(0, p, make([]byte, 60_000))
			}
		}, limit + "a client may send at most 262144 bytes before its first valid token."},
		"a request without end": {func(c *rawClient) {
			c.send(0, senderTo(0, "$cbs"))
			for i := range 10 {
				p := transferOf(0, 0)
				p.More = true
				if i > 0 {
					p = &amqp.Transfer{Handle: 0, More: true}
				}
				c.send(0, p, make([]byte, 60_000))
			}
		}, "amqp:connection:forced no token was put in 15s"}, // the link was detached: a request is not so large
		"nothing": {func(*rawClient) {}, "amqp:connection:forced no token was put in 15s"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("orders")
				a := b.client()
				a.open("ANONYMOUS")
				a.begin(0)
				began := time.Now()
				c.attack(a)
				if got := a.closed(); !strings.HasPrefix(got, c.want) {
					t.Errorf("got %q, want %q", got, c.want)
				}
				if took := time.Since(began); took > b.server.cfg.AuthTimeout {
					t.Errorf("it lasted %v", took)
				}
				a.close()
				synctest.Wait()
				if held := b.server.memory.held.Load(); held != 0 {
					t.Errorf("%d bytes are counted afterwards", held)
				}
			})
		})
	}
}

// F2: the name of a link is bounded, with a token as without.
func TestTheNameOfALinkIsBounded(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		a := receiverOf(10, "orders")
		a.Name = strings.Repeat("n", maxLinkName)
		c.attach(0, a)
		a = receiverOf(11, "orders")
		a.Name = strings.Repeat("n", maxLinkName+1)
		c.send(0, a)
		if p, _ := expect[*amqp.End](c); p.Error == nil || p.Error.Condition != amqp.ConditionInvalidField ||
			!strings.HasPrefix(p.Error.Description, "a link with a name of 1025 bytes, at most 1024") {
			t.Errorf("got %v", p.Error)
		}
		c.close()
	})
}

// F2: when the node holds as much as it may, the connection that holds most is refused more and the others are not.
func TestTheLargestHolderIsRefusedFirst(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		greedy, modest := b.client(), b.client()
		for _, c := range []*rawClient{greedy, modest} {
			c.authenticate()
			for h := range uint32(10) {
				c.attach(0, senderTo(10+h, "orders"))
				expect[*amqp.Flow](c)
			}
		}
		half := func(c *rawClient, handle, id uint32) {
			p := transferOf(handle, id)
			p.More = true
			c.send(0, p, make([]byte, 60_000))
		}
		for h := range uint32(9) { // messages that never end
			half(greedy, 10+h, 1+h)
		}
		synctest.Wait()
		if held := b.server.memory.held.Load(); held < 500_000 {
			t.Fatalf("%d bytes are counted", held)
		}
		last := transferOf(19, 100)
		greedy.send(0, last, encoded("x"))
		d, _ := expect[*amqp.Disposition](greedy)
		if got := stateText(d.State); !strings.HasPrefix(got, "com.microsoft:server-busy The node holds 500000 bytes") {
			t.Errorf("who holds most: %s", got)
		}
		modest.send(0, transferOf(10, 1), encoded("x"))
		if d, _ := expect[*amqp.Disposition](modest); stateText(d.State) != "Accepted" {
			t.Errorf("who holds little: %s", stateText(d.State))
		}
		greedy.close()
		synctest.Wait()
		if held := b.server.memory.held.Load(); held > 200_000 {
			t.Errorf("%d bytes are counted when it is gone", held)
		}
		modest.close()
	}, func(c *Config) { c.MaxClientBytes = 500_000 })
}

// A client gets memory for what its messages announce, and the node counts it until they are there or given up.
func TestMemoryThatIsAnnouncedIsCounted(t *testing.T) {
	const links, announced = 4, 900 << 10
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		whole := largeEncoded(announced, nil)
		for h := range uint32(links) {
			c.attach(0, senderTo(10+h, "orders"))
			expect[*amqp.Flow](c)
			p := transferOf(10+h, 1+h)
			for _, part := range [][]byte{whole[:60_000], whole[60_000:120_000], whole[120_000:180_000]} {
				p.More = true
				c.send(0, p, part)
				p = &amqp.Transfer{Handle: 10 + h}
			}
		}
		synctest.Wait()
		if held := b.server.memory.held.Load(); held < links*announced {
			t.Errorf("%d bytes are counted, want %d at least", held, links*announced)
		}
		for h := range uint32(links) {
			c.send(0, &amqp.Transfer{Handle: 10 + h, Aborted: true})
		}
		synctest.Wait()
		if held := b.server.memory.held.Load(); held > 2*footprintStep {
			t.Errorf("%d bytes are counted when the messages are given up", held)
		}
		c.close()
	})
}
