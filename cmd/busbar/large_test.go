package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// largeMB is the size of the messages whose memory is measured.
var largeMB = flag.Int("large", 100, "megabytes of a large message; 100 is the limit")

const (
	// copiesIn is how often a body may be in memory on its way in; copiesOut is how often on its way out.
	copiesIn, copiesOut = 1, 1
	// besideCopies is what a node holds beside the copies, however large the message: the caches of entries
	// and bodies, and what is under way to the disk.
	besideCopies = 48 << 20
)

// S-64, S-226, RUL-25: a large message is in the memory of its node once, while it is sent and while it is
// received, peeked or dead-lettered. The client streams, so what it holds does not count.
//
// The test runs in a process of its own, in which the world stops for each collection, and counts what a collection has
// marked. A collection beside the work counts all that was allocated while it ran, and that takes long on a busy machine. The
// process has one processor: of two that mark an object at one moment, the runtime counts its bytes for both.
func TestALargeMessageIsInMemoryOnce(t *testing.T) {
	const alone = "BUSBAR_TEST_ALONE"
	if os.Getenv(alone) == "" {
		args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(a string) bool { return strings.HasPrefix(a, "-test.testlogfile") })
		again := exec.CommandContext(t.Context(), os.Args[0], append(args, "-test.v", "-test.run=^"+t.Name()+"$")...)
		again.Env = append(os.Environ(), alone+"=1", "GODEBUG=gcstoptheworld=1", "GOMAXPROCS=1")
		out, err := again.CombinedOutput()
		if t.Logf("%s", out); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("alone: %v", err)
		}
		return
	}
	l := openLive(t, nodeConfig(t, func(c *Config) { c.LogLevel = "info" }))
	most := "<MaxMessageSizeInKilobytes>102400</MaxMessageSizeInKilobytes>"
	l.put(t, "/q", "QueueDescription", "<LockDuration>PT5M</LockDuration>"+most)
	l.put(t, "/s", "QueueDescription", "<LockDuration>PT5M</LockDuration><RequiresSession>true</RequiresSession>"+most)
	c := dialStream(t, l.host)
	size := *largeMB<<20 - 4096
	measure := func(what string, copies int, f func()) {
		t.Helper()
		began, m := time.Now(), sampleHeap()
		f()
		peak := m.end()
		t.Logf("%-18s %7.1f MiB at most, %4.2f times the message, %v", what, float64(peak)/(1<<20),
			float64(peak)/float64(size), time.Since(began).Round(time.Millisecond))
		if limit := uint64(copies*size + besideCopies); peak > limit {
			t.Errorf("%s took %d bytes of memory, want %d at most: the message has %d", what, peak, limit, size)
		}
	}
	tx := c.attach(amqp.RoleSender, "q", nil)
	measure("send", copiesIn, func() { c.sendLarge(tx, size) })
	manage := c.attachRequests("q")
	ask := func(op string, body amqp.Map) {
		c.request(manage, op, func(b []byte) []byte { return must(amqp.AppendValueBody(b, body)) }, 0)
		c.receive(manage.replies, size)
	}
	measure("peek", copiesOut, func() {
		ask("peek-message", amqp.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(1)}})
	})
	rx := c.attach(amqp.RoleReceiver, "q", nil)
	var got delivery
	measure("receive", copiesOut, func() { got = c.receive(rx, size) })
	c.settle(got, amqp.Modified{UndeliverableHere: amqp.Some(true)}) // defer
	measure("receive by number", copiesOut, func() {
		ask("receive-by-sequence-number", amqp.Map{{Key: "sequence-numbers", Value: []int64{got.number}},
			{Key: "receiver-settle-mode", Value: uint32(1)}})
	})
	c.sendLarge(tx, size)
	second := c.receive(rx, size)
	measure("dead-letter", copiesOut, func() { c.settle(second, amqp.Rejected{}) })
	dead := c.attach(amqp.RoleReceiver, "q/$DeadLetterQueue", nil)
	measure("receive the dead", copiesOut, func() { c.settle(c.receive(dead, size), amqp.Accepted{}) })

	session := amqp.BeginSymbolMap(nil)
	session.String(string(amqp.FilterSession), "s")
	c.attach(amqp.RoleReceiver, "s", session.End())
	manage = c.attachRequests("s")
	measure("set the state", copiesIn, func() {
		c.request(manage, "set-session-state", func(b []byte) []byte {
			key := append(amqp.AppendString(nil, "session-id"), amqp.AppendString(nil, "s")...)
			key = append(key, amqp.AppendString(nil, "session-state")...)
			b = append(b, 0x00, 0x53, 0x77) // amqp-value
			b = append(amqp.AppendMapStart(b, 2, len(key)+amqp.BinaryStartBytes+size), key...)
			return amqp.AppendBinaryStart(b, size)
		}, size)
		c.receive(manage.replies, 0)
	})
	measure("get the state", copiesOut, func() {
		c.request(manage, "get-session-state", func(b []byte) []byte {
			return must(amqp.AppendValueBody(b, amqp.Map{{Key: "session-id", Value: "s"}}))
		}, 0)
		c.receive(manage.replies, size)
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// heapSamples collects garbage again and again and keeps the largest heap that was left.
type heapSamples struct {
	stop chan struct{}
	done sync.WaitGroup
	most uint64
	base uint64
}

func sampleHeap() *heapSamples {
	s := &heapSamples{stop: make(chan struct{})}
	live := func() uint64 {
		runtime.GC()
		marked := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(marked)
		return marked[0].Value.Uint64()
	}
	s.base = live()
	s.done.Go(func() {
		for {
			s.most = max(s.most, live())
			select {
			case <-s.stop:
				return
			default:
			}
		}
	})
	return s
}

func (s *heapSamples) end() uint64 {
	close(s.stop)
	s.done.Wait()
	return s.most - min(s.base, s.most)
}

// stream is an AMQP client that holds no message: bodies come from and go to a hash.
type stream struct {
	t      *testing.T
	conn   net.Conn
	r      *amqp.Reader
	handle uint32
	next   uint32 // delivery id
	out    []byte
	chunk  []byte
	body   map[int][]byte // the hash of a body, by its size
}

const streamFrame = 60_000

// streamBody is the body of a large message, or what is left of it.
func streamBody(size int) io.Reader {
	return io.LimitReader(rand.NewChaCha8(sha256.Sum256([]byte("large"))), int64(size))
}

func dialStream(t *testing.T, host string) *stream {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stop := context.AfterFunc(t.Context(), func() { _ = conn.Close() })
	t.Cleanup(func() { stop() })
	c := &stream{t: t, conn: conn, r: amqp.NewReader(conn, 64<<10), chunk: make([]byte, streamFrame), body: map[int][]byte{}}
	c.write(amqp.AppendFrame(amqp.AppendProtocolHeader(nil, amqp.ProtocolSASL), 0, &amqp.SASLInit{
		Mechanism: "PLAIN", InitialResponse: []byte("\x00" + devKeyName + "\x00" + devKey)}))
	if _, err := c.r.ReadProtocolHeader(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // mechanisms and outcome
		if _, err := c.r.ReadFrame(); err != nil {
			t.Fatal(err)
		}
	}
	b := amqp.AppendProtocolHeader(nil, amqp.ProtocolAMQP)
	b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "stream", MaxFrameSize: amqp.Some(uint32(64 << 10))})
	c.write(amqp.AppendFrame(b, 0, &amqp.Begin{IncomingWindow: 1 << 30, OutgoingWindow: 1 << 30}))
	if _, err := c.r.ReadProtocolHeader(); err != nil {
		t.Fatal(err)
	}
	await[*amqp.Begin](c)
	return c
}

