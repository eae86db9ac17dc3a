package callnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// lateWithin is within which time a call that was given up arrives.
	lateWithin = 10 * time.Second
	// latePatience bounds the time after which the handler of such a call learns that nobody listens.
	latePatience = 50 * time.Millisecond
	// readBytes is how much of a stream travels at once.
	readBytes = 16 << 10
)

type handler = func(context.Context, fsm.NodeID, []byte) ([]byte, error)
type beginHandler = func(fsm.NodeID, []byte, func(func() ([]byte, error))) (func(), bool)
type streamHandler = func(context.Context, fsm.NodeID, []byte, io.Reader) ([]byte, error)

// Port is one life of a node on the network. It has the methods of the mesh that package partition needs.
type Port struct {
	net     *Net
	id      fsm.NodeID
	mu      sync.Mutex // of calls, which a test may exchange while the node runs
	calls   map[uint8]handler
	begins  map[uint8]beginHandler
	streams map[uint8]streamHandler
	lost    func(fsm.NodeID) // nil for none
	down    chan struct{}    // closed when the process dies
	once    sync.Once
	frozen  bool // under the network's mutex: the process is paused
}

// Port returns a new life of a node. Others reach it when it is attached.
func (n *Net) Port(id fsm.NodeID) *Port {
	return &Port{
		net: n, id: id, calls: map[uint8]handler{}, begins: map[uint8]beginHandler{}, streams: map[uint8]streamHandler{},
		down: make(chan struct{}),
	}
}

// Handle registers the handler of a kind of calls. A test may exchange it while the node runs.
func (p *Port) Handle(kind uint8, h func(context.Context, fsm.NodeID, []byte) ([]byte, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[kind] = h
	delete(p.begins, kind)
}

// HandleStream registers the handler of a kind of streams, before the port is attached.
func (p *Port) HandleStream(kind uint8, h func(context.Context, fsm.NodeID, []byte, io.Reader) ([]byte, error)) {
	p.streams[kind] = h
}

// HandleBegun registers a second handler of a kind of calls, which is asked first, before the port is attached. Handle takes it away.
func (p *Port) HandleBegun(kind uint8, h func(fsm.NodeID, []byte, func(func() ([]byte, error))) (func(), bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begins[kind] = h
}

// OnLost has f told when the link to a peer is given up or the peer's process ended, before the port is attached.
func (p *Port) OnLost(f func(peer fsm.NodeID)) { p.lost = f }

// Kill ends a process: its links are reset, and their other ends know at once.
func (p *Port) Kill() {
	p.once.Do(func() {
		close(p.down)
		n := p.net
		n.change(func() {
			if n.ports[p.id] == p {
				delete(n.ports, p.id)
			}
			for _, o := range n.ids {
				if l := n.links[pair(p.id, o)]; l != nil && o != p.id {
					n.dropLocked(p.id, o, l, true)
				}
			}
		})
	})
}

// Call sends bytes to a node and waits for its answer.
func (p *Port) Call(ctx context.Context, to fsm.NodeID, kind uint8, b []byte) ([]byte, error) {
	b = bytes.Clone(b)
	n := p.net
	n.mu.Lock()
	swallow := n.swallow
	n.mu.Unlock()
	if swallow != nil && swallow(p.id, to, kind, b) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	once := func(ctx context.Context, o *Port) ([]byte, error) { return o.Deliver(ctx, p.id, kind, b) }
	n.begun(p.id, to, kind)
	return p.carried(ctx, to, func(ctx context.Context, o *Port) ([]byte, error) {
		if n.cfg.Repeats != nil && n.cfg.Repeats(kind) && to != p.id && n.chance(again) {
			n.note("calls copied")
			n.later(to, once)
		}
		return once(ctx, o)
	})
}

// Deliver has a call handled as if it had just arrived from a node, past the network and its faults.
func (p *Port) Deliver(ctx context.Context, from fsm.NodeID, kind uint8, b []byte) ([]byte, error) {
	p.mu.Lock()
	h, first := p.calls[kind], p.begins[kind]
	p.mu.Unlock()
	if first != nil {
		if answer := begun(ctx, first, from, bytes.Clone(b)); answer != nil {
			return answer()
		}
	}
	if h == nil {
		return nil, fmt.Errorf("no handler of kind %d", kind)
	}
	return h(ctx, from, bytes.Clone(b))
}

// begun waits for the answer to a call that a handler begins; nil if it begins nothing.
func begun(ctx context.Context, h beginHandler, from fsm.NodeID, b []byte) func() ([]byte, error) {
	done := make(chan func() ([]byte, error), 1)
	cancel, ok := h(from, b, func(answer func() ([]byte, error)) { done <- answer })
	if !ok {
		return nil
	}
	defer context.AfterFunc(ctx, cancel)()
	return <-done
}

// Begin is Call without a caller that waits. done is called once, with what Call would return. A call that is given up by cancel ends with
// an error that wraps fsm.ErrUnknown.
func (p *Port) Begin(to fsm.NodeID, kind uint8, b []byte, done func([]byte, error)) (cancel func(cause error), ok bool) {
	if to == p.id {
		return nil, false
	}
	b = bytes.Clone(b)
	ctx, give := context.WithCancelCause(context.Background())
	p.net.wg.Go(func() {
		defer give(nil)
		answer, err := p.Call(ctx, to, kind, b)
		if err != nil && ctx.Err() != nil && !errors.Is(err, fsm.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", fsm.ErrUnknown, context.Cause(ctx))
		}
		done(answer, err)
	})
	return func(cause error) { give(cause) }, true
}

// CallStream sends bytes and a stream to a node and waits for its answer. A lost link ends the stream in the middle.
func (p *Port) CallStream(ctx context.Context, to fsm.NodeID, kind uint8, head []byte, body io.Reader) ([]byte, error) {
	r := &stream{r: body, turn: make(chan struct{}, 1)}
	defer r.end()
	p.net.begun(p.id, to, kind)
	return p.carried(ctx, to, func(ctx context.Context, o *Port) ([]byte, error) {
		h := o.streams[kind]
		if h == nil {
			return nil, fmt.Errorf("no handler of streams of kind %d", kind)
		}
		stop := context.AfterFunc(ctx, r.end)
		defer stop()
		return h(ctx, p.id, bytes.Clone(head), r)
	})
}

// stream is a body under way. It breaks off when the link is lost. A reader may pause inside of Read. So the fields are
// guarded by a channel, on which a bubble of virtual time can wait; a mutex would keep time from passing.
type stream struct {
	turn chan struct{}
	r    io.Reader
	over bool
}

func (s *stream) end() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.over = true
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.over {
		return 0, io.ErrUnexpectedEOF
	}
	return s.r.Read(b[:min(len(b), readBytes)])
}

func (n *Net) begun(from, to fsm.NodeID, kind uint8) {
	n.mu.Lock()
	n.calls[kind]++
	n.mu.Unlock()
	if n.cfg.Observe != nil {
		n.cfg.Observe(from, to, kind)
	}
}

type callFunc = func(context.Context, *Port) ([]byte, error)

// later delivers a call to the process that lives there now, after some time. Nobody waits for the answer, and the
// handler is told so soon.
func (n *Net) later(to fsm.NodeID, f callFunc) {
	n.mu.Lock()
	wait := time.Duration(n.cfg.Rand.Int64N(int64(lateWithin)))
	patience := time.Duration(n.cfg.Rand.Int64N(int64(latePatience)))
	o := n.ports[to]
	n.mu.Unlock()
	if o == nil {
		return
	}
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-o.down: // bytes in a socket die with their process
			return
		case <-n.done:
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, _ = f(ctx, o) // nobody listens
	}()
}

