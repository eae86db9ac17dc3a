package transport

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// A subscription's copy of a message shares the stored bytes with all others. The changes of the action of its rule
// lie beside them in the delivery (S-220) and are put in their place here.

// changedAnnotations are the annotations that the stored ones do not tell any more; nil if none.
func changedAnnotations(system []fsm.SystemValue) map[string]struct{} {
	var changed map[string]struct{}
	for i := range system {
		if key := stored.AnnotationOf(system[i].Property); key != "" {
			if changed == nil {
				changed = map[string]struct{}{}
			}
			changed[key] = struct{}{}
		}
	}
	return changed
}

// changeProperties puts changed system properties in their places and reports whether there were any.
func changeProperties(p *amqp.Properties, system []fsm.SystemValue) (changed bool) {
	for i := range system {
		v := amqp.Raw(system[i].Value)
		var field *[]byte
		switch system[i].Property {
		case rule.MessageID:
			p.MessageID, changed = v, true
			continue
		case rule.CorrelationID:
			p.CorrelationID, changed = v, true
			continue
		case rule.Label:
			field = &p.Subject
		case rule.To:
			field = &p.To
		case rule.ReplyTo:
			field = &p.ReplyTo
		case rule.ReplyToSessionID:
			field = &p.ReplyToGroupID
		case rule.SessionID:
			field = &p.GroupID
		case rule.ContentType:
			field = &p.ContentType
		default:
			continue
		}
		changed = true
		*field = nil // removed
		if text, ok := v.Text(); ok {
			*field = []byte(text)
		}
	}
	return changed
}
