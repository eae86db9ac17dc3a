package transport

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// transferOverhead is more than a frame header and a transfer without its payload can take.
const transferOverhead = 128

// replyKept is how long an unsettled reply is remembered, in milliseconds.
const replyKept = 60_000

// parcel is one message on its way to the client.
type parcel struct {
	tag     [16]byte
	settled bool
	payload []byte
	tail    [][]byte     // what follows payload: views of a large body, which is not copied
	sent    sentDelivery // id is filled when the first frame goes out
}

// size is the length of the message in bytes.
func (p *parcel) size() int { return len(p.payload) + totalBytes(p.tail) }

// span returns the bytes of the message from off to end, as views.
func (p *parcel) span(off, end int) [][]byte {
	var out [][]byte
	at := 0
	for i := -1; i < len(p.tail) && at < end; i++ {
		b := p.payload
		if i >= 0 {
			b = p.tail[i]
		}
		if from, to := max(off-at, 0), min(end-at, len(b)); from < to {
			out = append(out, b[from:to])
		}
		at += len(b)
	}
	return out
}

// parcels is where an outgoing link gets its messages from.
type parcels interface {
	// next takes the next message; its payload is appended to scratch.
	next(scratch []byte) (parcel, bool)
	// idle is called when there is none, or no credit.
	idle()
	// stopped is called when what there is cannot be written now: the client's session window is
	// shut, or, if not that, the socket is full.
	stopped(window bool)
}

// outgoing is the sending half of a link to the client: credit, count, and the delivery whose
// frames are going out.
type outgoing struct {
	l      *link
	from   parcels
	count  uint32 // delivery-count
	credit uint32
	drain  bool
	kept   uint32 // frames of the client's window that only this link may use
	queued bool   // in the channel's list of senders
	off    int    // of the delivery under way that is written
	now    *parcel
}

// grant takes the client's credit from a flow frame, and reports whether it rose. Without link-credit
// the old one stays.
func (o *outgoing) grant(p *amqp.Flow) (rose bool) {
	if p.LinkCredit.Set {
		old := o.credit
		o.credit = remaining(p.DeliveryCount.Or(0), p.LinkCredit.Value, o.count)
		rose = o.credit > old
	}
	o.drain = p.Drain
	if p.Echo {
		o.sendFlow()
	}
	return rose
}

// sendFlow tells the client where we are (G6).
func (o *outgoing) sendFlow() {
	f := o.l.creditFlow(o.count, o.credit)
	f.Available = amqp.Some(uint32(0))
	f.Drain = o.drain
	o.l.ch.send(&f)
}

// drained gives the unused credit back (G18).
func (o *outgoing) drained() {
	o.count += o.credit
	o.credit = 0
	o.sendFlow()
	o.drain = false
}

// ready puts the link into the channel's list of senders.
func (o *outgoing) ready() {
	if !o.queued {
		o.queued = true
		o.l.ch.line(o)
	}
	o.l.ch.touch()
}

// line puts a link at the end of the channel's list of senders. An empty list begins at the start of its memory
// again, so that a link that sends one message after the other allocates none.
func (ch *channel) line(o *outgoing) {
	ch.c.onLoop()
	if len(ch.sender) == 0 {
		ch.sender = ch.senderStart[:0]
	}
	ch.sender = append(ch.sender, o)
	if len(ch.sender) == 1 {
		ch.senderStart = ch.sender
	}
}

// deliver writes transfers of the links that have some, in turn, as long as the client's window and
// the socket take them (G19). A delivery is finished before another one starts (G11).
func (ch *channel) deliver() {
	ch.c.onLoop()
	shut := 0 // links at the head of the list for which the window has no frame
	for len(ch.sender) > shut && !ch.ended {
		if ch.c.outputFull() {
			ch.c.blocked = append(ch.c.blocked, ch) // the writer touches us
			for _, o := range ch.sender {
				o.from.stopped(false)
			}
			return
		}
		o := ch.sender[shut]
		if o.l.state == linkAttached && ch.room(o) == 0 {
			if o.now == nil {
				shut++ // the client's next flow touches us
				continue
			}
			if !ch.lends() {
				break // no other link's delivery goes between its frames
			}
		}
		more := o.l.state == linkAttached && o.step()
		if o.now != nil && o.l.state == linkAttached {
			copy(ch.sender[1:], ch.sender[:shut]) // it goes on first, also in a later turn
			ch.sender[0], shut = o, 0
			continue
		}
		if shut == 0 {
			ch.sender[0] = nil
			ch.sender = ch.sender[1:]
		} else {
			ch.sender = slices.Delete(ch.sender, shut, shut+1)
		}
		o.queued = false
		if more {
			o.ready()
		} else if o.l.state == linkAttached {
			o.from.idle()
		}
	}
	for _, o := range ch.sender {
		o.from.stopped(true)
	}
	if len(ch.sender) == 0 {
		ch.sender = nil
	}
}