// way returns the port of a node that can be called, and the loss of the link to it. A call to the own node needs no
// link.
func (p *Port) way(to fsm.NodeID) (o *Port, lost <-chan struct{}, err error) {
	n := p.net
	n.mu.Lock()
	defer n.mu.Unlock()
	o = n.ports[to]
	if o != nil && to == p.id {
		return o, nil, nil
	}
	var l *link
	switch {
	case o == nil:
	case n.cfg.Silence > 0:
		l = n.links[pair(p.id, to)]
	case !n.cut[[2]fsm.NodeID{p.id, to}]:
		l = n.linkLocked(p.id, to)
	}
	if l == nil || !l.up {
		return nil, nil, fmt.Errorf("no link from %s to %s: %w", p.id, to, fsm.ErrUnavailable)
	}
	if n.cfg.Silence == 0 && n.cut[[2]fsm.NodeID{to, p.id}] {
		return o, n.closedFromBefore, nil
	}
	return o, l.lost, nil
}

// carried carries one call there, has it done by f, and carries its answer back. A call that is given up on its way may
// arrive later.
func (p *Port) carried(ctx context.Context, to fsm.NodeID, f callFunc) ([]byte, error) {
	n := p.net
	o, lost, err := p.way(to)
	if err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancel)
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		defer cancel()
		defer stop()
		if to == p.id {
			b, err := f(inner, o)
			done <- result{b, err}
			return
		}
		if !n.carry(p.id, to, lost, inner.Done()) {
			if n.chance(late) {
				n.note("calls delivered late")
				n.later(to, f)
			}
			done <- result{nil, fmt.Errorf("link to %s lost: %w", to, fsm.ErrUnknown)}
			return
		}
		b, err := f(inner, o)
		if closed(lost) || !n.carry(to, p.id, lost, inner.Done()) {
			err = fmt.Errorf("link to %s lost: %w", to, fsm.ErrUnknown)
		}
		done <- result{b, err}
	}()
	select {
	case r := <-done:
		return bytes.Clone(r.b), r.err
	case <-lost:
		cancel()
		return nil, fmt.Errorf("link to %s lost: %w", to, fsm.ErrUnknown)
	case <-p.down:
		cancel()
		return nil, fmt.Errorf("%s is down: %w", p.id, fsm.ErrUnknown)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// closed reports whether a link was lost. The way back may be open all the same, when only the way there was cut.
func closed(lost <-chan struct{}) bool {
	select {
	case <-lost:
		return true
	default:
		return false
	}
}

// carry waits until a message has gone one way; false means that the link was lost before.
func (n *Net) carry(from, to fsm.NodeID, lost, done <-chan struct{}) bool {
	if d := n.travel(); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-lost:
			return false
		case <-done:
			return false
		}
	}
	for {
		n.mu.Lock()
		passes, news := n.passesLocked(from, to), n.news
		n.mu.Unlock()
		if passes {
			return true
		}
		select {
		case <-news:
		case <-lost:
			return false
		case <-done:
			return false
		}
	}
}
