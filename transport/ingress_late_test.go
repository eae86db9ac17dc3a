package transport

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// gate has the first commands that store messages wait, and notes what all of them have stored.
type gate struct {
	mu    sync.Mutex
	wait  chan struct{}
	first int // commands that wait
	sends []*fsm.Enqueue
}

// gated has the broker's first commands wait.
func gated(b *singleBroker, first int) *gate {
	g := &gate{wait: make(chan struct{}), first: first}
	b.before = func(c fsm.Command) chan struct{} {
		g.mu.Lock()
		defer g.mu.Unlock()
		e, is := c.(*fsm.Enqueue)
		if !is {
			return nil
		}
		g.sends = append(g.sends, e)
		if len(g.sends) > g.first {
			return nil
		}
		return g.wait
	}
	return g
}

// stored returns the bodies of each command.
func (g *gate) stored() (out []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.sends {
		var all []string
		for _, m := range e.Messages {
			_, body, _ := bytes.Cut(m.Body, []byte("body:"))
			all = append(all, strings.TrimRight(string(body), "-"))
		}
		out = append(out, strings.Join(all, " "))
	}
	return out
}

// deliveryOf is the payload of a message of at least some bytes.
func deliveryOf(name string, bytes int) []byte {
	return amqp.AppendData(nil, []byte("body:"+name+strings.Repeat("-", bytes)))
}

// verdicts reads the answers to so many deliveries: their ids, in the order in which they came, and which of them were accepted.
func verdicts(c *rawClient, count int) (ids []uint32, accepted []uint32) {
	for len(ids) < count {
		d, _ := expect[*amqp.Disposition](c)
		last := d.Last.Or(d.First)
		for id := d.First; id <= last; id++ {
			ids = append(ids, id)
			if _, good := d.State.(amqp.Accepted); good {
				accepted = append(accepted, id)
			}
		}
	}
	return ids, accepted
}

// Deliveries that come while the request of their link waits for its entry join it, in their order. What cannot join waits for
// the next request, and so does what comes behind.
func TestDeliveriesJoinARequestThatWaits(t *testing.T) {
	for _, c := range []struct {
		name   string
		third  []byte
		stored []string
		good   []uint32
	}{
		{"all small", deliveryOf("3", 0), []string{"1 2 3 4"}, []uint32{1, 2, 3, 4}},
		{"one large", deliveryOf("3", maxLateDelivery), []string{"1 2", "3 4"}, []uint32{1, 2, 3, 4}},
		{"one bad", []byte("bad"), []string{"1 2", "4"}, []uint32{1, 2, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("orders")
				g := gated(b.broker, 1)
				r := b.client()
				r.authenticate()
				r.attach(0, senderTo(2, "orders"))
				expect[*amqp.Flow](r)
				for i, payload := range [][]byte{deliveryOf("1", 0), deliveryOf("2", 0), c.third, deliveryOf("4", 0)} {
					r.send(0, transferOf(2, uint32(i+1)), payload)
					synctest.Wait()
				}
				if n := len(g.stored()); n != 1 {
					t.Errorf("%d requests while the first one waits", n)
				}
				close(g.wait)
				ids, good := verdicts(r, 4)
				if !slices.Equal(ids, []uint32{1, 2, 3, 4}) || !slices.Equal(good, c.good) {
					t.Errorf("answered %v, accepted %v, want %v", ids, good, c.good)
				}
				if got := g.stored(); !slices.Equal(got, c.stored) {
					t.Errorf("requests %q, want %q", got, c.stored)
				}
				r.close()
			})
		})
	}
}

// sendThree sends three deliveries while the first request waits, lets it go on, and returns the client and the verdicts.
func sendThree(b *bubble, g *gate) (r *rawClient, ids, good []uint32) {
	r = b.client()
	r.authenticate()
	r.attach(0, senderTo(2, "orders"))
	expect[*amqp.Flow](r)
	for i := range 3 {
		r.send(0, transferOf(2, uint32(i+1)), deliveryOf(fmt.Sprint(i+1), 0))
		synctest.Wait()
	}
	close(g.wait)
	ids, good = verdicts(r, 3)
	return r, ids, good
}

// A request that failed before its entry has nothing joined: what came meanwhile is asked by itself.
func TestWhatHasNotJoinedIsAskedByItself(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		g := gated(b.broker, 1)
		failed := false
		b.broker.fail = func(c fsm.Command) error {
			if _, is := c.(*fsm.Enqueue); is && !failed {
				failed = true
				return fmt.Errorf("full: %w", fsm.ErrBusy)
			}
			return nil
		}
		r, ids, good := sendThree(b, g)
		if !slices.Equal(ids, []uint32{1, 2, 3}) || !slices.Equal(good, []uint32{2, 3}) {
			t.Errorf("answered %v, accepted %v", ids, good)
		}
		if got := g.stored(); !slices.Equal(got, []string{"1", "2 3"}) {
			t.Errorf("requests %q", got)
		}
		r.close()
	})
}

// A refusal of a request says nothing about each delivery that has joined it, so each is asked by itself.
func TestARefusalOfWhatHasJoinedIsAskedOneByOne(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		g := gated(b.broker, 1)
		b.broker.answer = func(_ fsm.Key, c fsm.Command) (fsm.Outcome, bool) {
			e, is := c.(*fsm.Enqueue)
			if !is {
				return fsm.Outcome{}, false
			}
			e.Seal(1 << 20)
			if len(e.Messages) > 1 || bytes.Contains(e.Messages[0].Body, []byte("body:2")) {
				return fsm.Outcome{Refusal: fsm.QuotaExceeded}, true
			}
			return fsm.Outcome{}, false
		}
		r, ids, good := sendThree(b, g)
		if !slices.Equal(ids, []uint32{1, 2, 3}) || !slices.Equal(good, []uint32{1, 3}) {
			t.Errorf("answered %v, accepted %v", ids, good)
		}
		if got := g.stored(); !slices.Equal(got, []string{"1 2 3", "1", "2", "3"}) {
			t.Errorf("requests %q", got)
		}
		r.close()
	})
}

// S-133: a delivery joins the request of its own key and of no other one.
func TestDeliveriesJoinTheRequestOfTheirShare(t *testing.T) {
	keyed := func(key, name string) []byte {
		w := amqp.BeginMapSection(nil, amqp.CodeMessageAnnotations)
		w.String("x-opt-partition-key", key)
		return append(w.End(), deliveryOf(name, 0)...)
	}
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) { d.Partitioned, d.Partitions = true, []fsm.PartitionID{1, 2} })
		one, other := "a", "b"
		for i := 0; fsm.KeyShare(one, 2) == fsm.KeyShare(other, 2); i++ {
			other = fmt.Sprint("b", i)
		}
		g := gated(b.broker, 2)
		r := b.client()
		r.authenticate()
		r.attach(0, senderTo(2, "orders"))
		expect[*amqp.Flow](r)
		for i, key := range []string{one, other, one, other, one} {
			r.send(0, transferOf(2, uint32(i+1)), keyed(key, fmt.Sprint(i+1)))
			synctest.Wait()
		}
		close(g.wait)
		ids, good := verdicts(r, 5)
		slices.Sort(ids)
		if !slices.Equal(ids, []uint32{1, 2, 3, 4, 5}) || len(good) != 5 {
			t.Errorf("answered %v, accepted %v", ids, good)
		}
		if got := g.stored(); !slices.Equal(got, []string{"1 3 5", "2 4"}) {
			t.Errorf("requests %q", got)
		}
		r.close()
	})
}
