package transport

import (
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

const (
	// propDelay is the property-to-modify with which an abandon asks for a rest before the message is
	// delivered again, in milliseconds. The original has no word for it; a client that does not send
	// it notices nothing.
	propDelay = "x-busbar-delay"
	// maxDelay is the longest rest; what has to wait longer is scheduled or deferred.
	maxDelay fsm.Millis = 7 * 24 * 60 * 60 * 1000
)

// setProperties gives a settlement the properties that a client sets with it. The delay is none of
// the message's.
func setProperties(item *fsm.SettleItem, r amqp.Raw) error {
	props, err := amqp.ReadProperties(r)
	if err != nil {
		return err
	}
	for _, p := range props {
		if p.Key != propDelay {
			item.Properties = append(item.Properties, fsm.Property{Key: p.Key, Value: p.Value.Clone()})
			continue
		}
		ms, ok := p.Value.Int64()
		if !ok || ms < 0 || fsm.Millis(ms) > maxDelay {
			return fmt.Errorf("%s must be a number of milliseconds from 0 to %d", propDelay, maxDelay)
		}
		if item.Verdict != fsm.Abandon {
			return fmt.Errorf("%s goes with an abandoned message only", propDelay)
		}
		item.Delay = fsm.Millis(ms)
	}
	return nil
}
