package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// kindBegun has a handler that needs no goroutine. The first byte of a request says what it does.
const kindBegun uint8 = 208

const (
	begunEcho  = 'e' // answers with the request
	begunLater = 'l' // the same, from another goroutine
	begunNot   = 'n' // is not begun, so the other handler answers with "waited for"
	begunPark  = 'p' // answers when it is cancelled, with an error
	begunBytes = 'a' // answers with as many bytes as the request says, when the gate is open
	begunFail  = 'f' // answers with an error
)

func (n *node) serveBegun() {
	n.Handle(kindBegun, func(context.Context, fsm.NodeID, []byte) ([]byte, error) { return []byte("waited for"), nil })
	n.HandleBegun(kindBegun, func(_ fsm.NodeID, b []byte, done func(func() ([]byte, error))) (func(), bool) {
		none := func() {}
		switch b[0] {
		case begunEcho:
			done(func() ([]byte, error) { return b, nil })
		case begunLater:
			go done(func() ([]byte, error) { return b, nil })
		case begunNot:
			return nil, false
		case begunBytes:
			go func() {
				<-n.gate
				done(func() ([]byte, error) { return bytes.Repeat(b[:1], int(binary.BigEndian.Uint32(b[1:]))), nil })
			}()
		case begunFail:
			done(func() ([]byte, error) { return nil, errors.New("it failed") })
		case begunPark:
			n.parked <- struct{}{}
			return func() {
				n.unparked <- struct{}{}
				done(func() ([]byte, error) { return nil, errors.New("cancelled") })
			}, true
		}
		return none, true
	})
}

// begunCall is a call that was begun.
type begunCall struct {
	cancel func(error)
	ended  chan callResult // capacity 2: a second end would be found
}

func begin(t *testing.T, from *node, to fsm.NodeID, kind uint8, request []byte) *begunCall {
	t.Helper()
	c := &begunCall{ended: make(chan callResult, 2)}
	cancel, ok := from.Begin(to, kind, request, func(b []byte, err error) { c.ended <- callResult{b, err} })
	if !ok {
		t.Fatal("the call was not begun")
	}
	c.cancel = cancel
	return c
}

func (c *begunCall) want(t *testing.T, answer string) {
	t.Helper()
	if r := <-c.ended; r.err != nil || string(r.payload) != answer {
		t.Errorf("%d bytes, %.40q, %v; want %d bytes, %.40q", len(r.payload), r.payload, r.err, len(answer), answer)
	}
}

func TestBegunCallsAreAnswered(t *testing.T) {
	a, b := duo(t, nil)
	mustCall(t, a, "b", "connect")
	var all sync.WaitGroup
	for caller := range 4 {
		from, to := a, fsm.NodeID("b")
		if caller%2 == 1 {
			from, to = b, "a"
		}
		all.Go(func() {
			var calls []*begunCall
			texts := make([]string, 500)
			for i := range texts {
				first := []byte{begunEcho, begunLater, begunNot}[i%3]
				texts[i] = fmt.Sprintf("%c %d of %d", first, i, caller)
				calls = append(calls, begin(t, from, to, kindBegun, []byte(texts[i])), begin(t, from, to, kindEcho, []byte(texts[i])))
			}
			for i, text := range texts {
				calls[2*i+1].want(t, text)
				if text[0] == begunNot {
					text = "waited for"
				}
				calls[2*i].want(t, text)
			}
			for _, c := range calls {
				if len(c.ended) != 0 {
					t.Error("a call ended twice")
				}
			}
		})
	}
	all.Wait()
	failed := begin(t, a, "b", kindBegun, []byte{begunFail})
	var remote *RemoteError
	if r := <-failed.ended; !errors.As(r.err, &remote) || remote.Text != "it failed" || !errors.Is(r.err, fsm.ErrUnknown) {
		t.Errorf("got %v, want the text of the handler's error", r.err)
	}
	waitFor(t, func() bool { return a.Peers()[0].Waiting == 0 && b.Peers()[0].Serving == 0 })
}

func TestCallsThatAreNotBegun(t *testing.T) {
	a, b := duo(t, func(c *Config) { c.MaxCalls, c.MaxFrameBytes = 3, 1<<20 })
	never := func([]byte, error) { t.Error("it was answered") }
	for what, to := range map[string]fsm.NodeID{"this node": "a", "a node without a connection": "b", "a node that nobody knows": "c"} {
		if _, ok := a.Begin(to, kindEcho, nil, never); ok {
			t.Errorf("a call to %s was begun", what)
		}
	}
	mustCall(t, a, "b", "connect")
	if _, ok := a.Begin("b", kindEcho, make([]byte, 1<<20+1), never); ok {
		t.Error("a call was begun that no frame takes")
	}
	var parked []*begunCall
	for range 3 {
		parked = append(parked, begin(t, a, "b", kindBegun, []byte{begunPark}))
		<-b.parked
	}
	if _, ok := a.Begin("b", kindEcho, nil, never); ok {
		t.Error("a call was begun beyond the bound")
	}
	for _, c := range parked {
		c.cancel(context.Canceled)
	}
}

