package attack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
)

var streams = flag.Int("streams", 0, "mutate so many sessions instead of 2,000, or of 1,000,000 with -long")

// recording is what one client of the Go SDK wrote on one connection, cut into protocol headers and frames.
type recording [][]byte

// recorder hands connections of the SDK to a node and keeps what the client writes.
type recorder struct {
	mu  sync.Mutex
	all []*bytes.Buffer
}

// dial is the hook of the SDK's WebSocket option, which takes any connection.
func (r *recorder) dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	kept := &bytes.Buffer{}
	r.mu.Lock()
	r.all = append(r.all, kept)
	r.mu.Unlock()
	return &keptConn{Conn: c, mu: &r.mu, kept: kept}, nil
}

// keptConn is one connection whose bytes are kept.
type keptConn struct {
	net.Conn
	mu   *sync.Mutex
	kept *bytes.Buffer
}

func (c *keptConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.kept.Write(b)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// cut divides what was written into protocol headers and frames.
func cut(b []byte) (all recording) {
	for len(b) >= 8 {
		n := 8
		if string(b[:4]) != "AMQP" {
			n = int(binary.BigEndian.Uint32(b))
		}
		if n < 8 || n > len(b) {
			break
		}
		all, b = append(all, b[:n]), b[n:]
	}
	return all
}

// record lets the SDK do what applications do, and returns what it wrote.
func (a *attack) record(n *cluster.Node) (all []recording) {
	a.Helper()
	r := &recorder{}
	c, err := azservicebus.NewClientFromConnectionString(n.Plain(), &azservicebus.ClientOptions{
		RetryOptions: cluster.Retry, NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return r.dial(ctx, n.AMQP)
		}})
	a.must("client", err)
	sender, err := c.NewSender(a.queue, nil)
	a.must("sender", err)
	for i := range 4 {
		a.must("send", sender.SendMessage(a.ctx, &azservicebus.Message{Body: []byte(fmt.Sprint("recorded ", i)), MessageID: to.Ptr(fmt.Sprint(i)),
			ApplicationProperties: map[string]any{"number": int64(i), "text": "t"}, TimeToLive: to.Ptr(time.Hour)}, nil))
	}
	_, err = sender.ScheduleMessages(a.ctx, []*azservicebus.Message{{Body: []byte("later")}}, time.Now().Add(time.Hour), nil)
	a.must("schedule", err)
	receiver, err := c.NewReceiverForQueue(a.queue, nil)
	a.must("receiver", err)
	got, err := receiver.ReceiveMessages(a.ctx, 4, nil)
	a.must("receive", err)
	for i, m := range got {
		switch i {
		case 0:
			a.must("renew", receiver.RenewMessageLock(a.ctx, m, nil))
			a.must("complete", receiver.CompleteMessage(a.ctx, m, nil))
		case 1:
			a.must("abandon", receiver.AbandonMessage(a.ctx, m, nil))
		case 2:
			a.must("dead-letter", receiver.DeadLetterMessage(a.ctx, m, nil))
		default:
			a.must("defer", receiver.DeferMessage(a.ctx, m, nil))
		}
	}
	_, err = receiver.PeekMessages(a.ctx, 2, nil)
	a.must("peek", err)
	id := "s"
	other, err := c.NewSender(a.queue+"-sessions", nil)
	a.must("sender", err)
	a.must("send", other.SendMessage(a.ctx, &azservicebus.Message{Body: []byte("of a session"), SessionID: &id}, nil))
	session, err := c.AcceptSessionForQueue(a.ctx, a.queue+"-sessions", id, nil)
	a.must("accept", err)
	a.must("state", session.SetSessionState(a.ctx, []byte("state"), nil))
	a.must("close", session.Close(a.ctx))
	a.must("close", c.Close(a.ctx))
	for _, b := range r.all {
		if frames := cut(b.Bytes()); len(frames) > 10 {
			all = append(all, frames)
		}
	}
	if len(all) == 0 {
		a.Fatal("nothing was recorded")
	}
	return all
}

// mutated returns the recording with changes that the seed draws. The handshake often stays, so that the rest is reached.
func mutated(all []recording, seed uint64) []byte {
	chance := rand.New(rand.NewPCG(seed, 17))
	from := all[chance.IntN(len(all))]
	frames := make(recording, len(from))
	for i, f := range from {
		frames[i] = bytes.Clone(f)
	}
	first := 0
	if chance.IntN(4) > 0 {
		first = min(len(frames)-1, 4+chance.IntN(8)) // behind the headers, SASL and the open
	}
	for range 1 + chance.IntN(4) {
		i := first + chance.IntN(len(frames)-first)
		frames = mutate(chance, frames, i)
	}
	if chance.IntN(5) == 0 { // break off anywhere
		frames = frames[:1+chance.IntN(len(frames))]
	}
	return bytes.Join(frames, nil)
}

