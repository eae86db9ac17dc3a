package transport

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// annOmittedSize is the delivery annotation with the size of a body that a peek leaves out.
const annOmittedSize = "omitted-message-body-size"

// withoutBody encodes a peeked message without its body and footer, and says in a delivery annotation how
// many bytes its body sections have. A message without a body says 0.
func withoutBody(d *fsm.Delivery) ([]byte, error) {
	_, size, err := bodyOf(d.Body)
	if err != nil {
		return nil, err
	}
	payload, _, err := splitDelivery(nil, d, true)
	if err != nil {
		return nil, err
	}
	s, err := amqp.ParseMessage(payload)
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(payload)+omittedOverhead), s.Header...)
	w := amqp.BeginMapSection(out, amqp.CodeDeliveryAnnotations)
	m := amqp.ReadMap(amqp.SectionValue(s.DeliveryAnnotations))
	for {
		k, v, ok := m.Next()
		if !ok {
			break
		}
		w.Pair(k, v)
	}
	w.Long(annOmittedSize, int64(size))
	out = append(w.End(), s.MessageAnnotations...)
	out = append(out, s.Properties...)
	return append(out, s.ApplicationProperties...), m.Err()
}

// omittedOverhead is more than the annotation takes.
const omittedOverhead = 64