// lends reports whether a delivery under way may use frames of the window that are kept for another link. It may while that
// link waits for the delivery's end: a client may open its window only when it has got more of the delivery.
func (ch *channel) lends() bool {
	ch.c.onLoop()
	return ch.peerWindow > 0 && slices.ContainsFunc(ch.sender, func(o *outgoing) bool { return o.kept > 0 })
}

// room is how many frames of the client's window a link may use: what is kept for others is not its own.
func (ch *channel) room(o *outgoing) uint32 {
	ch.c.onLoop()
	return ch.peerWindow - min(ch.kept-o.kept, ch.peerWindow)
}

// keep reserves frames of the client's window for the link; 0 gives back what is left of them.
func (o *outgoing) keep(frames uint32) {
	o.l.ch.kept += frames - o.kept
	o.kept = frames
}

// step writes one frame and reports whether there may be more to write.
func (o *outgoing) step() bool {
	c := o.l.ch.c
	if o.now == nil {
		if o.credit == 0 {
			return false
		}
		var ok bool
		if c.parcel, ok = o.from.next(c.scratch[:0]); !ok {
			return false
		}
		c.scratch = c.parcel.payload
		o.begin(&c.parcel)
		c.parcel.tail = nil // o.now has it if it is not sent
		return true
	}
	o.frame(o.now, false)
	return true
}

// begin numbers a delivery and writes its first frame.
func (o *outgoing) begin(p *parcel) {
	ch := o.l.ch
	p.sent.id = ch.nextDeliveryID
	ch.nextDeliveryID++
	o.count++
	o.credit--
	if !p.settled {
		if p.sent.owner == nil { // a reply: the client may forget to settle it
			p.sent.until = nowWall().After(replyKept)
			if len(ch.sent.items) > 2*ch.c.cfg.MaxReplies {
				ch.prune(nil)
			}
		}
		ch.sent.add(p.sent)
	}
	o.off = 0
	o.frame(p, true)
	if o.now == nil && o.off < p.size() {
		rest := *p
		if len(p.payload) > keptScratch { // a large one is not held twice
			ch.c.scratch = nil
		} else {
			rest.payload = slices.Clone(p.payload)
		}
		o.now = &rest
		ch.c.queuedBytes += rest.size()
	}
}

// frame writes one frame of a delivery. Only the first one repeats nothing (G11).
func (o *outgoing) frame(p *parcel, first bool) {
	ch := o.l.ch
	size := p.size()
	end := min(size, o.off+int(ch.c.peerFrame)-transferOverhead)
	t := amqp.Transfer{Handle: o.l.handle, More: end < size}
	if first {
		t.DeliveryID = amqp.Some(p.sent.id)
		t.DeliveryTag = p.tag[:]
		t.MessageFormat = amqp.Some(amqp.FormatAMQP)
	}
	t.Settled = amqp.Some(p.settled)
	if end <= len(p.payload) {
		ch.c.out = amqp.AppendTransfer(ch.c.out, ch.number, &t, p.payload[o.off:end])
	} else {
		ch.c.out = amqp.AppendTransfer(ch.c.out, ch.number, &t, p.span(o.off, end)...)
	}
	ch.nextOutgoing++
	ch.peerWindow -= min(1, ch.peerWindow)
	if o.kept > 0 {
		o.keep(o.kept - 1)
	}
	o.off = end
	if end == size {
		o.drop()
	}
}

// drop forgets the delivery under way: it is finished, or its link ends.
func (o *outgoing) drop() {
	if o.now != nil {
		o.l.ch.c.unqueue(o.now.size())
		o.now = nil
	}
}

// newParcel encodes a message for a client. A large body is not copied; scratch takes the rest.
func newParcel(scratch []byte, d *fsm.Delivery, peeked bool) (parcel, error) {
	if len(d.Body) < apartFrom {
		payload, err := appendDelivery(scratch, d, peeked)
		return parcel{payload: payload}, err
	}
	payload, tail, err := splitDelivery(scratch, d, peeked)
	return parcel{payload: payload, tail: [][]byte{tail}}, err
}
