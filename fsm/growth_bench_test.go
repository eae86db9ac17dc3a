package fsm

import (
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
)

// What one operation costs beside many others that it has nothing to do with. Each line is one kind of
// operation; its figures for a thousand, a hundred thousand and a million others are to be within a factor
// of two: what is left of the difference is the depth of the tables and the processor's caches. Commands
// go the way they go in a replica, each in an entry of its own, which is the dearest: asked.

var growthSizes = []int{1_000, 100_000, 1_000_000}

// asked does one command of a client as the replicas do it: encoded as an entry of the log, decoded,
// applied under a request id, and its outcome encoded for who asked. The bytes of the entry are used
// again, for what they allocate would only measure the collector.
func (d *driver) asked(c Command) Outcome {
	id := RequestID{Node: 1, Pump: 1 + d.index%64, Counter: d.index}
	o := d.replicated(Request{ID: id, Entity: 7, Command: c})
	if o.Refusal != None {
		d.tb.Fatalf("%T: refusal %d %q", c, o.Refusal, o.Detail)
	}
	d.wire = AppendOutcome(d.wire[:0], &o, false)
	return o
}

// read answers a query as the replica that leads does it: it comes encoded and is answered so.
func (d *driver) read(q Query) {
	d.wire = AppendQuery(d.wire[:0], &QueryRequest{Entity: 7, Query: q})
	r, err := DecodeQuery(d.wire)
	if err != nil {
		d.tb.Fatal(err)
	}
	a := d.s.Query(r)
	if a.Refusal != None {
		d.tb.Fatalf("%T: refusal %d %q", q, a.Refusal, a.Detail)
	}
	d.wire = AppendAnswer(d.wire[:0], &a)
}

func (d *driver) ticked() { d.replicated(Request{Command: &Tick{}}) }

func (d *driver) replicated(r Request) Outcome {
	d.index++
	d.wire = AppendEntry(d.wire[:0], d.entry(r))
	e, err := DecodeEntry(d.wire)
	if err != nil {
		d.tb.Fatal(err)
	}
	return d.s.Apply(d.index, e).Outcomes[0]
}

// oneKiB is the body of every message.
var oneKiB = make([]byte, 1<<10)

// quiet begins the measurement, without the collector: what it costs depends on how far it is with what
// was there before, and on little else. BenchmarkCapture and scripts/growth.sh have it running.
func quiet(b *testing.B) {
	runtime.GC()
	old := debug.SetGCPercent(-1)
	b.Cleanup(func() { debug.SetGCPercent(old) })
	b.ResetTimer()
}

// stride visits all of n places in an order without neighbours.
func stride(i, n int) int { return int(uint64(i) * 2_654_435_761 % uint64(n)) }

// sessionName is the id of the session that came as number i of n: in the order of ids, which a client
// chooses, sessions lie elsewhere than in the order in which they came.
func sessionName(i, n int) string { return "session-" + strconv.Itoa(stride(i, n)) }

// crowd is a queue with messages in sessions, each of which was sent to in turn.
func crowd(b *testing.B, messages, sessions int) *driver {
	d := newDriver(b)
	d.ok(0, Main, queue(7, withSessions, func(d *Descriptor) { d.MaxSizeBytes, d.MaxDelivery = 1<<50, 1<<30 }))
	const batch = 1000
	for i := 0; i < messages; i += batch {
		c := &Enqueue{Messages: make([]Message, batch)}
		for j := range c.Messages {
			c.Messages[j] = inSession(sessionName((i+j)%sessions, sessions))
		}
		d.ok(7, Main, c)
	}
	return d
}

func inSession(id string) Message {
	return Message{HasSession: true, SessionID: id, Body: oneKiB}
}

