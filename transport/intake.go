package transport

import (
	"github.com/busbar-mq/busbar/transport/amqp"
)

const (
	// requestCredit is how many requests of one link may wait or run at a time. Link credit is what is left
	// of it, so a client that keeps to its credit always finds room (RUL-36).
	requestCredit = 100
	// creditStep is the smallest rise of link credit that is told, so that not every answer brings a flow frame.
	creditStep = requestCredit / 4
)

// intake is the link credit of a link over which a client sends requests: to $cbs, to a $management node,
// or to a coordinator.
//
// Invariant: link credit plus the requests that wait is at most requestCredit, unless the client sent
// without credit.
type intake struct {
	l      *link
	count  uint32 // deliveries begun, the client's delivery-count
	credit uint32 // deliveries that the client may still begin
	now    *inbound
	// waiting is the number of requests that wait, run, or whose answer is not on its way.
	waiting int
	risen   bool // in the channel's list of links whose credit may rise
}

func newIntake(l *link) intake {
	return intake{l: l, count: l.asked.InitialDeliveryCount.Or(0)} // G22
}

// open grants the first link credit (G5).
func (i *intake) open() {
	i.credit = requestCredit
	i.sendFlow()
}

func (i *intake) sendFlow() {
	f := i.l.creditFlow(i.count, i.credit)
	i.l.ch.send(&f)
}

// flow implements endpoint; the credit of a sending client is the broker's to say, so only an echo matters.
func (i *intake) flow(p *amqp.Flow) error {
	if p.Echo {
		i.sendFlow()
	}
	return nil
}

// begin takes the first frame of a delivery. A link is ended only if the client sends without credit while
// overrunMax requests wait (Python's SDK does not wait for credit).
func (i *intake) begin(p *amqp.Transfer) error {
	if !p.DeliveryID.Set {
		return linkFault(siteIllegalFrame, amqp.ConditionInvalidField, "a delivery without an id")
	}
	switch {
	case i.credit > 0:
		i.credit--
	case i.waiting >= overrunMax:
		return linkFault(siteCredit, amqp.ConditionTransferLimitExceeded,
			"a transfer without link credit, and %d requests of the link wait. Wait for link credit.", i.waiting)
	}
	i.now = &inbound{id: p.DeliveryID.Value}
	i.count++
	return nil
}

// rise has refill run at the end of this turn, behind the answers.
func (i *intake) rise() {
	if !i.risen {
		i.risen = true
		i.l.ch.risen = append(i.l.ch.risen, i)
		i.l.ch.touch()
	}
}

// refill grants what there is room for, less what waits. Nothing is told while the rise is below creditStep;
// when nothing waits the client has more than requestCredit-creditStep.
func (i *intake) refill() {
	i.risen = false
	if i.l.state != linkAttached || i.waiting >= requestCredit {
		return
	}
	if room := uint32(requestCredit - i.waiting); room >= i.credit+creditStep {
		i.credit = room
		i.sendFlow()
	}
}

// refill grants link credit to the links whose requests were answered.
func (ch *channel) refill() {
	for _, i := range ch.risen {
		i.refill()
	}
	ch.risen = ch.risen[:0]
}

// repliesFull reports that the answers that wait for the client's link credit or for its socket take
// MaxConnBytes; no further request runs until some have gone.
func (c *conn) repliesFull() bool { return c.replyBytes >= c.cfg.MaxConnBytes }

// heldLimit is how many bytes of deliveries and requests may wait before reading stops. While answers wait for
// link credit, reading goes on twice as far, because the client's flow frame may stand behind its requests.
func (c *conn) heldLimit() int {
	if c.repliesFull() {
		return 2 * c.cfg.MaxConnBytes
	}
	return c.cfg.MaxConnBytes
}

// checkReplies ends a connection whose client sends on and on and takes no answers. Neither can be held, and nothing
// but its own flow frame could end the wait.
func (c *conn) checkReplies() {
	if c.phase != phaseOpen || !c.repliesFull() || c.heldBytes < c.heldLimit() {
		return
	}
	c.s.stats.reject(siteReply)
	c.sendClose(amqpError(amqp.ConditionResourceLimitExceeded, "Answers of %d bytes wait for link credit, and requests "+
		"and messages of %d bytes wait behind them. Grant credit on the link that receives the answers.",
		c.replyBytes, c.heldBytes))
}

// next has the requests of a link run in their turn.
func (r *requests) next() {
	r.enqueue()
	r.c.runRequests()
}

// enqueue puts the link into the connection's list of links whose requests wait for their turn.
func (r *requests) enqueue() {
	if !r.queued && len(r.queue) > 0 && r.running < r.c.cfg.MaxRequests {
		r.queued = true
		r.c.asking = append(r.c.asking, r)
	}
}

// runRequests starts requests of the connection's links in turn, as long as there is room to run them and room
// for their answers.
func (c *conn) runRequests() {
	for len(c.asking) > 0 && c.running < c.cfg.MaxConnRequests && !c.repliesFull() {
		r := c.asking[0]
		c.asking[0] = nil
		c.asking = c.asking[1:]
		r.queued = false
		if len(r.queue) > 0 {
			r.runNext()
			r.enqueue()
		}
	}
	if len(c.asking) == 0 {
		c.asking = nil
	}
}

// runNext starts the request that has waited longest.
func (r *requests) runNext() {
	q := r.queue[0]
	r.queue[0] = request{}
	if r.queue = r.queue[1:]; len(r.queue) == 0 {
		r.queue = nil
	}
	r.running++
	r.c.running++
	r.c.s.stats.Requests.Add(1)
	r.serve(&q, r.freePump())
}
