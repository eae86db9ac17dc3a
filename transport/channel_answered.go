package transport

import (
	"slices"
	"sort"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// ending tells how the broker ended a delivery, and so what a later disposition of it is answered.
type ending uint8

const (
	lockEnded ending = iota // decided, or its lock was lost
	replyRead               // a reply of a request node, which has no lock
	forgotten               // dropped unsettled; it may be locked still, under its token
	undecided               // the partition did not answer; the delivery is in channel.failed
)

// settledBy says who ended a delivery: of a message session its receiver's hold, and how.
type settledBy struct {
	session *heldSession // nil without a message session
	how     ending
}

// by returns how a delivery ends when it is answered.
func (d *sentDelivery) by() settledBy {
	if d.owner == nil {
		return settledBy{how: replyRead}
	}
	return settledBy{session: d.owner.session}
}

// run is a range of delivery ids, both ends included, that ended alike.
type run struct {
	first, last uint32
	by          settledBy
}

const (
	// maxRuns bounds the runs that a channel remembers, 16 KiB. Consecutive deliveries are one run, so a
	// client that settles all that it gets needs a single one.
	maxRuns = 512
	// memorySpan is how many delivery ids back a channel remembers. Ids are serial numbers of 32 bits, and
	// comparing two is right up to half of that (AMQP 1.0 §2.8.10).
	memorySpan = 1 << 30
	// maxFailed bounds the deliveries of a channel whose settlement the partition did not answer.
	maxFailed = 1024
)

// answered remembers the deliveries of a channel that the broker has settled with a disposition. A client
// that has not read it may send one more and waits for an answer (RUL-30, decision 0047).
// Invariant: runs are in the order of their ids and do not overlap.
type answered struct{ runs []run }

// add remembers one delivery. In the order of the ids it costs a comparison.
func (a *answered) add(id uint32, by settledBy) {
	n := len(a.runs)
	if n > 0 && a.runs[n-1].last+1 == id && a.runs[n-1].by == by {
		a.runs[n-1].last = id
		if id-a.runs[0].first > memorySpan {
			a.expire(id - memorySpan)
		}
		return
	}
	i := a.from(id)
	if i < n && !serialLess(id, a.runs[i].first) {
		return // it is remembered
	}
	joinsNext := i < n && a.runs[i].first == id+1 && a.runs[i].by == by
	switch {
	case i > 0 && a.runs[i-1].last+1 == id && a.runs[i-1].by == by:
		a.runs[i-1].last = id
		if joinsNext {
			a.runs[i-1].last = a.runs[i].last
			a.runs = slices.Delete(a.runs, i, i+1)
		}
	case joinsNext:
		a.runs[i].first = id
	default:
		a.runs = slices.Insert(a.runs, i, run{id, id, by})
		if len(a.runs) > maxRuns {
			a.join()
		}
	}
}

// from returns the index of the first run that does not end before id.
func (a *answered) from(id uint32) int {
	return sort.Search(len(a.runs), func(i int) bool { return !serialLess(a.runs[i].last, id) })
}

// expire forgets the ids before floor.
func (a *answered) expire(floor uint32) {
	i := a.from(floor)
	a.runs = slices.Delete(a.runs, 0, i)
	if len(a.runs) > 0 && serialLess(a.runs[0].first, floor) {
		a.runs[0].first = floor
	}
}

// join makes one run of the older half. Its gaps are deliveries that the client has settled itself, of
// which it asks no more.
func (a *answered) join() {
	half := a.runs[:maxRuns/2]
	all := run{first: half[0].first, last: half[len(half)-1].last, by: half[0].by}
	for _, r := range half {
		if r.by != all.by {
			all.by = settledBy{}
		}
	}
	a.runs[0] = all
	a.runs = slices.Delete(a.runs, 1, len(half))
}

// within returns the parts of runs from first to last.
func (a *answered) within(first, last uint32) (parts []run) {
	for i := a.from(first); i < len(a.runs) && !serialLess(last, a.runs[i].first); i++ {
		r := a.runs[i]
		if serialLess(r.first, first) {
			r.first = first
		}
		if serialLess(last, r.last) {
			r.last = last
		}
		parts = append(parts, r)
	}
	return parts
}

// again answers what a disposition says about deliveries that the broker has settled before; yes is the outcome that
// it asks for. A request on its way to the partition is left out: its answer comes. It reports whether anything was
// answered.
func (ch *channel) again(p *amqp.Disposition, yes amqp.DeliveryState) bool {
	ch.c.onLoop()
	if p.Settled {
		return false
	}
	parts := ch.answered.within(p.First, p.Last.Or(p.First))
	if len(parts) == 0 {
		return false
	}
	ch.flushAcks() // what was answered first is told first
	for _, r := range parts {
		ch.c.s.stats.reject(siteDisposition)
		ch.c.out = amqp.AppendDisposition(ch.c.out, ch.number, &amqp.Disposition{
			Role: amqp.RoleSender, First: r.first, Last: amqp.Some(r.last), Settled: true, State: ch.stateOf(r.by, yes),
		})
	}
	return true
}

// stateOf is the answer to a late disposition.
func (ch *channel) stateOf(by settledBy, yes amqp.DeliveryState) amqp.DeliveryState {
	ch.c.onLoop()
	switch {
	case by.how == replyRead:
		return yes
	case by.how == forgotten:
		return ch.c.reject(amqpError(amqp.ConditionNotFound, "The delivery is not known to the link any more."), "")
	case by.session != nil && by.session.over():
		return ch.c.reject(ch.c.s.refusal(fsm.SessionLockLost, "", ""), "")
	}
	return ch.c.reject(ch.c.s.refusal(fsm.MessageLockLost, "", ""), "")
}

// fail remembers a delivery that was answered with a failure, not with a decision. The Java SDK sends its
// disposition again then, and the lock may be there still. It returns how a later disposition is answered.
func (ch *channel) fail(d sentDelivery) settledBy {
	ch.c.onLoop()
	if len(ch.failed) >= maxFailed {
		return settledBy{how: forgotten}
	}
	if ch.failed == nil {
		ch.failed = map[uint32]sentDelivery{}
	}
	ch.failed[d.id] = d
	return settledBy{how: undecided}
}
