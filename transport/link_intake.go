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
	// overrunMax is how many deliveries a client may begin beyond its credit. Python does not wait
	// for credit, and believes that it has 10,000 (amqp-protocol.md 4.1).
	overrunMax = 10_000
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
	ch.c.onLoop()
	for _, i := range ch.risen {
		i.refill()
	}
	ch.risen = ch.risen[:0]
}
