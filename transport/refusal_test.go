package transport

import (
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// G9: the attach that refuses a sender, a receiver or a session has neither source nor target. The Go
// SDK before 1.11 waits for the detach only then, and otherwise receives nothing for ever.
func TestARefusedAttachHasNeitherSourceNorTarget(t *testing.T) {
	disabled := func(d *fsm.Descriptor) { d.Status = fsm.Disabled }
	for name, tc := range map[string]struct {
		attach *amqp.Attach
		want   amqp.Symbol
	}{
		"a sender":   {senderTo(7, "off"), amqp.ConditionEntityDisabled},
		"a receiver": {receiverOf(7, "off"), amqp.ConditionEntityDisabled},
		"a session":  {browserOf(7, "orders", ofSession("s")), amqp.ConditionNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				s := newScene(t, b)
				defer s.c.close()
				b.broker.queue("off", disabled)
				s.c.send(0, tc.attach)
				reply, _ := expect[*amqp.Attach](s.c)
				detach, _ := expect[*amqp.Detach](s.c)
				if reply.Source != nil || reply.Target != nil || reply.Coordinator != nil {
					t.Errorf("the attach has source %v, target %v", reply.Source, reply.Target)
				}
				if detach.Error == nil || detach.Error.Condition != tc.want {
					t.Errorf("detached with %v, want %s", detach.Error, tc.want)
				}
			})
		})
	}
}
