package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// A link whose client detaches it while a settlement is under way is neither counted nor watched once its channel or its
// connection has ended.
func TestADetachedLinkEndsWithItsConnection(t *testing.T) {
	for name, end := range map[string]func(c *rawClient){
		"the connection is lost":         func(c *rawClient) { c.conn.Close() },
		"the client closes":              func(c *rawClient) { c.send(0, &amqp.Close{}) },
		"the client ends the channel":    func(c *rawClient) { c.send(0, &amqp.End{}) },
		"the client breaks the channel":  func(c *rawClient) { c.send(0, receiverOf(7, "")); c.send(0, &amqp.Flow{Handle: amqp.Some(uint32(99))}) },
		"the client breaks the protocol": func(c *rawClient) { c.write([]byte{0, 0, 0, 1, 2, 0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("q")
				c := b.client()
				c.authenticate()
				c.fill(3, "q", 1, 1)
				c.attach(0, receiverOf(2, "q"))
				c.send(0, grantOf(2, 0, 1))
				got := c.receive(1)
				release := make(chan struct{})
				b.broker.mu.Lock()
				b.broker.after = func(cmd fsm.Command, _ fsm.Outcome) chan struct{} {
					if _, ok := cmd.(*fsm.Settle); ok {
						return release
					}
					return nil
				}
				b.broker.mu.Unlock()
				c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: got[0].id, State: amqp.Accepted{}})
				synctest.Wait()
				c.send(0, &amqp.Detach{Handle: 2, Closed: true})
				synctest.Wait()
				end(c)
				synctest.Wait()
				time.Sleep(2 * b.server.cfg.ProposeTimeout)
				close(release)
				c.close()
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := b.server.stats.Links.Load(); n != 0 {
					t.Errorf("%d links are counted", n)
				}
				b.server.watcher.mu.Lock()
				defer b.server.watcher.mu.Unlock()
				if n := len(b.server.watcher.entities); n != 0 {
					t.Errorf("%d entities are watched for nobody", n)
				}
			})
		})
	}
}
