package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// browserOf is a receiver that looks and does not take.
func browserOf(handle uint32, address string, edit ...func(*amqp.Attach)) *amqp.Attach {
	a := receiverOf(handle, address)
	a.Source.DistributionMode = amqp.DistributionCopy
	for _, f := range edit {
		f(a)
	}
	return a
}

// ofSession adds a session filter; nil asks for the next one.
func ofSession(id any) func(*amqp.Attach) {
	return func(a *amqp.Attach) {
		w := amqp.BeginSymbolMap(nil)
		if text, ok := id.(string); ok {
			w.String(string(amqp.FilterSession), text)
		} else {
			w.Null(string(amqp.FilterSession))
		}
		a.Source.Filter = w.End()
	}
}

// copies takes what comes until the credit is used up by a drain, or until n have come.
func (c *rawClient) copies(n int) (bodies []string) {
	c.t.Helper()
	for len(bodies) < n {
		p, payload := c.next()
		switch p := p.(type) {
		case *amqp.Transfer:
			m, err := amqp.ParseMessage(payload)
			if err != nil {
				c.t.Fatal(err)
			}
			if !p.Settled.Value {
				c.t.Errorf("a copy is not settled")
			}
			data, _ := amqp.SectionValue(m.Body).Binary()
			bodies = append(bodies, string(data))
		case *amqp.Flow:
			if p.LinkCredit.Value != 0 {
				c.t.Fatalf("drained with a credit of %d left", p.LinkCredit.Value)
			}
			return bodies
		default:
			c.t.Fatalf("got %s", describe(0, p))
		}
	}
	return bodies
}

// S-35, S-85, S-247, S-248, S-251: a receiver that asks for copies sees the active messages, locked or not,
// in the order of their arrival, and changes nothing.
func TestABrowserShowsAndTakesNothing(t *testing.T) {
	cases := map[string]struct {
		address string
		edit    []func(*amqp.Attach)
		want    []string
	}{
		"what is deferred or scheduled is not shown": {"orders", nil, []string{"active", "locked"}},
		"whatever way of settling the client asks for": {"orders",
			[]func(*amqp.Attach){func(a *amqp.Attach) { a.SndSettleMode = amqp.Some(amqp.SenderSettled) }},
			[]string{"active", "locked"}},
		"dead letters":                     {"orders/$DeadLetterQueue", nil, []string{"dead", "dead too"}},
		"all sessions, though one is held": {"grouped", nil, []string{"in session"}},
		"one session, though it is held":   {"grouped", []func(*amqp.Attach){ofSession("s")}, []string{"in session"}},
		"an empty session":                 {"grouped", []func(*amqp.Attach){ofSession("other")}, nil},
		"share by share":                   {"spread", nil, []string{"spread 1", "spread 2", "spread 3"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				s := newScene(t, b)
				defer s.c.close()
				before := s.picture()
				c := b.client()
				defer c.close()
				c.authenticate()
				reply := c.attach(0, browserOf(7, tc.address, tc.edit...))
				if reply.SndSettleMode.Value != amqp.SenderSettled || reply.Source.DistributionMode != amqp.DistributionCopy {
					t.Errorf("attached as %+v, %+v", reply, reply.Source)
				}
				for round := range 2 {
					c.send(0, credit(7, uint32(100*round), 100, true))
					want := tc.want
					if round > 0 {
						want = nil
					}
					if got := c.copies(100); !slices.Equal(got, want) {
						t.Errorf("round %d: %q, want %q", round, got, want)
					}
				}
				c.send(0, &amqp.Detach{Handle: 7, Closed: true})
				expect[*amqp.Detach](c)
				if after := s.picture(); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
			})
		})
	}
}

// A browser keeps to its credit, goes on where it was, and shows what came meanwhile when it is asked again.
func TestABrowserKeepsToItsCredit(t *testing.T) {
	inBubble(t, func(b *bubble) {
		d := b.broker.queue("a", partitioned)
		fill := func(from, to int) (texts []string) {
			for i := from; i < to; i++ {
				texts = append(texts, fmt.Sprintf("message %02d", i))
			}
			(&scene{t: t, b: b, number: map[string]fsm.SequenceNumber{}}).enqueue(d, fsm.Main, texts...)
			return texts
		}
		all := fill(0, 20)
		c := b.client()
		defer c.close()
		c.authenticate()
		c.attach(0, browserOf(7, "a"))
		synctest.Wait()
		c.send(0, credit(7, 0, 5, false))
		got := c.copies(5)
		synctest.Wait()
		if len(c.in) > 0 {
			t.Fatalf("more than the credit: %s", describe(0, first(c.next())))
		}
		c.send(0, credit(7, 5, 100, false))
		got = append(got, c.copies(15)...)
		slices.Sort(got)
		if !slices.Equal(got, all) {
			t.Errorf("got %q", got)
		}
		synctest.Wait()
		late := fill(20, 24)
		c.send(0, credit(7, 20, 3, false))
		got = c.copies(3)
		c.send(0, credit(7, 23, 10, true))
		got = append(got, c.copies(10)...)
		slices.Sort(got)
		if !slices.Equal(got, late) {
			t.Errorf("late: %q", got)
		}
	}, func(c *Config) { c.MaxLock = 4 })
}

