package transport

import (
	"fmt"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// heavy is an outcome with 30 KB of properties.
func heavy(i int) amqp.DeliveryState {
	w := amqp.BeginSymbolMap(nil)
	w.String("k", fmt.Sprint(i)+strings.Repeat("v", 30_000))
	return amqp.Modified{DeliveryFailed: amqp.Some(true), MessageAnnotations: w.End()}
}

// F4: what a transaction keeps besides messages is counted by its bytes, of the transaction, the connection and the
// node. What is too much is refused when it is staged, the rest commits, and nothing is counted afterwards.
func TestStagedCommandsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		config  func(*Config)
		entity  uint64 // its largest message
		refused int    // the settlement that is refused, of 30 KB each
		want    string
	}{
		"of the transaction": {func(*Config) {}, 64 << 10, 8, "amqp:resource-limit-exceeded TransactionSizeExceeded: " +
			"the settlements and session states of a transaction have at most 262144 bytes."},
		"of the transaction, with larger messages": {func(*Config) {}, 400_000, 13, "amqp:resource-limit-exceeded " +
			"TransactionSizeExceeded: the settlements and session states of a transaction have at most 400000 bytes."},
		"of the connection": {func(c *Config) { c.MaxConnBytes = 32 << 10 }, 64 << 10, 3, "amqp:resource-limit-exceeded " +
			"The open transactions of the connection have too many bytes, at most 98304"},
		"of the node": {func(c *Config) { c.MaxTransactionBytes = 130_000 }, 64 << 10, 4, "amqp:resource-limit-exceeded " +
			"The open transactions of the node have too many bytes, at most 130000"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("a", func(e *fsm.Descriptor) { e.MaxMessageBytes = uint32(c.entity) })
				d := newDeal(t, b)
				d.fill("a", 20)
				taken := d.take(8, "a", 20)
				for _, fail := range []bool{true, false} {
					id := d.declare()
					for i := range c.refused {
						if got := d.settle(taken[i], id, heavy(i)); got != "(Modified)" {
							t.Fatalf("settlement %d: %s", i, got)
						}
					}
					if got := d.settle(taken[c.refused], id, heavy(0)); !strings.HasPrefix(got, c.want) {
						t.Errorf("one too many: %s", got)
					}
					if got := d.settle(taken[c.refused+1], id, amqp.Accepted{}); c.refused > 3 && got != "(Accepted)" {
						t.Errorf("a small one after it: %s", got)
					}
					if held := b.server.txnBytes.Load(); held < int64(c.refused)*30_000 || held > int64(c.refused+1)*30_500 {
						t.Errorf("%d bytes are counted", held)
					}
					if got := d.discharge(id, fail); got != "Accepted" {
						t.Errorf("discharge: %s", got)
					}
					if held := b.server.txnBytes.Load(); held != 0 {
						t.Errorf("%d bytes are counted after it", held)
					}
				}
				d.c.close()
			}, c.config)
		})
	}
}