// BenchmarkBesideSessions: one operation on one session of many. S-36, S-40, S-64
func BenchmarkBesideSessions(b *testing.B) {
	state := make([]byte, 64)
	kinds := []struct {
		name string
		do   func(d *driver, id string)
	}{
		{"send", func(d *driver, id string) { d.asked(&Enqueue{Messages: []Message{inSession(id)}}) }},
		{"accept,lock,state,complete,send,release", func(d *driver, id string) {
			p := d.asked(&AcceptSession{ID: id}).Session
			got := d.asked(&Lock{Max: 1, Session: p}).Locked
			d.asked(&SetSessionState{Session: p, State: state})
			c := settle(got[0].Token, Complete)
			c.Session = p
			d.asked(c)
			d.asked(&Enqueue{Messages: []Message{inSession(id)}})
			d.asked(&ReleaseSession{Session: p, Orderly: true})
		}},
		{"accept next,renew,release", func(d *driver, _ string) {
			p := d.asked(&AcceptSession{Next: true}).Session
			d.asked(&RenewSession{Session: p})
			d.asked(&ReleaseSession{Session: p, Orderly: true})
		}},
		{"accept,lock,expire", func(d *driver, id string) {
			p := d.asked(&AcceptSession{ID: id}).Session
			d.asked(&Lock{Max: 1, Session: p})
			d.after(5000)
			d.ticked()
		}},
		{"list 100 sessions", func(d *driver, id string) {
			d.read(&ListSessions{After: id, HasAfter: true, Max: 100})
		}},
	}
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			for _, n := range growthSizes {
				b.Run(strconv.Itoa(n), func(b *testing.B) { benchCrowd(b, n, n, 0, k.do) })
			}
			b.Run("1000000in10000and100000scheduled", func(b *testing.B) {
				benchCrowd(b, 1_000_000, 10_000, 100_000, k.do)
			})
		})
	}
}

func benchCrowd(b *testing.B, messages, sessions, scheduled int, do func(d *driver, id string)) {
	d := crowd(b, messages, sessions)
	for i := range scheduled {
		m := inSession(sessionName(stride(i, sessions), sessions))
		m.ScheduledAt = d.wall + farAway + Wall(stride(i, 1_000_000))
		d.ok(7, Main, &Enqueue{Messages: []Message{m}})
	}
	quiet(b)
	for i := range b.N {
		do(d, sessionName(stride(i, sessions), sessions)) // fresh in the caches, as if it had just come
	}
}

// BenchmarkBesideScheduled: one operation of a queue in which many messages wait for their time. S-113
func BenchmarkBesideScheduled(b *testing.B) {
	kinds := []struct {
		name string
		do   func(d *driver, i int)
	}{
		{"send,lock,complete", func(d *driver, _ int) {
			d.asked(&Enqueue{Messages: []Message{{Body: oneKiB}}})
			d.asked(settle(d.asked(&Lock{Max: 1}).Locked[0].Token, Complete))
		}},
		{"schedule,cancel", func(d *driver, i int) {
			at := d.wall + farAway + Wall(stride(i, 1_000_000))
			n := d.asked(&Enqueue{Messages: []Message{{ScheduledAt: at, Body: oneKiB}}}).Numbers
			d.asked(&Cancel{Numbers: n})
		}},
		{"schedule,become due,lock,complete", func(d *driver, _ int) {
			d.asked(&Enqueue{Messages: []Message{{ScheduledAt: d.wall + 1, Body: oneKiB}}})
			d.after(1)
			d.ticked()
			d.asked(settle(d.asked(&Lock{Max: 1}).Locked[0].Token, Complete))
		}},
		{"peek 10", func(d *driver, i int) {
			d.read(&Peek{From: SequenceNumber(1 + stride(i, 900)), Max: 10})
		}},
	}
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			for _, n := range growthSizes {
				b.Run(strconv.Itoa(n), func(b *testing.B) {
					d := newDriver(b)
					d.ok(0, Main, queue(7, func(d *Descriptor) { d.MaxSizeBytes = 1 << 50 }))
					for i := 0; i < n; i += 1000 {
						c := &Enqueue{Messages: make([]Message, 1000)}
						for j := range c.Messages {
							at := d.wall + farAway + Wall(stride(i+j, 1_000_000))
							c.Messages[j] = Message{ScheduledAt: at, Body: oneKiB}
						}
						d.ok(7, Main, c)
					}
					quiet(b)
					for i := range b.N {
						k.do(d, i)
					}
				})
			}
		})
	}
}

// farAway is a time that no benchmark reaches.
const farAway Wall = 1 << 40