func (c *stream) write(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// await reads up to the next T.
func await[T amqp.Performative](c *stream) (T, []byte) {
	c.t.Helper()
	for {
		f, err := c.r.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		if len(f.Body) == 0 {
			continue
		}
		p, payload, err := amqp.DecodePerformative(f.Body)
		if err != nil {
			c.t.Fatal(err)
		}
		switch p := p.(type) {
		case T:
			return p, payload
		case *amqp.Detach:
			c.t.Fatalf("detached: %+v", p.Error)
		case *amqp.Close:
			c.t.Fatalf("closed: %+v", p.Error)
		}
	}
}

// attach returns the handle of a new link.
func (c *stream) attach(role amqp.Role, address string, filter amqp.Raw) uint32 {
	c.t.Helper()
	a := &amqp.Attach{Name: address + " " + string(rune('a'+c.handle)), Handle: c.handle, Role: role,
		Source: &amqp.Source{Address: amqp.Some(address), Filter: filter}, Target: &amqp.Target{Address: amqp.Some(address)}}
	if role == amqp.RoleSender {
		a.InitialDeliveryCount = amqp.Some(uint32(0))
	}
	c.handle++
	c.write(amqp.AppendFrame(nil, 0, a))
	if got, _ := await[*amqp.Attach](c); got.Source == nil || got.Target == nil {
		c.t.Fatalf("attach to %s was refused", address)
	}
	return a.Handle
}

// requestLink is a pair of links to a management node.
type requestLink struct{ requests, replies uint32 }

func (c *stream) attachRequests(entity string) requestLink {
	c.t.Helper()
	node := entity + "/$management"
	return requestLink{requests: c.attach(amqp.RoleSender, node, nil), replies: c.attach(amqp.RoleReceiver, node, nil)}
}

// deliver writes one delivery: head, and behind it size bytes of a body.
func (c *stream) deliver(handle uint32, head []byte, size int) {
	c.t.Helper()
	t := &amqp.Transfer{Handle: handle, DeliveryID: amqp.Some(c.next), DeliveryTag: []byte("t"), More: true,
		MessageFormat: amqp.Some(amqp.FormatAMQP)}
	c.next++
	c.write(amqp.AppendTransfer(nil, 0, t, head))
	hashed, body := sha256.New(), streamBody(size)
	for left := size; left > 0; {
		n, err := io.ReadFull(body, c.chunk[:min(left, streamFrame)])
		if err != nil {
			c.t.Fatal(err)
		}
		hashed.Write(c.chunk[:n])
		left -= n
		c.out = amqp.AppendTransfer(c.out[:0], 0, &amqp.Transfer{Handle: handle, More: true}, c.chunk[:n])
		c.write(c.out)
	}
	c.body[size] = hashed.Sum(nil)
	c.write(amqp.AppendTransfer(nil, 0, &amqp.Transfer{Handle: handle}))
}

func (c *stream) sendLarge(handle uint32, size int) {
	c.t.Helper()
	head := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "large")})
	c.deliver(handle, amqp.AppendBinaryStart(append(head, 0x00, 0x53, 0x75), size), size)
	if d, _ := await[*amqp.Disposition](c); d.State != (amqp.Accepted{}) {
		c.t.Fatalf("send: %+v", d.State)
	}
}

