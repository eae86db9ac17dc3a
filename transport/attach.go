package transport

import (
	"context"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// This file decides what a client's attach leads to.

// cloneAttach copies what is needed after the frame is gone.
func cloneAttach(p *amqp.Attach) *amqp.Attach {
	a := *p
	if p.Source != nil {
		s := *p.Source
		s.Encoded, s.Filter = slices.Clone(s.Encoded), slices.Clone(s.Filter)
		s.DefaultOutcome, s.DynamicNodeProperties = nil, nil
		a.Source = &s
	}
	if p.Target != nil {
		t := *p.Target
		t.Encoded, t.DynamicNodeProperties = slices.Clone(t.Encoded), nil
		a.Target = &t
	}
	if p.Coordinator != nil {
		co := *p.Coordinator
		co.Encoded = slices.Clone(co.Encoded)
		a.Coordinator = &co
	}
	a.Unsettled = nil
	a.Properties = slices.Clone(p.Properties)
	return &a
}

// resolve finds out what the client wants to attach to.
func (l *link) resolve() error {
	if l.asked.Coordinator != nil && l.clientSends() {
		l.accept(newCoordinator(l))
		return nil
	}
	text, err := l.wanted()
	if err != nil {
		return err
	}
	l.addr = parseAddress(text)
	switch {
	case l.addr.cbs && l.ch.c.hasTokenLink(l):
		return linkFault(siteAttach, amqp.ConditionNotAllowed, // RUL-26
			"The connection has a link to %s in this direction already. Detach it first.", cbsNode)
	case l.addr.cbs:
		l.accept(l.requestEndpoint())
		return nil
	case l.addr.entity == "":
		return linkFault(siteAttach, amqp.ConditionNotFound, "%s", notFoundText(l.ch.c.s, text))
	}
	if l.addr.management && !l.allowed(l.right()) {
		// Some clients attach these links before they put a token. Each request is authorized on its own,
		// so nothing is told of the entity here, not even whether it exists.
		l.desc = &fsm.Descriptor{Name: l.addr.entity, MaxMessageBytes: unknownMessageBytes}
		l.accept(l.requestEndpoint())
		return nil
	}
	if err := l.authorize(); err != nil {
		return err
	}
	if l.clientSends() && l.addr.sub != fsm.Main && !l.addr.management {
		// S-171
		return linkFault(siteAttach, amqp.ConditionNotAllowed, "messages cannot be sent to %s", l.addr.path())
	}
	dest, err := l.destination()
	if err != nil {
		return err
	}
	l.dest = dest
	s, name := l.ch.c.s, l.addr.entity
	ctx, cancel := context.WithTimeout(l.ch.c.ctx, s.cfg.ProposeTimeout)
	l.cancel = cancel
	l.ch.c.spawn(func() func() {
		defer cancel()
		d, err := s.catalog.Entity(ctx, name)
		var to *fsm.Descriptor
		var toErr error
		if dest.entity != "" && err == nil {
			to, toErr = s.catalog.Entity(ctx, dest.entity)
		}
		return func() {
			if l.state != linkAttaching {
				return
			}
			l.ch.touch()
			if toErr != nil { // S-237
				l.ch.c.fault(l.ch, l, &linkError{siteAttach, l.ch.c.tell(s.errorOf(toErr, dest.path()), dest.path())})
				return
			}
			l.to = to
			if err := l.found(d, err); err != nil {
				l.ch.c.fault(l.ch, l, err)
			}
		}
	})
	return nil
}

// wanted returns the address of our side.
func (l *link) wanted() (string, error) {
	if l.asked.Coordinator != nil {
		return "", linkFault(siteAttach, amqp.ConditionInvalidField, "a coordinator does not send")
	}
	if l.clientSends() {
		if l.asked.Target == nil || l.asked.Target.Dynamic {
			return "", linkFault(siteAttach, amqp.ConditionInvalidField, "a sender needs a target with an address")
		}
		return l.asked.Target.Address.Or(""), nil
	}
	if l.asked.Source == nil || l.asked.Source.Dynamic {
		return "", linkFault(siteAttach, amqp.ConditionInvalidField, "a receiver needs a source with an address")
	}
	return l.asked.Source.Address.Or(""), nil
}

// found decides with the entity's description whether and to what the link attaches.
func (l *link) found(d *fsm.Descriptor, err error) error {
	if err != nil {
		return &linkError{siteAttach, l.ch.c.s.errorOf(err, l.addr.path())}
	}
	l.desc = d
	if l.addr.sub == fsm.DeadLetter && d.NoDeadLetter {
		return linkFault(siteAttach, amqp.ConditionNotFound, "%s", notFoundText(l.ch.c.s, l.addr.path())) // S-169
	}
	if l.addr.sub != fsm.Main && d.Kind == fsm.Topic {
		return linkFault(siteAttach, amqp.ConditionNotFound, "%s", notFoundText(l.ch.c.s, l.addr.path()))
	}
	switch {
	case l.addr.management:
		l.accept(l.requestEndpoint())
		return nil
	case l.clientSends():
		return l.foundTarget(d)
	}
	return l.foundSource(d)
}

func (l *link) foundTarget(d *fsm.Descriptor) error {
	if l.to != nil && l.to.Kind == fsm.Subscription {
		return linkFault(siteAttach, amqp.ConditionNotAllowed, "messages cannot be sent to a subscription")
	}
	if d.Kind == fsm.Subscription {
		return linkFault(siteAttach, amqp.ConditionNotAllowed, "messages cannot be sent to a subscription")
	}
	if d.Status == fsm.Disabled || d.Status == fsm.SendDisabled {
		return linkFault(siteAttach, amqp.ConditionEntityDisabled, "%s", disabledText(l.addr.path()))
	}
	reply := l.reply()
	if slices.Contains(l.asked.DesiredCapabilities, delayedDelivery) {
		reply.OfferedCapabilities = []amqp.Symbol{delayedDelivery}
	}
	g := newIngress(l)
	if n := g.limit(amqp.FormatBatch); n < int(l.desc.MaxMessageBytes) { // RUL-32
		w := amqp.BeginSymbolMap(nil)
		w.Long(maxBatchSize, int64(n))
		reply.Properties = w.End()
	}
	l.acceptWith(g, reply)
	return nil
}

// maxBatchSize is the link property that tells a sender how many bytes a batch may have, where a single
// message may have more. Without it the SDKs go by max-message-size.
const maxBatchSize = "com.microsoft:max-message-batch-size"

// delayedDelivery is the capability that JMS clients look for before they set a time of delivery. Others
// do not ask, and so read nothing of it.
const delayedDelivery amqp.Symbol = "DELAYED_DELIVERY"

func (l *link) foundSource(d *fsm.Descriptor) error {
	if d.Kind == fsm.Topic {
		return linkFault(siteAttach, amqp.ConditionNotAllowed, "messages cannot be received from a topic")
	}
	if d.Status == fsm.Disabled || d.Status == fsm.ReceiveDisabled {
		return linkFault(siteAttach, amqp.ConditionEntityDisabled, "%s", disabledText(l.addr.path()))
	}
	if d.ForwardTo != "" && l.addr.sub == fsm.Main || d.ForwardDeadLettersTo != "" && l.addr.sub == fsm.DeadLetter {
		// S-177, S-206
		return linkFault(siteAttach, amqp.ConditionNotAllowed, "messages of %s are forwarded", l.addr.path())
	}
	filter, wanted, err := l.sessionFilter()
	if err != nil {
		return err
	}
	needs := d.RequiresSession && l.addr.sub == fsm.Main
	browses := l.browses()
	switch {
	case browses && filter.shared:
		return linkFault(siteAttach, amqp.ConditionNotAllowed, "a receiver that copies holds no session")
	case browses && wanted && !filter.id.Set:
		return linkFault(siteAttach, amqp.ConditionNotAllowed, "a receiver that copies names a session or none")
	case browses && (needs || !wanted): // S-35
		l.acceptBrowser(filter.id)
		return nil
	case needs && !wanted: // S-33
		return linkFault(siteAttach, amqp.ConditionNotAllowed, "It is not possible for an entity that "+
			"requires sessions to create a non-sessionful message receiver.")
	case wanted && !needs: // S-34
		return linkFault(siteAttach, amqp.ConditionNotAllowed, "A sessionful message receiver cannot be "+
			"created on an entity that does not require sessions.")
	case wanted:
		l.acceptSession(filter)
		return nil
	}
	l.accept(newEgress(l, nil))
	return nil
}

// unmeantLimit is the max-message-size, in bytes, that every version of the Python SDK puts into the attach of a
// receiver. Its application cannot change the number, and the SDK takes larger messages all the same
// (docs/decisions/0045).
const unmeantLimit = 1 << 20

// tooLarge ends a receiving link whose client takes no message of that size (AMQP 1.0 §2.7.3); what is
// taken for it goes back uncounted. Receive-and-delete does not ask: the message is removed already.
func (l *link) tooLarge(size int) bool {
	limit := l.asked.MaxMessageSize.Or(0)
	if limit == 0 || limit == unmeantLimit || uint64(size) <= limit {
		return false
	}
	l.ch.c.fault(l.ch, l, linkFault(siteMessageSize, amqp.ConditionMessageSizeExceeded, "The next message has %d bytes, "+
		"and the receiver takes %d at most. Attach with a larger max-message-size or none.", size, limit))
	return true
}
