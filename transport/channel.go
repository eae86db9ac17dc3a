package transport

import (
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

// channel is an AMQP session (AMQP 1.0 §2.5). It carries frames between a client and the links of the session. We use
// the client's channel number for our direction too, and likewise its handles.
//
// The loop of the connection owns it and calls it with each of its frames; advance sends what a turn has brought.
// Invariant: a delivery that was sent is in sent until it is decided, then in answered or failed.
type channel struct {
	// Immutable.
	c         *conn
	number    uint16
	handleMax uint32 // of the client

	// The links.
	links    map[uint32]*link    // by handle
	gone     [8]amqp.Opt[uint32] // handles freed last, a ring
	goneNext int

	// The life of the channel.
	ending      bool    // the client's end has come and waits for the links to give back
	ended       bool    // we have sent end; frames are ignored until the client's
	behind      []frame // a begin behind the client's end, and what follows it: of the next session
	behindBytes int

	// The windows.
	nextIncoming   uint32 // transfer id expected next
	window         uint32 // frames the client may still send
	owesFlow       bool   // an echo was asked for, or the window wants refilling
	nextOutgoing   uint32
	peerWindow     uint32 // frames we may still send
	kept           uint32 // of them, for messages that are removed before they are sent
	removers       uint32 // links that receive and delete
	nextDeliveryID uint32

	// The deliveries to the client.
	sent     sentList
	answered answered                // deliveries that are not in sent any more
	failed   map[uint32]sentDelivery // likewise; their settlement failed, and they may be locked still

	// The work of this turn.
	dirty  bool        // advance will be called
	sender []*outgoing // links with something to send, in turn
	// senderStart is the memory in which sender began, see line.
	senderStart []*outgoing
	acks        []ack     // answers to the client's transfers
	dones       []ack     // answers to the client's dispositions
	risen       []*intake // links whose credit may rise
}

// send appends one frame of the channel to the output.
func (ch *channel) send(p amqp.Performative) {
	ch.c.onLoop()
	ch.c.out = amqp.AppendFrame(ch.c.out, ch.number, p)
}

// touch has advance called at the end of this turn.
func (ch *channel) touch() {
	ch.c.onLoop()
	if !ch.dirty {
		ch.dirty = true
		ch.c.dirty = append(ch.c.dirty, ch)
	}
}

// link finds the link of a handle.
func (ch *channel) link(handle uint32) (*link, error) {
	ch.c.onLoop()
	l := ch.links[handle]
	if l == nil {
		return nil, channelFault(siteHandle, amqp.ConditionUnattachedHandle, "handle %d is not attached", handle)
	}
	return l, nil
}

// windowFlow fills the fields of a flow that speak of the channel (G6).
func (ch *channel) windowFlow() amqp.Flow {
	ch.c.onLoop()
	ch.window = incomingWindow
	return amqp.Flow{
		NextIncomingID: amqp.Some(ch.nextIncoming),
		IncomingWindow: ch.window,
		NextOutgoingID: ch.nextOutgoing,
		OutgoingWindow: outgoingWindow,
	}
}

// end ends the channel from our side.
func (ch *channel) end(cause *amqp.Error) {
	ch.c.onLoop()
	ch.flushAcks()
	ch.closeLinks(true)
	ch.send(&amqp.End{Error: ch.c.tell(cause, "")})
	ch.ended = true
	ch.sender, ch.senderStart = nil, nil
}

// closeLinks ends every link as if it were detached; nothing is sent about them.
func (ch *channel) closeLinks(orderly bool) {
	ch.c.onLoop()
	for _, l := range ch.links {
		l.close(orderly)
	}
}