func first(p amqp.Performative, _ []byte) amqp.Performative { return p }

// A drain tells the end only when all that was stored before it has been shown, even if an older question
// is still under way.
func TestADrainSeesWhatWasStoredBefore(t *testing.T) {
	inBubble(t, func(b *bubble) {
		d := b.broker.queue("a")
		s := &scene{t: t, b: b, number: map[string]fsm.SequenceNumber{}}
		c := b.client()
		defer c.close()
		c.authenticate()
		c.attach(0, browserOf(7, "a"))
		for i := range 20 {
			c.send(0, credit(7, 0, 100, false)) // a question that finds nothing
			text := fmt.Sprint("message ", i)
			s.enqueue(d, fsm.Main, text)
			c.send(0, credit(7, 0, 100, true))
			if got := c.copies(100); !slices.Equal(got, []string{text}) {
				t.Fatalf("round %d: %q", i, got)
			}
			c.send(0, &amqp.Detach{Handle: 7, Closed: true})
			expect[*amqp.Detach](c)
			s.propose(d, fsm.Main, 0, &fsm.Lock{Max: 1, Delete: true})
			c.attach(0, browserOf(7, "a"))
		}
	})
}

// What a receiver may not have a browser may not have either, and a filter that nobody applies is refused:
// the client would take it for one that is in place.
func TestAttachesThatAreRefused(t *testing.T) {
	selector := func(a *amqp.Attach) {
		w := amqp.BeginSymbolMap(nil)
		w.String("jms-selector", "colour = 'red'")
		a.Source.Filter = w.End()
	}
	durable := func(a *amqp.Attach) { a.Source.Durable = 2 }
	cases := map[string]struct {
		attach *amqp.Attach
		want   amqp.Symbol // "" if it is taken
	}{
		"a topic":                       {browserOf(7, "news"), amqp.ConditionNotAllowed},
		"a disabled queue":              {browserOf(7, "off"), amqp.ConditionEntityDisabled},
		"a queue that forwards":         {browserOf(7, "first"), amqp.ConditionNotAllowed},
		"nothing":                       {browserOf(7, "nowhere"), amqp.ConditionNotFound},
		"any session":                   {browserOf(7, "grouped", ofSession(nil)), amqp.ConditionNotAllowed},
		"a session where there is none": {browserOf(7, "orders", ofSession("s")), amqp.ConditionNotAllowed},
		"a browser with a selector":     {browserOf(7, "orders", selector), amqp.ConditionNotImplemented},
		"a receiver with a selector":    {browserOf(7, "orders", selector, durable), amqp.ConditionNotImplemented},
		"a durable source of sessions":  {browserOf(7, "grouped", durable), amqp.ConditionNotAllowed},
		"a durable source, which takes": {browserOf(7, "orders", durable), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				s := newScene(t, b)
				defer s.c.close()
				b.broker.queue("news", func(d *fsm.Descriptor) { d.Kind = fsm.Topic })
				b.broker.queue("off", func(d *fsm.Descriptor) { d.Status = fsm.ReceiveDisabled })
				b.broker.queue("first", func(d *fsm.Descriptor) { d.ForwardTo = "orders" })
				s.c.send(0, tc.attach)
				reply, _ := expect[*amqp.Attach](s.c)
				if tc.want == "" {
					s.c.send(0, credit(7, 0, 1, false))
					if tr, _ := expect[*amqp.Transfer](s.c); tr.Settled.Value || reply.Source == nil {
						t.Errorf("%s, %+v", describe(0, tr), reply)
					}
					return
				}
				detach, _ := expect[*amqp.Detach](s.c)
				if reply.Source != nil || detach.Error == nil || detach.Error.Condition != tc.want {
					t.Errorf("%+v, %+v", reply, detach.Error)
				}
			})
		})
	}
}

// Copies that wait for the client's window count like messages that do, and no longer than their link.
func TestCopiesThatWaitAreBounded(t *testing.T) {
	inBubble(t, func(b *bubble) {
		d := b.broker.queue("a")
		s := &scene{t: t, b: b, number: map[string]fsm.SequenceNumber{}}
		for i := range 15 {
			s.enqueue(d, fsm.Main, fmt.Sprint(i, strings.Repeat("x", 100)))
		}
		c := b.client()
		defer c.close()
		c.authenticate()
		c.attach(0, browserOf(7, "a"))
		c.attach(0, browserOf(8, "a"))
		flow := func(handle, amount, window uint32) {
			f := credit(handle, 0, amount, false)
			f.NextIncomingID, f.IncomingWindow = amqp.Opt[uint32]{}, window
			c.send(0, f)
			synctest.Wait()
		}
		flow(7, 15, 2)
		if got := c.copies(1); len(got) != 1 {
			t.Fatalf("got %q", got)
		}
		flow(8, 15, 4)
		for conn := range b.server.conns {
			if len(conn.starved) != 1 || conn.queuedBytes < 2000 || conn.queuedBytes > 6000 {
				t.Errorf("%d wait for room, %d bytes are queued", len(conn.starved), conn.queuedBytes)
			}
		}
		c.send(0, &amqp.Detach{Handle: 7, Closed: true})
		for p, _ := c.next(); ; p, _ = c.next() {
			if _, ok := p.(*amqp.Detach); ok {
				break
			}
		}
		flow(8, 15, 100)
		if got := c.copies(15); len(got) != 15 || got[0][0] != '0' {
			t.Errorf("got %q", got)
		}
	}, func(c *Config) { c.MaxConnBytes = 2000 })
}

