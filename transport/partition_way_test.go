package transport

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// partitionsAsked notes the partition of each command that the front end proposes, by the command's name.
type partitionsAsked struct {
	mu   sync.Mutex
	seen map[string][]fsm.PartitionID
}

// partitionOf is the partition that a key selects, 0 if it names none.
func partitionOf(d *fsm.Descriptor, k fsm.Key) fsm.PartitionID {
	switch k.By {
	case fsm.ByShare:
		return d.Partitions[k.Share]
	case fsm.ByText:
		return d.Partitions[fsm.KeyShare(k.Text, len(d.Partitions))]
	}
	return 0
}

func (a *partitionsAsked) listen(b *singleBroker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = func(k fsm.Key, c fsm.Command) (fsm.Outcome, bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if d := b.byID[k.Entity]; d != nil && d.Partitioned {
			name := fmt.Sprintf("%T", c)
			a.seen[name] = append(a.seen[name], partitionOf(d, k))
		}
		return fsm.Outcome{}, false
	}
}

// during returns where the commands of one type went while f ran.
func (a *partitionsAsked) during(command fsm.Command, f func()) []fsm.PartitionID {
	name := fmt.Sprintf("%T", command)
	a.mu.Lock()
	before := len(a.seen[name])
	a.mu.Unlock()
	f()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[name][before:]
}