func TestACancelledBegunCallCancelsItsHandler(t *testing.T) {
	a, b := duo(t, nil)
	mustCall(t, a, "b", "connect")
	c := begin(t, a, "b", kindBegun, []byte{begunPark})
	<-b.parked
	c.cancel(context.DeadlineExceeded)
	select {
	case r := <-c.ended:
		if !errors.Is(r.err, fsm.ErrUnknown) || !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrUnknown and context.DeadlineExceeded", r.err)
		}
	default:
		t.Error("it has not ended when cancel returns")
	}
	<-b.unparked
	c.cancel(context.Canceled)
	mustCall(t, a, "b", "the link is not hurt")
	if len(c.ended) != 0 {
		t.Error("a call ended twice")
	}
	waitFor(t, func() bool { return b.Peers()[0].Serving == 0 })
}

func TestLossOfTheLinkEndsBegunCalls(t *testing.T) {
	a, b := duo(t, nil)
	mustCall(t, a, "b", "connect")
	c := begin(t, a, "b", kindBegun, []byte{begunPark})
	<-b.parked
	linkOf(a, "b").close(errors.New("the test ends it"))
	if r := <-c.ended; !errors.Is(r.err, fsm.ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown", r.err)
	}
	<-b.unparked
}

// A peer takes its answers slowly, and they are larger than what may wait for it.
func TestAnswersOfBegunCallsWaitForRoom(t *testing.T) {
	a, b := duo(t, func(c *Config) { c.MaxFrameBytes, c.MaxQueueBytes = 1<<20, 1<<20+100 })
	mustCall(t, a, "b", "connect")
	request := binary.BigEndian.AppendUint32([]byte{begunBytes}, 700<<10)
	small := binary.BigEndian.AppendUint32([]byte{begunBytes}, 5<<10)
	var calls []*begunCall
	for range 20 {
		calls = append(calls, begin(t, a, "b", kindBegun, request), begin(t, a, "b", kindBegun, small))
	}
	waitFor(t, func() bool { return b.Peers()[0].Serving == len(calls) })
	close(b.gate)
	for i, c := range calls {
		size := 700 << 10
		if i%2 == 1 {
			size = 5 << 10
		}
		c.want(t, string(bytes.Repeat([]byte{begunBytes}, size)))
	}
}

// A link that is given up keeps a call that was begun until its answer.
func TestADrainedLinkFinishesBegunCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		n1, n2 := s.pair()
		defer n1.stop()
		defer n2.stop()
		mustCall(t, n1.node, "n2", "connect")
		old := linkOf(n1.node, "n2")
		c := begin(t, n1.node, "n2", kindBegun, []byte{begunPark})
		<-n2.parked
		old.drain()
		time.Sleep(10 * time.Second)
		if _, ok := old.beginCall(kindEcho, nil, nil); ok {
			t.Error("a call was begun on a link that is given up")
		}
		if old.ended() || len(c.ended) != 0 {
			t.Fatal("the link or its call ended")
		}
		c.cancel(context.Canceled)
		if r := <-c.ended; !errors.Is(r.err, context.Canceled) {
			t.Errorf("the call ended %v", r.err)
		}
		<-n2.unparked
		synctest.Wait()
		if !old.ended() {
			t.Error("the link did not end with its last call")
		}
	})
}

// Answers wait while somebody else writes: within the bound of the queue, and until that one is done.
func TestAnswersOfBegunCallsWaitForWhoWrites(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		n1, n2 := s.pair()
		defer n1.stop()
		defer n2.stop()
		mustCall(t, n1.node, "n2", "connect")
		l := linkOf(n2.node, "n1")
		l.mu.Lock()
		l.writing = true
		l.mu.Unlock()
		idle := begin(t, n1.node, "n2", kindBegun, []byte{begunEcho})
		synctest.Wait()
		l.mu.Lock()
		if len(l.answers) != 1 {
			t.Errorf("%d answers wait for who writes, want 1", len(l.answers))
		}
		l.writing = false
		l.flushLocked(nil) // nothing but the answers is left behind it
		l.mu.Unlock()
		synctest.Wait()
		if len(idle.ended) != 1 {
			t.Error("the answer did not follow at once") // a later ping would take it along
		}
		idle.want(t, "e")

		// Somebody else begins to write while an answer is encoded, and the queue is full by then.
		size := 100 << 10
		l.mu.Lock()
		l.answers = append(l.answers, begunAnswer{id: 1 << 40, answer: func() ([]byte, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.writing = true
			for l.fitsLocked(size) {
				l.appendLocked(framePing, 0, 0, nil)
			}
			return make([]byte, size), nil
		}})
		l.wakeWriter()
		l.mu.Unlock()
		synctest.Wait()
		full := begin(t, n1.node, "n2", kindEcho, []byte("full"))
		synctest.Wait()
		l.mu.Lock()
		if n := len(l.queue); n+size <= l.mesh.cfg.MaxQueueBytes || n > l.mesh.cfg.MaxQueueBytes {
			t.Errorf("%d bytes are queued, maximum %d, and an answer of %d waits", n, l.mesh.cfg.MaxQueueBytes, size)
		}
		l.writing = false
		l.wakeWriter()
		l.mu.Unlock()
		full.want(t, "full")
	})
}
