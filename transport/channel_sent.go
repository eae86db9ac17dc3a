package transport

import (
	"sort"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// sentDelivery is a delivery that the client has not settled.
type sentDelivery struct {
	id    uint32
	live  bool
	owner *egress // nil for a reply of a request node
	seq   fsm.SequenceNumber
	token fsm.LockToken
	until fsm.Wall      // when the lock ended unless renewed
	key   *partitionKey // nil on an entity that is not partitioned
	at    time.Time     // when it was sent; zero if nobody asks
	trace *traced       // of its delivery; nil if nobody traces it
}

// sentList holds the unsettled deliveries of a channel in the order of their ids. It is a slice,
// not a map, because every message passes through it: settled ones are marked and swept up when
// they are the majority.
type sentList struct {
	items []sentDelivery
	dead  int
}

// add appends a delivery; its id is greater than all before.
func (s *sentList) add(d sentDelivery) {
	d.live = true
	s.items = append(s.items, d)
}

// from returns the index of the first delivery whose id is not before id.
func (s *sentList) from(id uint32) int {
	return sort.Search(len(s.items), func(i int) bool { return !serialLess(s.items[i].id, id) })
}

// take calls f with every unsettled delivery from first to last and forgets those for which f
// returns true. A range costs what it finds, not what it claims.
func (s *sentList) take(first, last uint32, f func(d *sentDelivery) bool) (found bool) {
	for i := s.from(first); i < len(s.items) && !serialLess(last, s.items[i].id); i++ {
		d := &s.items[i]
		if !d.live {
			continue
		}
		found = true
		if f(d) {
			s.kill(d)
		}
	}
	s.tidy()
	return found
}

func (s *sentList) kill(d *sentDelivery) {
	*d = sentDelivery{id: d.id}
	s.dead++
}

// minTidy is the number of settled deliveries below which sweeping is not worth it.
const minTidy = 64

// tidy drops the settled ones when they are the majority.
func (s *sentList) tidy() {
	if s.dead == len(s.items) {
		s.items, s.dead = s.items[:0], 0
		return
	}
	if s.dead < minTidy || s.dead*2 < len(s.items) {
		return
	}
	live := s.items[:0]
	for _, d := range s.items {
		if d.live {
			live = append(live, d)
		}
	}
	clear(s.items[len(live):])
	s.items, s.dead = live, 0
}

// prune forgets the chosen deliveries whose lock ended before now: the client never settled them. It
// calls forget with each id.
func (s *sentList) prune(chosen func(owner *egress) bool, now fsm.Wall, forget func(id uint32)) (count int) {
	for i := range s.items {
		d := &s.items[i]
		if d.live && d.until != 0 && d.until < now && chosen(d.owner) {
			forget(d.id)
			s.kill(d)
			count++
		}
	}
	s.tidy()
	return count
}

// prune forgets what owner was sent under locks that have ended, and remembers that it did.
func (ch *channel) prune(owner *egress) int {
	ch.c.onLoop()
	by := settledBy{how: forgotten}
	if owner == nil {
		by.how = replyRead
	}
	return ch.sent.prune(func(o *egress) bool { return o == owner }, nowWall(), func(id uint32) { ch.answered.add(id, by) })
}

// pruneEnded is prune for all links that have ended: nobody else would forget what they were sent.
func (ch *channel) pruneEnded() {
	ch.c.onLoop()
	ch.sent.prune(func(o *egress) bool { return o != nil && o.closing }, nowWall(),
		func(id uint32) { ch.answered.add(id, settledBy{how: forgotten}) })
}