// S-317: a lock token, a sequence number and a session id name one partition, and the front end asks that one alone.
func TestTokensNumbersAndSessionsNameTheirPartition(t *testing.T) {
	ts := startServer(t, 3)
	ts.broker.queue("q", partitioned)
	ts.broker.queue("s", partitioned, withSessions)
	asked := &partitionsAsked{seen: map[string][]fsm.PartitionID{}}
	asked.listen(ts.broker)
	session := newSession(t, dial(t, ts))
	tx := newSender(t, session, "q")
	for i := range 9 {
		m := goamqp.NewMessage([]byte("x"))
		m.Annotations = goamqp.Annotations{"x-opt-partition-key": fmt.Sprint("k", i)}
		if err := tx.Send(testContext(t), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	one := func(what string, want fsm.PartitionID, command fsm.Command, f func()) {
		t.Helper()
		if got := asked.during(command, f); len(got) != 1 || got[0] != want {
			t.Errorf("%s asks the partitions %v, want %d", what, got, want)
		}
	}
	request := func(operation string, body map[string]any) func() {
		return func() {
			t.Helper()
			answer := ask(t, session, "q/$management", "replies-"+operation, &goamqp.Message{
				ApplicationProperties: map[string]any{"operation": "com.microsoft:" + operation}, Value: body})
			if code := answer.ApplicationProperties["statusCode"]; code != int32(200) {
				t.Fatalf("%s: %v", operation, answer.ApplicationProperties)
			}
		}
	}
	rx := newReceiver(t, session, "q")
	used := map[fsm.PartitionID]bool{}
	for i, m := range receive(t, rx, 9) {
		number := m.Annotations["x-opt-sequence-number"].(int64)
		p := fsm.PartitionID(number >> 48)
		token, _ := amqp.TokenFromTag(m.DeliveryTag)
		tokens := []goamqp.UUID{goamqp.UUID(token)}
		used[p] = true
		one("renew-lock", p, &fsm.Renew{}, request("renew-lock", map[string]any{"lock-tokens": tokens}))
		switch i % 3 {
		case 0:
			one("an outcome", p, &fsm.Settle{}, func() {
				if err := rx.AcceptMessage(testContext(t), m); err != nil {
					t.Fatal(err)
				}
			})
		case 1:
			one("update-disposition", p, &fsm.Settle{}, request("update-disposition",
				map[string]any{"lock-tokens": tokens, "disposition-status": "completed"}))
		case 2:
			one("defer", p, &fsm.Settle{}, request("update-disposition",
				map[string]any{"lock-tokens": tokens, "disposition-status": "defered"}))
			one("receive-by-sequence-number", p, &fsm.Receive{}, request("receive-by-sequence-number",
				map[string]any{"sequence-numbers": []int64{number}, "receiver-settle-mode": uint32(0)}))
		}
	}
	if len(used) != 3 {
		t.Fatalf("the messages are in the partitions %v, want all three", used)
	}
	desc := ts.broker.entities["s"]
	for i := range 6 {
		id := fmt.Sprint("session ", i)
		want := desc.Partitions[fsm.KeyShare(id, len(desc.Partitions))]
		one("an accept by id", want, &fsm.AcceptSession{}, func() { mustAccept(t, session, "s", id) })
	}
}

// lag carries bytes from one connection to another, each piece after d. It returns when the last piece is there.
func lag(to, from net.Conn, d time.Duration) {
	type piece struct {
		at time.Time
		b  []byte
	}
	way := make(chan piece, 1<<16)
	var carrier sync.WaitGroup
	carrier.Go(func() {
		defer to.Close()
		for p := range way {
			time.Sleep(time.Until(p.at))
			if _, err := to.Write(p.b); err != nil {
				break
			}
		}
		for range way { // until the other side is gone as well
		}
	})
	defer carrier.Wait()
	defer close(way)
	for {
		b := make([]byte, 4096)
		n, err := from.Read(b)
		if n > 0 {
			way <- piece{time.Now().Add(d), b[:n]}
		}
		if err != nil {
			return
		}
	}
}

// distant is a client with a round trip of 2d to the server.
func (b *bubble) distant(d time.Duration) *rawClient {
	near, a := net.Pipe()
	z, far := net.Pipe()
	if !b.in.offer(far) {
		b.t.Fatal("server is closed")
	}
	var lags sync.WaitGroup
	lags.Go(func() { lag(z, a, d) })
	lags.Go(func() { lag(a, z, d) })
	b.t.Cleanup(lags.Wait) // the clock of a bubble stands still when its test is over
	c := &rawClient{t: b.t, conn: near, in: make(chan readFrame, 1<<16)}
	if err := near.SetDeadline(time.Now().Add(clientPatience)); err != nil {
		b.t.Fatal(err)
	}
	go c.read()
	return c
}

// S-134: with a round trip of 70 ms and 10 ms to store a message, ten awaited sends cost ten of both, and ten
// overlapped ones little more than one.
func TestSendsThatAreNotAwaitedOverlap(t *testing.T) {
	const way, store, sends = 35 * time.Millisecond, 10 * time.Millisecond, 10
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		b.broker.after = func(c fsm.Command, _ fsm.Outcome) chan struct{} {
			if _, ok := c.(*fsm.Enqueue); !ok {
				return nil
			}
			stored := make(chan struct{})
			time.AfterFunc(store, func() { close(stored) })
			return stored
		}
		c := b.distant(way)
		defer c.close()
		c.authenticate()
		c.attach(0, senderTo(2, "a"))
		if f, _ := expect[*amqp.Flow](c); f.LinkCredit.Value < 2*sends {
			t.Fatalf("the sender has credit for %d messages", f.LinkCredit.Value)
		}
		id := uint32(1)
		send := func() {
			c.send(0, transferOf(2, id), amqp.AppendData(nil, []byte("x")))
			id++
		}
		await := func(n int) {
			for done := 0; done < n; {
				p, _ := c.next()
				d, ok := p.(*amqp.Disposition)
				if !ok {
					continue // a flow
				}
				if d.State != (amqp.Accepted{}) || !d.Settled {
					t.Fatalf("answered %s", describe(0, d))
				}
				done += int(d.Last.Or(d.First)-d.First) + 1
			}
		}
		began := time.Now()
		for range sends {
			send()
			await(1)
		}
		one := 2*way + store
		if took := time.Since(began); took < sends*one || took > sends*one+one {
			t.Errorf("ten awaited sends took %s, want ten times %s", took, one)
		}
		began = time.Now()
		for range sends {
			send()
		}
		await(sends)
		if took := time.Since(began); took < one || took > 300*time.Millisecond {
			t.Errorf("ten overlapped sends took %s, want little more than %s", took, one)
		}
		if n := b.broker.counts(t, "a").Active; n != 2*sends {
			t.Errorf("%d messages are stored", n)
		}
	})
}