// mutate makes one change at one frame.
func mutate(chance *rand.Rand, frames recording, i int) recording {
	f := frames[i]
	switch kind := chance.IntN(10); kind {
	case 0: // one bit
		f[chance.IntN(len(f))] ^= 1 << chance.IntN(8)
	case 1: // a byte with a meaning: constructors, sizes, extremes
		f[chance.IntN(len(f))] = []byte{0, 1, 0x40, 0x43, 0x45, 0x53, 0x70, 0x80, 0xa1, 0xb1, 0xc0, 0xd0, 0xe0, 0xf0, 0x7f, 0xff}[chance.IntN(16)]
	case 2: // a number of four bytes
		if at := chance.IntN(len(f)); at+4 <= len(f) {
			binary.BigEndian.PutUint32(f[at:], []uint32{0, 1, 1 << 31, 1<<31 - 1, 1<<32 - 1, uint32(len(f))}[chance.IntN(6)])
		}
	case 3: // another channel
		if len(f) > 8 {
			binary.BigEndian.PutUint16(f[6:], uint16(chance.IntN(1<<16)))
		}
	case 4: // the frame twice
		frames = append(frames[:i+1], append(recording{bytes.Clone(f)}, frames[i+1:]...)...)
	case 5: // the frame not at all
		if len(frames) > 2 {
			frames = append(frames[:i], frames[i+1:]...)
		}
	case 6: // in another order
		j := i + chance.IntN(len(frames)-i)
		frames[i], frames[j] = frames[j], frames[i]
	case 7: // shorter, with its size set right
		if len(f) > 12 {
			f = f[:8+chance.IntN(len(f)-8)]
			binary.BigEndian.PutUint32(f, uint32(len(f)))
			frames[i] = f
		}
	case 8: // longer, with its size set right
		f = append(f, bytes.Repeat([]byte{byte(chance.IntN(256))}, 1+chance.IntN(64))...)
		binary.BigEndian.PutUint32(f, uint32(len(f)))
		frames[i] = f
	case 9: // another kind of frame: the descriptor after 0x00 0x53
		if len(f) > 11 && f[8] == 0 && f[9] == 0x53 {
			f[10] = byte(0x10 + chance.IntN(10))
		}
	}
	return frames
}

// doorTries is how often a stream is tried that finds no place, doorPause what lies between two tries.
const (
	doorTries = 500
	doorPause = 20 * time.Millisecond
)

// replayStream writes a stream and reads what comes until the node ends the connection or falls silent. A node that has
// no place for a socket closes it without a word, and such a stream is tried again.
func (a *attack) replayStream(n *cluster.Node, b []byte, answered *atomic.Int64) error {
	greets := bytes.HasPrefix(b, []byte("AMQP\x03\x01\x00\x00")) || bytes.HasPrefix(b, []byte("AMQP\x00\x01\x00\x00"))
	for range doorTries {
		heard, err := a.replayOnce(n, b, greets)
		if heard {
			answered.Add(1)
		}
		if err != nil || heard || !greets {
			return err
		}
		time.Sleep(doorPause)
	}
	return errors.New("the node answers no more")
}

// replayOnce is one try, and reports whether the node answered.
func (a *attack) replayOnce(n *cluster.Node, b []byte, greets bool) (heard bool, err error) {
	c, err := (&net.Dialer{}).DialContext(a.ctx, "tcp", n.AMQP)
	if err != nil {
		return false, err
	}
	defer c.Close()
	a.sockets.Add(1)
	_ = c.SetWriteDeadline(time.Now().Add(patience))
	go func() { _, _ = c.Write(b) }()
	buf := make([]byte, 4096)
	wait := 500 * time.Millisecond // nobody owes an answer to a stream that does not greet
	if greets {
		wait = 5 * time.Second
	}
	for {
		_ = c.SetReadDeadline(time.Now().Add(wait))
		got, err := c.Read(buf)
		if got > 0 {
			heard, wait = true, 30*time.Millisecond // a node that has begun to answer goes on soon
		}
		if err != nil { // the node has ended it, or is silent
			return heard, nil
		}
	}
}

