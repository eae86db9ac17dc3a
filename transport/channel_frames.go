package transport

import (
	"errors"
	"slices"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// begin opens a channel.
func (c *conn) begin(number uint16, p *amqp.Begin) error {
	if number > uint16(c.cfg.MaxChannels-1) {
		return connFault(siteChannel, amqp.ConditionFramingError, "channel %d is above the announced maximum of %d",
			number, c.cfg.MaxChannels-1) // AMQP 1.0 §2.7.1
	}
	if number > c.maxChan {
		return connFault(siteChannel, amqp.ConditionNotAllowed, "Sessions are answered on the channel of their begin, "+
			"and channel %d is above the channel-max %d of the client's open. Use a lower channel or announce more.",
			number, c.maxChan)
	}
	if c.channels[number] != nil {
		return connFault(siteChannel, amqp.ConditionNotAllowed, "channel %d has begun already", number)
	}
	if p.RemoteChannel.Set {
		return connFault(siteIllegalFrame, amqp.ConditionInvalidField, "a begin of the client with a remote-channel")
	}
	ch := &channel{
		c: c, number: number,
		handleMax:    p.HandleMax.Or(1<<32 - 1),
		links:        map[uint32]*link{},
		nextIncoming: p.NextOutgoingID,
		window:       incomingWindow,
		nextOutgoing: firstOutgoingID,
		peerWindow:   min(p.IncomingWindow, maxWindow),
	}
	c.channels[number] = ch
	delete(c.ended, number)
	ch.send(&amqp.Begin{
		RemoteChannel:  amqp.Some(number),
		NextOutgoingID: ch.nextOutgoing,
		IncomingWindow: ch.window,
		OutgoingWindow: outgoingWindow,
		HandleMax:      amqp.Some(uint32(c.cfg.MaxLinks - 1)),
	})
	return nil
}

// frame handles one frame of the channel; what it breaks is ended here, unless it is the connection.
func (ch *channel) frame(p amqp.Performative, payload []byte) error {
	ch.c.onLoop()
	if ch.ended {
		if _, ok := p.(*amqp.End); ok {
			ch.remove()
		}
		return nil
	}
	if ch.ending {
		return nil // see remove
	}
	ch.touch()
	l, err := ch.handle(p, payload)
	if err == nil {
		return nil
	}
	if isConnFault(err) {
		return err
	}
	ch.c.fault(ch, l, err)
	return nil
}

// handle handles one frame and returns the link that an error is about.
func (ch *channel) handle(p amqp.Performative, payload []byte) (*link, error) {
	ch.c.onLoop()
	switch p := p.(type) {
	case *amqp.Attach:
		return ch.attach(p)
	case *amqp.Flow:
		return ch.flow(p)
	case *amqp.Transfer:
		return ch.transfer(p, payload)
	case *amqp.Disposition:
		return nil, ch.disposition(p)
	case *amqp.Detach:
		return ch.detach(p)
	case *amqp.End:
		ch.peerEnded()
		return nil, nil
	}
	return nil, connFault(siteIllegalFrame, amqp.ConditionNotAllowed, "%T on channel %d", p, ch.number)
}

// flow handles a flow frame: the channel's window first, then the link's credit.
func (ch *channel) flow(p *amqp.Flow) (*link, error) {
	ch.c.onLoop()
	ch.peerWindow = remaining(p.NextIncomingID.Or(firstOutgoingID), p.IncomingWindow, ch.nextOutgoing)
	if !p.Handle.Set {
		ch.owesFlow = ch.owesFlow || p.Echo
		return nil, nil
	}
	l, err := ch.link(p.Handle.Value)
	if err != nil {
		if slices.Contains(ch.gone[:], p.Handle) {
			// A client that grants credit on its own may do so just behind its detach (Q25).
			ch.owesFlow = ch.owesFlow || p.Echo
			return nil, nil
		}
		return nil, err
	}
	return l, l.flow(p)
}

// transfer counts the frame and gives it to its link.
func (ch *channel) transfer(p *amqp.Transfer, payload []byte) (*link, error) {
	ch.c.onLoop()
	// The window counts frames. One client counts a delivery of several frames once, so the window
	// is not enforced (AMQP 1.0 §2.5.6 lets us), only refilled.
	ch.nextIncoming++
	if ch.window > 0 {
		ch.window--
	}
	l, err := ch.link(p.Handle)
	if err != nil {
		return nil, err
	}
	return l, l.transfer(p, payload)
}

// isConnFault reports whether an error ends the connection.
func isConnFault(err error) bool {
	var onConn *connError
	return errors.As(err, &onConn)
}

// advance sends what this turn has made possible.
func (ch *channel) advance() {
	ch.c.onLoop()
	if ch.ended {
		return
	}
	ch.flushAcks()
	ch.deliver()
	ch.refill()
	if ch.owesFlow || ch.window < incomingWindow/2 {
		ch.owesFlow = false
		f := ch.windowFlow()
		ch.send(&f)
	}
	if ch.ending && !ch.busy() {
		ch.flushAcks()
		ch.send(&amqp.End{})
		ch.remove()
		ch.beginAgain()
	}
}

// remove frees the channel's number. Frames on it are ignored until it begins again. The Python SDK detaches its
// links behind its end, and ending the connection over that would take the other channels with it. A begin that came
// sooner has waited, see waitsForEnd.
func (ch *channel) remove() {
	ch.c.onLoop()
	delete(ch.c.channels, ch.number)
	ch.c.ended[ch.number] = true
	ch.c.handles -= len(ch.links)
	for _, l := range ch.links {
		ch.c.attachBytes -= l.bytes
	}
	ch.ended = true
}

// busy reports whether a link still holds something that it is giving back.
func (ch *channel) busy() bool {
	ch.c.onLoop()
	for _, l := range ch.links {
		if l.busy() {
			return true
		}
	}
	return false
}

// peerEnded handles the client's end; the answer waits until the links have given back what they
// held, so that whoever asks next finds it.
func (ch *channel) peerEnded() {
	ch.c.onLoop()
	ch.ending = true
	ch.closeLinks(true)
}
