package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// linkState is where a link is in its life.
type linkState uint8

const (
	linkAttaching linkState = iota // the client's attach has come, ours waits for a look-up or a session
	linkAttached
	linkLeaving   // the client's detach has come, ours waits until everything is given back
	linkDetaching // our detach is out, the client's is awaited; its other frames are ignored
	linkGone
)

// endpoint is what a link is attached to: the inside of an entity, or a request node.
type endpoint interface {
	// start runs once, right behind the attach reply.
	start()
	flow(p *amqp.Flow) error
	transfer(p *amqp.Transfer, payload []byte) error
	// close stops and gives back what is held; orderly is false if the connection is lost.
	close(orderly bool)
	// busy reports whether something is still being given back or answered.
	busy() bool
}

// link is one end of an AMQP link: a name, a direction and what the client asked for. The channel makes it at an attach
// and calls it with each frame for its handle, which is the same number in both directions. Its end does the work.
//
// The loop of the connection owns it.
// Invariant: end is nil until the attach is answered, and indexed is true while the connection counts the link.
type link struct {
	// Immutable behind the attach.
	ch     *channel
	name   string
	handle uint32
	role   amqp.Role // the client's
	asked  *amqp.Attach
	bytes  int // that are counted for it

	// The entity.
	addr address
	desc *fsm.Descriptor // nil for $cbs
	to   *fsm.Descriptor // the entity to which messages go on, by way of desc; nil if they stay in desc
	dest address         // of to; it needs Send as well, as long as the link is open

	// Its life.
	state      linkState
	silent     bool               // its channel or connection closes it without a word to the client
	told       bool               // our detach has gone out because the node stops; the client's answer is awaited
	end        endpoint           // nil until attached
	cancel     context.CancelFunc // of the look-up or accept under way
	indexed    bool               // counted, and in the connection's index unless stolen
	early      []earlyFrame       // what came before our attach
	earlyBytes int
	sentEarly  bool // a message was among it
	refused    bool // the refusal of the attach is held back
}

// earlyFrame is a frame that a client sent without waiting for the attach reply.
type earlyFrame struct {
	flow     *amqp.Flow
	transfer *amqp.Transfer
	payload  []byte
}

// maxEarlyFrames bounds what is kept for a link that is not attached yet; Python sends its flow and
// maybe a first message that soon (Q7).
const maxEarlyFrames = 64

// key is the link's name in the connection.
func (l *link) key() linkKey {
	l.ch.c.onLoop()
	return linkKey{l.name, l.role}
}

// clientSends reports whether messages flow towards us.
func (l *link) clientSends() bool {
	l.ch.c.onLoop()
	return l.role == amqp.RoleSender
}

// holder names the link to operators.
func (l *link) holder() waist.Holder {
	l.ch.c.onLoop()
	return waist.Holder{Client: l.ch.c.container, Link: l.name, Remote: l.ch.c.socket.RemoteAddr().String()}
}

// reply is our attach: everything the client said is echoed (G7, G8).
func (l *link) reply() *amqp.Attach {
	l.ch.c.onLoop()
	a := &amqp.Attach{
		Name: l.name, Handle: l.handle, Role: !l.role,
		SndSettleMode: l.asked.SndSettleMode,
		RcvSettleMode: l.asked.RcvSettleMode,
		Source:        l.asked.Source.Echo(amqp.Opt[string]{}),
	}
	if l.asked.Coordinator != nil {
		a.Coordinator = l.asked.Coordinator.Echo()
	} else {
		a.Target = l.asked.Target.Echo()
	}
	if !l.clientSends() {
		a.InitialDeliveryCount = amqp.Some(uint32(0)) // G6
	}
	return a
}

// conditionFrameTooSmall is AMQP 1.0 §2.8.15: a peer cannot be answered within its frames.
const conditionFrameTooSmall amqp.Symbol = "amqp:frame-size-too-small"

// fits reports whether the client takes a frame with an answer to its attach.
func (l *link) fits(a *amqp.Attach) bool {
	l.ch.c.onLoop()
	return len(amqp.AppendFrame(l.ch.c.scratch[:0], l.ch.number, a)) <= int(l.ch.c.peerFrame)
}

// accept answers the attach and goes to work.
func (l *link) accept(e endpoint) {
	l.ch.c.onLoop()
	l.acceptWith(e, l.reply())
}

func (l *link) acceptWith(e endpoint, reply *amqp.Attach) {
	l.ch.c.onLoop()
	if l.clientSends() {
		limit := uint64(defaultMessageBytes)
		if l.desc != nil {
			limit = uint64(l.desc.MaxMessageBytes)
		}
		if r, ok := e.(*requests); ok {
			limit = uint64(r.limit) // a session state as large as a message fits (S-69)
		}
		reply.MaxMessageSize = amqp.Some(limit) // G4
	}
	if !l.fits(reply) {
		e.close(true) // a session that it holds is given back
		l.ch.c.fault(l.ch, l, linkFault(siteAttach, conditionFrameTooSmall,
			"the answer to the attach does not fit into a frame of %d bytes", l.ch.c.peerFrame))
		return
	}
	l.ch.send(reply)
	l.state = linkAttached
	l.end = e
	if l.watched() {
		l.ch.c.s.watcher.watch(l)
	}
	e.start()
	early := l.early
	l.early = nil
	for _, f := range early {
		if l.state != linkAttached {
			return
		}
		var err error
		if f.flow != nil {
			err = e.flow(f.flow)
		} else {
			err = e.transfer(f.transfer, f.payload)
		}
		if err != nil {
			l.ch.c.fault(l.ch, l, err)
		}
	}
}