// forget deletes what the streams have stored, so that memory can be compared.
func (a *attack) forget(n *cluster.Node) {
	a.Helper()
	m, err := n.Admin(false)
	a.must("admin client", err)
	for name, p := range map[string]*admin.QueueProperties{a.queue: nil, a.queue + "-sessions": {RequiresSession: to.Ptr(true)}} {
		_, err := m.DeleteQueue(a.ctx, name, nil)
		a.must("delete a queue", err)
		_, err = m.CreateQueue(a.ctx, name, &admin.CreateQueueOptions{Properties: p})
		a.must("create it again", err)
	}
}

// round replays count mutations from a seed, and waits until the node has no stranger any more.
func (a *attack) round(n *cluster.Node, all []recording, seed, count int) {
	a.Helper()
	var next, answered atomic.Int64
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(count) && a.ctx.Err() == nil; i = next.Add(1) {
				if err := a.replayStream(n, mutated(all, uint64(seed)+uint64(i)), &answered); err != nil {
					a.Errorf("seed %d: %v", int64(seed)+i, err)
					return
				}
			}
		})
	}
	workers.Wait()
	if answered.Load() < int64(count)*9/10 {
		a.Errorf("%d of %d streams were answered: the mutations reach nothing", answered.Load(), count)
	}
}

// A structured mutator over recorded sessions of the Go SDK. Afterwards the node has as many connections, links and goroutines
// as before. When what the streams have stored is deleted, a second round of the same size leaves no more than one and a half
// times the resident memory of the first.
//
// BUSBAR_BINARY chooses another build, such as one with -race. BUSBAR_SEED is the first seed. The flag -streams sets the number
// of streams.
func TestMutatedSessions(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := cluster.Start(ctx, dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	against(t, c, func(a *attack) string {
		n := c.Nodes[0]
		m, err := n.Admin(false)
		a.must("admin client", err)
		_, err = m.CreateQueue(a.ctx, a.queue+"-sessions", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{RequiresSession: to.Ptr(true)}})
		a.must("create a queue with sessions", err)
		all := a.record(n)
		seed, _ := strconv.Atoi(os.Getenv("BUSBAR_SEED"))
		count := size(2000, 1_000_000) / 2
		if *streams > 0 {
			count = max(1, *streams/2)
		}
		a.round(n, all, seed, count)
		a.forget(n)
		warm := a.level(n)
		a.round(n, all, seed+count, count)
		a.forget(n)
		after := a.level(n)
		a.Logf("after %d streams: %+v; after %d: %+v", count, warm, 2*count, after)
		if after.rss > warm.rss*3/2+(32<<20) {
			a.Errorf("resident memory grew from %d to %d MB in a second round of the same size", warm.rss>>20, after.rss>>20)
		}
		if after.held > warm.held*3/2+(32<<20) {
			a.Errorf("what the Go runtime holds grew from %d to %d MB in a second round of the same size", warm.held>>20, after.held>>20)
		}
		if after.goroutines > warm.goroutines*5/4+20 {
			a.Errorf("goroutines grew from %d to %d in a second round of the same size", warm.goroutines, after.goroutines)
		}
		return fmt.Sprintf("%d streams of seeds from %d", 2*count, seed+1)
	})
}

// level is what a node holds when the strangers are gone, in bytes and goroutines. A build with -race has resident memory that
// the runtime does not hold: the race detector keeps what it knows of each word of the heap, and gives none of it back.
type level struct {
	rss        int64
	held       int64 // by the Go runtime: taken from the system and not given back
	goroutines int
}

// level waits until only the witness is connected.
func (a *attack) level(n *cluster.Node) (l level) {
	a.Helper()
	left := 0.0
	a.await("the strangers are gone", func() bool {
		var err error
		left, err = n.Metric(a.ctx, "busbar_connections")
		return err == nil && left <= 1
	})
	goroutines, err := n.Metric(a.ctx, "go_goroutines")
	a.must("goroutines", err)
	l.goroutines = int(goroutines)
	taken, err := n.Metric(a.ctx, "go_memstats_sys_bytes")
	a.must("memory of the Go runtime", err)
	returned, err := n.Metric(a.ctx, "go_memstats_heap_released_bytes")
	a.must("memory that the Go runtime gave back", err)
	l.held = int64(taken - returned)
	l.rss, err = n.RSS()
	a.must("resident memory", err)
	return l
}
