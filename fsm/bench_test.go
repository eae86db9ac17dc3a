package fsm

import (
	"bytes"
	"runtime"
	"strconv"
	"testing"
)

// benchBatch is how many requests a packed entry of a busy partition has.
const benchBatch = 64

// loaded returns a driver whose queue 7 has n messages, and its body.
func loaded(b *testing.B, n int) *driver {
	d := newDriver(b)
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.MaxSizeBytes = 1 << 50; d.MaxMessageBytes = 1 << 31 }))
	for ; n > 0; n -= 1000 {
		d.ok(7, Main, messages(min(n, 1000)))
	}
	b.ReportAllocs()
	b.ResetTimer()
	return d
}

// requests makes a packed entry; each request comes from its own pump.
func (d *driver) requests(counter int, c func(i int) Command) []Request {
	reqs := make([]Request, benchBatch)
	for i := range reqs {
		reqs[i] = Request{ID: RequestID{1, uint64(i), uint64(counter)}, Entity: 7, Command: c(i)}
	}
	return reqs
}

// One operation is a message sent, locked and completed, in packed entries of 64 requests each.
func BenchmarkSendLockComplete(b *testing.B) {
	for _, backlog := range []int{0, 1_000_000} {
		b.Run("backlog="+strconv.Itoa(backlog), func(b *testing.B) {
			d := loaded(b, backlog)
			send := message1("body")
			lock := &Lock{Max: 1}
			for n := 0; n < b.N; n += benchBatch {
				d.apply(d.requests(3*n, func(int) Command { return send })...)
				got := d.apply(d.requests(3*n+1, func(int) Command { return lock })...)
				d.after(1)
				d.apply(d.requests(3*n+2, func(i int) Command {
					return settle(got.Outcomes[i].Locked[0].Token, Complete)
				})...)
			}
		})
	}
}

func BenchmarkEnqueue(b *testing.B) {
	d := loaded(b, 0)
	send := message1("body")
	for n := 0; n < b.N; n += benchBatch {
		d.apply(d.requests(n, func(int) Command { return send })...)
	}
}

// One operation is one message of a batch of 1000.
func BenchmarkEnqueueBatch(b *testing.B) {
	d := loaded(b, 0)
	send := messages(1000)
	for n := 0; n < b.N; n += 1000 {
		d.do(7, Main, send)
	}
}

func BenchmarkLockAndReturnByHundreds(b *testing.B) {
	d := loaded(b, 100_000)
	lock := &Lock{Max: 100}
	for n := 0; n < b.N; n += 100 {
		got := d.do(7, Main, lock).Locked
		c := &Settle{Items: make([]SettleItem, len(got))}
		for i := range got {
			c.Items[i] = SettleItem{Token: got[i].Token, Verdict: Return}
		}
		d.do(7, Main, c)
	}
}

func BenchmarkRenew(b *testing.B) {
	d := loaded(b, 10_000)
	got := d.do(7, Main, &Lock{Max: 10_000}).Locked
	b.ResetTimer()
	for n := 0; n < b.N; n++ {
		d.do(7, Main, &Renew{Tokens: []LockToken{got[n%len(got)].Token}})
	}
}

func BenchmarkAcceptLockRelease(b *testing.B) {
	d := newDriver(b)
	d.ok(0, Main, queue(7, withSessions))
	for i := range 10_000 {
		id := strconv.Itoa(i)
		d.ok(7, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: id}}})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		p := d.do(7, Main, &AcceptSession{Next: true}).Session
		d.do(7, Main, &Lock{Max: 1, Session: p})
		d.do(7, Main, &ReleaseSession{Session: p, Orderly: true})
	}
}

func BenchmarkExpiryByTick(b *testing.B) {
	d := loaded(b, 100_000)
	for n := 0; n < b.N; n += 1000 {
		d.do(7, Main, &Lock{Max: 1000})
		d.after(5000)
		d.apply(Request{Command: &Tick{}})
		if n%5000 == 0 { // before the deliveries are used up
			d.s.write(7).d.MaxDelivery += 5
		}
	}
}

func BenchmarkPeek(b *testing.B) {
	d := loaded(b, 100_000)
	for n := range b.N {
		from := SequenceNumber(n % 90_000)
		d.s.Query(QueryRequest{Entity: 7, Query: &Peek{From: from, Max: 10}})
	}
}

