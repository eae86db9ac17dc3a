package transport

import (
	"errors"
	"slices"

	"github.com/busbar-mq/busbar/transport/amqp"
)

const (
	// incomingWindow is how many transfer frames a client may have under way per channel. The bytes
	// behind them are bounded by credit and by the connection.
	incomingWindow = 5_000
	// outgoingWindow is announced and means nothing: what we may send is the client's window.
	outgoingWindow = maxWindow
	// firstOutgoingID is where our transfer ids start.
	firstOutgoingID = 1
)

// channel is an AMQP session (AMQP 1.0 §2.5). We use the client's channel number for our direction
// too, and likewise its handles.
type channel struct {
	c         *conn
	number    uint16
	handleMax uint32 // of the client
	links     map[uint32]*link
	gone      [8]amqp.Opt[uint32] // handles freed last, a ring
	goneNext  int
	dirty     bool
	ending    bool // the client's end has come and waits for the links to give back
	ended     bool // we have sent end; frames are ignored until the client's

	nextIncoming   uint32 // transfer id expected next
	window         uint32 // frames the client may still send
	owesFlow       bool   // an echo was asked for, or the window wants refilling
	nextOutgoing   uint32
	peerWindow     uint32 // frames we may still send
	kept           uint32 // of them, for messages that are removed before they are sent
	removers       uint32 // links that receive and delete
	nextDeliveryID uint32

	behind      []frame // a begin behind the client's end, and what follows it: of the next session
	behindBytes int

	sent     sentList
	answered answered                // deliveries that are not in sent any more
	failed   map[uint32]sentDelivery // likewise; their settlement failed, and they may be locked still
	sender   []*outgoing             // links with something to send, in turn
	// senderStart is the memory in which sender began, see line.
	senderStart []*outgoing
	acks        []ack     // answers to the client's transfers
	dones       []ack     // answers to the client's dispositions
	risen       []*intake // links whose credit may rise
}

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

// send appends one frame of the channel to the output.
func (ch *channel) send(p amqp.Performative) {
	ch.c.out = amqp.AppendFrame(ch.c.out, ch.number, p)
}

// touch has advance called at the end of this turn.
func (ch *channel) touch() {
	if !ch.dirty {
		ch.dirty = true
		ch.c.dirty = append(ch.c.dirty, ch)
	}
}

// frame handles one frame of the channel; what it breaks is ended here, unless it is the connection.
func (ch *channel) frame(p amqp.Performative, payload []byte) error {
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

// link finds the link of a handle.
func (ch *channel) link(handle uint32) (*link, error) {
	l := ch.links[handle]
	if l == nil {
		return nil, channelFault(siteHandle, amqp.ConditionUnattachedHandle, "handle %d is not attached", handle)
	}
	return l, nil
}

// flow handles a flow frame: the channel's window first, then the link's credit.
func (ch *channel) flow(p *amqp.Flow) (*link, error) {
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

// windowFlow fills the fields of a flow that speak of the channel (G6).
func (ch *channel) windowFlow() amqp.Flow {
	ch.window = incomingWindow
	return amqp.Flow{
		NextIncomingID: amqp.Some(ch.nextIncoming),
		IncomingWindow: ch.window,
		NextOutgoingID: ch.nextOutgoing,
		OutgoingWindow: outgoingWindow,
	}
}

// advance sends what this turn has made possible.
func (ch *channel) advance() {
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
	for _, l := range ch.links {
		if l.busy() {
			return true
		}
	}
	return false
}

// closeLinks ends every link as if it were detached; nothing is sent about them.
func (ch *channel) closeLinks(orderly bool) {
	for _, l := range ch.links {
		l.close(orderly)
	}
}

// peerEnded handles the client's end; the answer waits until the links have given back what they
// held, so that whoever asks next finds it.
func (ch *channel) peerEnded() {
	ch.ending = true
	ch.closeLinks(true)
}

// end ends the channel from our side.
func (ch *channel) end(cause *amqp.Error) {
	ch.flushAcks()
	ch.closeLinks(true)
	ch.send(&amqp.End{Error: ch.c.tell(cause, "")})
	ch.ended = true
	ch.sender, ch.senderStart = nil, nil
}