// A browser ends with its entity.
func TestABrowserEndsWithItsEntity(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		c := b.client()
		defer c.close()
		c.authenticate()
		c.attach(0, browserOf(7, "a"))
		b.broker.remove("a")
		c.send(0, credit(7, 0, 1, true))
		if detach, _ := expect[*amqp.Detach](c); detach.Error == nil || detach.Error.Condition != amqp.ConditionNotFound {
			t.Errorf("%+v", detach.Error)
		}
	})
}

// moodyBroker has no answer for a while.
type moodyBroker struct {
	*singleBroker
	moods []error
}

func (b *moodyBroker) Query(context.Context, fsm.Key, fsm.Query) (fsm.Answer, error) {
	if len(b.moods) == 0 {
		return fsm.Answer{Next: 7}, nil
	}
	err := b.moods[0]
	b.moods = b.moods[1:]
	if err == nil {
		return fsm.Answer{Refusal: fsm.NotLeader}, nil
	}
	return fsm.Answer{}, err
}

// A browser waits while a partition has no leader, and no longer than its link.
func TestABrowserWaitsForALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moody := &moodyBroker{moods: []error{errors.New("no leader"), nil, context.DeadlineExceeded}}
		s := testSource(moody)
		if a, err := s.Ask(t.Context(), fsm.Key{}, &fsm.Browse{}); err != nil || a.Next != 7 {
			t.Errorf("%+v, %v", a, err)
		}
		moody.moods = []error{fmt.Errorf("a: %w", fsm.ErrNoEntity)}
		if _, err := s.Ask(t.Context(), fsm.Key{}, &fsm.Browse{}); !waist.IsGone(err) {
			t.Errorf("gone: %v", err)
		}
		moody.moods = slices.Repeat([]error{errors.New("no leader")}, 1000)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Ask(ctx, fsm.Key{}, &fsm.Browse{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given up: %v", err)
		}
	})
}

// S-107, S-121: the time of delivery of JMS schedules like the original's own annotation, which wins. It is
// offered to who asks for it.
func TestADeliveryTimeSchedules(t *testing.T) {
	const day = 24 * 3600 * 1000
	at := func(key string, value any) amqp.Pair { return amqp.Pair{Key: amqp.Symbol(key), Value: value} }
	for name, tc := range map[string]struct {
		annotations amqp.Map
		want        fsm.Wall
		refused     bool
	}{
		"none":                     {nil, 0, false},
		"a long":                   {amqp.Map{at(annDeliveryTime, int64(5*day))}, 5 * day, false},
		"a timestamp":              {amqp.Map{at(annDeliveryTime, amqp.Timestamp(6*day))}, 6 * day, false},
		"null":                     {amqp.Map{at(annDeliveryTime, nil)}, 0, false},
		"the original's beside it": {amqp.Map{at(annDeliveryTime, int64(day)), at(annScheduledTime, amqp.Timestamp(2*day))}, 2 * day, false},
		"a text":                   {amqp.Map{at(annDeliveryTime, "noon")}, 0, true},
		"before the epoch":         {amqp.Map{at(annDeliveryTime, int64(-1))}, 0, true},
		"more than fits":           {amqp.Map{at(annDeliveryTime, uint64(1<<63))}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := amqp.BeginMapSection(nil, amqp.CodeMessageAnnotations)
			for _, p := range tc.annotations {
				raw, err := amqp.AppendValue(nil, p.Value)
				if err != nil {
					t.Fatal(err)
				}
				w.Raw(string(p.Key.(amqp.Symbol)), raw)
			}
			m, _, _, refusal := translateMessage(append(w.End(), encoded("x")...), &fsm.Descriptor{}, noID)
			if m.ScheduledAt != tc.want || (refusal != nil) != tc.refused {
				t.Errorf("scheduled at %d, %v", m.ScheduledAt, refusal)
			}
		})
	}
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		c := b.client()
		defer c.close()
		c.authenticate()
		for i, asks := range [][]amqp.Symbol{{"other", delayedDelivery}, {"other"}, nil} {
			a := senderTo(uint32(5+i), "a")
			a.DesiredCapabilities = asks
			reply := c.attach(0, a)
			if offers := len(reply.OfferedCapabilities) == 1 && reply.OfferedCapabilities[0] == delayedDelivery; offers != (i == 0) {
				t.Errorf("who asks for %q is offered %q", asks, reply.OfferedCapabilities)
			}
			expect[*amqp.Flow](c)
		}
	})
}