const (
	// defaultMessageBytes is the limit on links to $cbs.
	defaultMessageBytes = 256 << 10
	// unknownMessageBytes is the message limit that a request link announces while its entity is not
	// looked up: that of a new entity.
	unknownMessageBytes = 1 << 20
)

// undecided reports whether the attach may still be accepted.
func (l *link) undecided() bool {
	l.ch.c.onLoop()
	return l.state == linkAttaching && !l.refused
}

// abandon ends the look-up or accept under way.
func (l *link) abandon() {
	l.ch.c.onLoop()
	if l.cancel != nil {
		l.cancel()
	}
	l.early = nil
}

// finish answers the client's detach once everything is given back, so that whoever asks next
// finds it.
func (l *link) finish() {
	l.ch.c.onLoop()
	if l.state != linkLeaving || l.ch.ended || l.end.busy() {
		return
	}
	l.ch.flushAcks()
	l.ch.send(&amqp.Detach{Handle: l.handle, Closed: true})
	l.remove()
}

// refusal is the attach that refuses a link: source and target are both null (G9). AMQP 1.0 §2.6.3 asks for our own
// only. But go-amqp before 1.5.1, so every Go SDK before 1.11, takes a reply with either of them for a link that is
// up.
func (l *link) refusal() *amqp.Attach {
	l.ch.c.onLoop()
	a := l.reply()
	a.Source, a.Target, a.Coordinator = nil, nil, nil
	if l.clientSends() {
		a.MaxMessageSize = amqp.Some(uint64(defaultMessageBytes))
	}
	return a
}

// refuse ends the link from our side, attached or not.
func (l *link) refuse(cause *amqp.Error) {
	l.ch.c.onLoop()
	switch l.state {
	case linkAttaching:
		if !l.refused && !l.heldBack(cause) {
			l.refuseAttach(cause)
		}
		return
	case linkAttached:
		l.ch.flushAcks()
		l.end.close(true)
	default:
		return
	}
	l.sendDetach(cause)
}

// refuseAttach answers an attach with a refusal.
func (l *link) refuseAttach(cause *amqp.Error) {
	l.ch.c.onLoop()
	l.abandon()
	l.ch.send(l.refusal())
	l.sendDetach(cause)
}

func (l *link) sendDetach(cause *amqp.Error) {
	l.ch.c.onLoop()
	l.ch.send(&amqp.Detach{Handle: l.handle, Closed: true, Error: l.ch.c.tell(cause, l.addr.path())})
	l.state = linkDetaching
	l.leaveIndex()
}

// close ends the link without a word, because its channel or connection ends.
func (l *link) close(orderly bool) {
	l.ch.c.onLoop()
	switch l.state {
	case linkAttaching:
		l.abandon()
		l.state = linkGone
		l.leaveIndex()
	case linkAttached:
		l.state, l.silent = linkDetaching, true
		l.end.close(orderly)
		l.leaveIndex()
	case linkLeaving: // the answer to its detach may never be written
		l.leaveIndex()
	}
}

// busy reports whether the link is still giving something back.
func (l *link) busy() bool {
	l.ch.c.onLoop()
	return l.end != nil && l.end.busy()
}

// leaveIndex takes the link out of the connection's index; a link of the same name may come.
func (l *link) leaveIndex() {
	l.ch.c.onLoop()
	c := l.ch.c
	if !l.indexed {
		return
	}
	l.indexed = false
	if c.links[l.key()] == l {
		delete(c.links, l.key())
	}
	c.s.stats.Links.Add(-1)
	if l.watched() {
		c.s.watcher.unwatch(l)
	}
}

// remove frees the handle.
func (l *link) remove() {
	l.ch.c.onLoop()
	l.leaveIndex()
	l.state = linkGone
	delete(l.ch.links, l.handle)
	l.ch.gone[l.ch.goneNext%len(l.ch.gone)] = amqp.Some(l.handle)
	l.ch.goneNext++
	l.ch.c.handles--
	l.ch.c.attachBytes -= l.bytes
}

// creditFlow is a flow of the link with its delivery count and credit (AMQP 1.0, 2.7.4).
func (l *link) creditFlow(count, credit uint32) amqp.Flow {
	l.ch.c.onLoop()
	f := l.ch.windowFlow()
	f.Handle, f.DeliveryCount, f.LinkCredit = amqp.Some(l.handle), amqp.Some(count), amqp.Some(credit)
	return f
}