// request asks a management node; write appends the value, and size bytes of a body follow it.
func (c *stream) request(to requestLink, op string, write func([]byte) []byte, size int) {
	c.t.Helper()
	b := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, op)})
	w := amqp.BeginMapSection(b, amqp.CodeApplicationProperties)
	w.String("operation", "com.microsoft:"+op)
	w.Uint("com.microsoft:server-timeout", 55_000)
	c.deliver(to.requests, write(w.End()), size)
}

// delivery is what the client has to remember of a message.
type delivery struct {
	id     uint32
	number int64
}

// receive takes the next delivery of a link, whose body must be the large one of that size; 0 for none.
func (c *stream) receive(handle uint32, size int) delivery {
	c.t.Helper()
	c.write(amqp.AppendFrame(nil, 0, &amqp.Flow{NextIncomingID: amqp.Some(uint32(0)), IncomingWindow: 1 << 30,
		OutgoingWindow: 1 << 30, Handle: amqp.Some(handle), DeliveryCount: amqp.Some(uint32(0)), LinkCredit: amqp.Some(uint32(100))}))
	var d delivery
	var hashed hash.Hash
	left := size
	for first := true; ; first = false {
		t, payload := await[*amqp.Transfer](c)
		if t.Handle != handle {
			c.t.Fatalf("a transfer on link %d, want %d", t.Handle, handle)
		}
		if first {
			d.id, hashed = t.DeliveryID.Value, sha256.New()
			payload = c.bodyIn(&d, payload, size)
		}
		n := min(left, len(payload))
		hashed.Write(payload[:n])
		left -= n
		if !t.More {
			break
		}
	}
	if left > 0 || size > 0 && !bytes.Equal(hashed.Sum(nil), c.body[size]) {
		c.t.Fatalf("a body of %d bytes came back as another one, %d bytes short", size, left)
	}
	return d
}

// bodyIn returns what of the body is in the first frame, and reads the sequence number.
func (c *stream) bodyIn(d *delivery, payload []byte, size int) []byte {
	c.t.Helper()
	if i := bytes.Index(payload, []byte("x-opt-sequence-number")); i >= 0 {
		v := payload[i+len("x-opt-sequence-number"):]
		if v[0] == 0x55 {
			d.number = int64(int8(v[1]))
		} else {
			d.number = int64(binary.BigEndian.Uint64(v[1:]))
		}
	}
	if size == 0 {
		if !bytes.Contains(payload, []byte("statusCode\x54\xc8")) && !bytes.Contains(payload, []byte("statusCode\x71\x00\x00\x00\xc8")) {
			c.t.Fatalf("an answer without status 200: %q", payload)
		}
		return nil
	}
	start := amqp.AppendBinaryStart(nil, size)
	i := bytes.LastIndex(payload[:min(len(payload), 4096)], start)
	if i < 0 {
		c.t.Fatalf("no body of %d bytes in %q", size, payload[:min(len(payload), 600)])
	}
	return payload[i+len(start):]
}

func (c *stream) settle(d delivery, state amqp.DeliveryState) {
	c.t.Helper()
	c.write(amqp.AppendFrame(nil, 0, &amqp.Disposition{Role: amqp.RoleReceiver, First: d.id, State: state}))
	await[*amqp.Disposition](c)
}