// One operation is a message scheduled and cancelled.
func BenchmarkScheduleAndCancel(b *testing.B) {
	d := loaded(b, 0)
	for range b.N {
		at := d.wall + 1000
		n := d.do(7, Main, &Enqueue{Messages: []Message{{ScheduledAt: at}}}).Numbers
		d.do(7, Main, &Cancel{Numbers: n})
	}
}

// One operation is a message sent, deferred, fetched by number and dead-lettered.
func BenchmarkDeferFetchKill(b *testing.B) {
	d := loaded(b, 0)
	send := message1("body")
	for range b.N {
		n := d.do(7, Main, send).Numbers
		d.do(7, Main, settle(d.do(7, Main, &Lock{Max: 1}).Locked[0].Token, Defer))
		got := d.do(7, Main, &Receive{Numbers: n}).Locked
		c := settle(got[0].Token, Kill)
		c.Items[0].Reason = "reason"
		d.do(7, Main, c)
	}
}

func BenchmarkSetSessionState(b *testing.B) {
	d := newDriver(b)
	d.ok(0, Main, queue(7, withSessions))
	p := d.ok(7, Main, &AcceptSession{ID: "s"}).Session
	state := make([]byte, 256)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		d.do(7, Main, &SetSessionState{Session: p, State: state})
	}
}

// The capture itself, with a million messages; writing the image is not part of it.
func BenchmarkCapture(b *testing.B) {
	d := loaded(b, 1_000_000)
	for range b.N {
		d.s.Capture()
	}
}

// One operation is a waiting message that is read from an image.
func BenchmarkRestore(b *testing.B) {
	const n = 1_000_000
	for name, edit := range map[string]func(*Descriptor){
		"plain": func(*Descriptor) {}, "with time to live": func(d *Descriptor) { d.DefaultTTL = 1 << 40 },
	} {
		b.Run(name, func(b *testing.B) {
			d := newDriver(b)
			d.ok(0, Main, queue(7, edit, func(d *Descriptor) { d.MaxSizeBytes = 1 << 50; d.MaxMessageBytes = 1 << 31 }))
			for range n / 1000 {
				d.ok(7, Main, messages(1000))
			}
			var image bytes.Buffer
			if _, err := d.s.Capture().WriteTo(&image); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += n {
				if err := New(d.s.id).Restore(bytes.NewReader(image.Bytes())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The first send after a capture, which clones the tables' roots.
func BenchmarkEnqueueAfterCapture(b *testing.B) {
	d := loaded(b, 1_000_000)
	send := message1("body")
	for range b.N {
		d.s.Capture()
		d.do(7, Main, send)
	}
}

// What a waiting message of a plain queue costs in memory (A8): the goal is 150 bytes.
func TestBytesPerMessage(t *testing.T) {
	const n = 500_000
	if testing.Short() {
		t.Skip("measures memory")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	for range n / 1000 {
		d.ok(7, Main, messages(1000))
	}
	d.last = Result{}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%.0f bytes per message", each)
	if each > 150 {
		t.Errorf("%.0f bytes per message, the goal is 150", each)
	}
	runtime.KeepAlive(d)
}

// One operation is a message of a session sent, locked and completed, in packed entries: 24 sessions,
// held all the time, take part in each.
func BenchmarkSendLockCompleteInSessions(b *testing.B) {
	const sessions, each = 24, 4
	d := newDriver(b)
	d.ok(0, Main, queue(7, withSessions, func(d *Descriptor) { d.LockDuration = 1 << 40 }))
	var held [sessions]SessionProof
	for i := range held {
		held[i] = d.ok(7, Main, &AcceptSession{ID: strconv.Itoa(i)}).Session
	}
	send := &Enqueue{}
	for i := range sessions * each {
		send.Messages = append(send.Messages, Message{HasSession: true, SessionID: strconv.Itoa(i % sessions), Body: []byte("body")})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += sessions * each {
		entry := []Request{{ID: RequestID{1, 99, uint64(2*n + 1)}, Entity: 7, Command: send}}
		for i, p := range held {
			entry = append(entry, Request{ID: RequestID{1, uint64(i), uint64(2*n + 1)}, Entity: 7, Command: &Lock{Max: 100, Session: p}})
		}
		got := d.apply(entry...)
		entry = entry[:0]
		for i, p := range held {
			c := &Settle{Session: p}
			for _, m := range got.Outcomes[i+1].Locked {
				c.Items = append(c.Items, SettleItem{Token: m.Token, Verdict: Complete})
			}
			entry = append(entry, Request{ID: RequestID{1, uint64(i), uint64(2*n + 2)}, Entity: 7, Command: c})
		}
		d.apply(entry...)
	}
}
