package transport

import (
	"context"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
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
	l.ch.c.onLoop()
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
	l.look()
	return nil
}

// look asks the catalog for the entity of the link, and for that of its destination if it has one.
func (l *link) look() {
	l.ch.c.onLoop()
	s, name, dest := l.ch.c.s, l.addr.entity, l.dest
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
			if !l.undecided() {
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
}

// wanted returns the address of our side.
func (l *link) wanted() (string, error) {
	l.ch.c.onLoop()
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
	l.ch.c.onLoop()
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
	l.ch.c.onLoop()
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
	l.ch.c.onLoop()
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

// transferDestination is the link property that names where a sender's messages go at last, if not
// to the entity that it attaches to (amqp-protocol.md 4.6).
const transferDestination = "com.microsoft:transfer-destination-address"

// destination returns the entity that the messages of a sender go on to; it is empty for an ordinary
// link.
func (l *link) destination() (address, error) {
	l.ch.c.onLoop()
	v, ok := l.asked.Properties.Get(transferDestination)
	if !ok || v.IsNull() || !l.clientSends() || l.addr.management {
		return address{}, nil
	}
	text, isText := v.Text()
	a := parseAddress(text)
	if !isText || a.entity == "" || a.cbs || a.management || a.sub != fsm.Main {
		return address{}, linkFault(siteAttach, amqp.ConditionInvalidField, "%s names no entity that can be sent to",
			transferDestination)
	}
	if !l.ch.c.allowed(a.path(), auth.Send) {
		return address{}, &linkError{siteUnauthorized, l.ch.c.tell(amqpError(amqp.ConditionUnauthorizedAccess, "%s",
			unauthorizedText(a.path(), auth.Send)), a.path())}
	}
	return a, nil
}

// attach handles the client's attach.
func (ch *channel) attach(p *amqp.Attach) (*link, error) {
	ch.c.onLoop()
	if p.Handle >= uint32(ch.c.cfg.MaxLinks) {
		return nil, connFault(siteHandle, amqp.ConditionFramingError, "handle %d is above the announced maximum of %d",
			p.Handle, ch.c.cfg.MaxLinks-1) // AMQP 1.0 §2.7.2
	}
	if p.Handle > ch.handleMax {
		return nil, channelFault(siteHandle, amqp.ConditionNotAllowed, "Links are answered on the handle of their attach, "+
			"and handle %d is above the handle-max %d of the client's begin. Use a lower handle or announce more.",
			p.Handle, ch.handleMax)
	}
	if ch.links[p.Handle] != nil {
		return nil, channelFault(siteHandle, amqp.ConditionHandleInUse, "handle %d is in use", p.Handle)
	}
	if p.Name == "" {
		return nil, channelFault(siteAttach, amqp.ConditionInvalidField, "a link without a name")
	}
	l := &link{ch: ch, name: p.Name, handle: p.Handle, role: p.Role, asked: cloneAttach(p), bytes: linkBytes + ch.c.frameBytes}
	if old := ch.c.links[l.key()]; old != nil {
		old.refuse(amqpError(amqp.ConditionStolen, "the link was attached again"))
	}
	if !l.fits(l.refusal()) {
		return nil, channelFault(siteAttach, conditionFrameTooSmall, "the answer to the attach of a link with a "+
			"name of %d bytes does not fit into a frame of %d bytes", len(l.name), ch.c.peerFrame)
	}
	if len(p.Name) > maxLinkName {
		return nil, channelFault(siteAttach, amqp.ConditionInvalidField, "a link with a name of %d bytes, at most %d",
			len(p.Name), maxLinkName)
	}
	ch.links[l.handle] = l
	ch.c.links[l.key()] = l
	ch.c.attachBytes += l.bytes
	l.indexed = true
	ch.c.s.stats.Links.Add(1)
	if ch.c.handles++; ch.c.handles > 2*ch.c.cfg.MaxLinks {
		return nil, connFault(siteLinks, amqp.ConditionResourceLimitExceeded, "too many links that are not detached")
	}
	if len(ch.c.links) > ch.c.cfg.MaxLinks {
		return l, linkFault(siteLinks, amqp.ConditionResourceLimitExceeded,
			"the connection has %d links already", ch.c.cfg.MaxLinks)
	}
	if ch.c.attachBytes > maxAttachBytes {
		return l, linkFault(siteLinks, amqp.ConditionResourceLimitExceeded, "the links of the connection have more than %d "+
			"bytes of names, addresses, filters and properties", maxAttachBytes)
	}
	if busy := ch.c.room(); busy != nil {
		return l, &linkError{siteLinks, busy}
	}
	return l, l.resolve()
}

// flow handles a flow of the link.
func (l *link) flow(p *amqp.Flow) error {
	l.ch.c.onLoop()
	switch l.state {
	case linkAttaching:
		return l.keepEarly(earlyFrame{flow: &amqp.Flow{
			DeliveryCount: p.DeliveryCount, LinkCredit: p.LinkCredit, Drain: p.Drain, Echo: p.Echo,
		}})
	case linkAttached:
		return l.end.flow(p)
	case linkDetaching:
		if e := l.stopped(); e != nil && p.Drain {
			e.out.grant(p)
			e.out.drained()
		}
	}
	return nil
}

// transfer handles one frame of a delivery.
func (l *link) transfer(p *amqp.Transfer, payload []byte) error {
	l.ch.c.onLoop()
	if !l.clientSends() {
		return channelFault(siteIllegalFrame, amqp.ConditionNotAllowed, "a transfer on a link that receives")
	}
	switch l.state {
	case linkAttaching:
		t := *p
		t.DeliveryTag, t.State = nil, amqp.CloneState(p.State)
		return l.keepEarly(earlyFrame{transfer: &t, payload: slices.Clone(payload)})
	case linkAttached:
		return l.end.transfer(p, payload)
	}
	return nil
}

func (l *link) keepEarly(f earlyFrame) error {
	l.ch.c.onLoop()
	l.sentEarly = l.sentEarly || f.transfer != nil
	if l.refused {
		return nil
	}
	l.earlyBytes += len(f.payload)
	if len(l.early) >= maxEarlyFrames || l.earlyBytes > l.ch.c.cfg.MaxLinkBytes {
		return linkFault(siteCredit, amqp.ConditionTransferLimitExceeded, "frames before the link is attached")
	}
	l.early = append(l.early, f)
	return nil
}

// detach handles the client's detach.
func (ch *channel) detach(p *amqp.Detach) (*link, error) {
	ch.c.onLoop()
	l, err := ch.link(p.Handle)
	if err != nil {
		return nil, err
	}
	switch l.state {
	case linkAttaching: // as docs/spec/amqp-protocol.md 6.3 says: abandon the wait, answer both
		why := l.lostEarly()
		l.abandon()
		l.ch.send(l.refusal())
		l.ch.send(&amqp.Detach{Handle: l.handle, Closed: true, Error: why})
		l.remove()
	case linkAttached:
		l.state = linkLeaving
		l.end.close(true)
		l.finish()
	case linkDetaching:
		if l.detachable() { // the node stops, and the client cannot know that
			l.state = linkLeaving
			l.finish()
			break
		}
		l.remove()
	}
	return l, nil
}

// lostEarly is what a client hears that detaches a link, not attached yet, over which it has sent messages
// already; nil if it has sent none.
func (l *link) lostEarly() *amqp.Error {
	l.ch.c.onLoop()
	if !l.sentEarly {
		return nil
	}
	l.ch.c.s.stats.reject(siteCredit)
	return l.ch.c.tell(amqpError(amqp.ConditionTransferLimitExceeded, "The link was detached before it was attached. "+
		"What was sent over it without credit is not stored."), l.addr.path())
}
