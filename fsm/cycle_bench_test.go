package fsm

import (
	"strconv"
	"testing"
)

// cycleLoad is the load of one round: what busy senders and receivers put into one entry each.
const (
	cycleReceivers = 24
	cycleSends     = 24 // enqueues of a round
	cycleBatch     = 20 // messages of an enqueue
)

// One operation is a message sent, locked and completed in batches, as 24 receivers do it that settle what the round
// before gave them. With sessions each of them holds one, and a batch that is sent goes to many.
func BenchmarkCycle(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchmarkCycle(b, false) })
	b.Run("sessions", func(b *testing.B) { benchmarkCycle(b, true) })
}

func benchmarkCycle(b *testing.B, sessions bool) {
	d := newDriver(b)
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.RequiresSession, d.LockDuration = sessions, 1<<40 }))
	var held [cycleReceivers]SessionProof
	for i := range held {
		if sessions {
			held[i] = d.ok(7, Main, &AcceptSession{ID: "session-" + strconv.Itoa(i)}).Session
		}
	}
	var sends [cycleSends]*Enqueue
	for i := range sends {
		sends[i] = cycleEnqueue(i*cycleBatch, sessions)
	}
	settles := [cycleReceivers]*Settle{}
	b.ReportAllocs()
	b.ResetTimer()
	for n, counter := 0, uint64(0); n < b.N; n += cycleSends * cycleBatch {
		counter++
		entry := make([]Request, 0, cycleSends+2*cycleReceivers)
		for i, send := range sends {
			entry = append(entry, Request{ID: RequestID{1, 1000 + uint64(i), counter}, Entity: 7, Command: send})
		}
		for i, p := range held {
			lock := &Lock{Max: 50, Session: p}
			if !sessions {
				lock.Max = cycleBatch
			}
			entry = append(entry, Request{ID: RequestID{1, uint64(i), counter}, Entity: 7, Command: lock})
		}
		for i, c := range settles {
			if c != nil {
				entry = append(entry, Request{ID: RequestID{1, 2000 + uint64(i), counter}, Entity: 7, Command: c})
			}
		}
		got := d.apply(entry...)
		for i := range settles {
			c := &Settle{Session: held[i]}
			for _, m := range got.Outcomes[cycleSends+i].Locked {
				c.Items = append(c.Items, SettleItem{Token: m.Token, Verdict: Complete})
			}
			settles[i] = c
		}
	}
}

// cycleEnqueue is a batch of messages, each of another session if there are any.
func cycleEnqueue(first int, sessions bool) *Enqueue {
	c := &Enqueue{}
	for i := range cycleBatch {
		m := Message{Body: []byte("body")}
		if sessions {
			m.HasSession, m.SessionID = true, "session-"+strconv.Itoa((first+i)%cycleReceivers)
		}
		c.Messages = append(c.Messages, m)
	}
	return c
}
