package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/busbar-mq/busbar/fsm"
)

// Handler answers one call. It owns request. Its context ends when the caller cancels or the link to
// it is lost; an error travels as text.
type Handler = func(ctx context.Context, from fsm.NodeID, request []byte) ([]byte, error)

// StreamHandler answers one call with a body, which it need not read to the end. A body that the
// caller gave up ends with an error, never with io.EOF.
type StreamHandler = func(
	ctx context.Context, from fsm.NodeID, header []byte, body io.Reader,
) ([]byte, error)

// RemoteError is what a handler returned. The request was delivered, so it wraps fsm.ErrUnknown: what
// the handler did before it failed is not known here.
type RemoteError struct {
	Node fsm.NodeID
	Text string // at most 4 KiB
}

// Error implements error.
func (e *RemoteError) Error() string { return fmt.Sprintf("node %s: %s", e.Node, e.Text) }

// Unwrap returns fsm.ErrUnknown.
func (e *RemoteError) Unwrap() error { return fsm.ErrUnknown }

// Call sends request to a node and returns its answer, which the caller owns; request may be reused
// when Call returns. Calls to one node are not ordered among each other. Call never retries.
//
// The error wraps fsm.ErrUnavailable if the request surely had no effect: no connection, the request
// was not written, or the node refused it. A refusal for the node's load wraps fsm.ErrBusy too. The error wraps
// fsm.ErrUnknown if the handler may have run, and the context's error if that ended. A call to this
// node runs its handler in the caller's goroutine.
func (m *Mesh) Call(
	ctx context.Context, to fsm.NodeID, kind uint8, request []byte,
) ([]byte, error) {
	if len(request) > int(m.cfg.MaxFrameBytes) {
		return nil, fmt.Errorf("%w: request of %d bytes, want at most %d",
			fsm.ErrUnavailable, len(request), m.cfg.MaxFrameBytes)
	}
	if to == m.cfg.Node {
		return m.callSelf(ctx, kind, request)
	}
	for {
		l, err := m.linkTo(ctx, to)
		if err != nil {
			return nil, err
		}
		answer, err := l.call(ctx, kind, request)
		if errors.Is(err, errDraining) {
			continue // it was given up for another between linkTo and call
		}
		return answer, err
	}
}

func (m *Mesh) callSelf(ctx context.Context, kind uint8, request []byte) ([]byte, error) {
	h := m.handlers[kind]
	if err := m.selfCallable(ctx, h != nil); err != nil {
		return nil, err
	}
	answer, err := h(ctx, m.cfg.Node, bytes.Clone(request))
	return m.selfAnswer(answer, err)
}

func (m *Mesh) selfCallable(ctx context.Context, served bool) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable, context.Cause(ctx))
	case m.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable, fsm.ErrClosed)
	case !served:
		return fmt.Errorf("%w: this node does not serve this kind of call", fsm.ErrUnavailable)
	}
	return nil
}

func (m *Mesh) selfAnswer(answer []byte, err error) ([]byte, error) {
	if typ, text := m.encodeAnswer(answer, err); typ == frameError {
		return nil, &RemoteError{Node: m.cfg.Node, Text: string(text)}
	}
	return answer, nil
}

// call sends one request over this link. errDraining says that another link must be used.
func (l *link) call(ctx context.Context, kind uint8, request []byte) ([]byte, error) {
	p, id, err := l.begin(ctx, kind, request)
	if err != nil {
		return nil, err
	}
	select {
	case r := <-p.result:
		l.recycle(p)
		return r.payload, r.err
	case <-ctx.Done():
	}
	if l.forget(id, p) {
		return nil, l.given(context.Cause(ctx))
	}
	r := <-p.result
	return r.payload, r.err
}

// begin sends or queues the request, waiting for room if need be.
func (l *link) begin(ctx context.Context, kind uint8, request []byte) (*pendingCall, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.draining: // closed or not: there is another one, or will be
			return nil, 0, errDraining
		case l.err != nil:
			return nil, 0, fmt.Errorf("%w: connection to node %s lost: %w",
				fsm.ErrUnavailable, l.peer, l.err)
		case ctx.Err() != nil:
			return nil, 0, fmt.Errorf("%w: call to node %s: %w",
				fsm.ErrUnavailable, l.peer, context.Cause(ctx))
		case len(l.pending) >= l.mesh.cfg.MaxCalls:
			return nil, 0, fmt.Errorf("%w: %d calls to node %s: %w",
				fsm.ErrUnavailable, len(l.pending), l.peer, fsm.ErrBusy)
		}
		if l.fitsLocked(len(request)) {
			break
		}
		_ = l.awaitRoomLocked(ctx) // its error is found at the top
	}
	id := l.nextID
	l.nextID++
	p := l.takeSpareLocked()
	p.batch = l.batches + 1
	l.pending[id] = p
	l.sendLocked(frameRequest, kind, id, request)
	return p, id, nil
}

func (l *link) takeSpareLocked() *pendingCall {
	if n := len(l.spare); n > 0 {
		p := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return p
	}
	return &pendingCall{result: make(chan callResult, 1)}
}

// maxSpareCalls bounds the pendingCalls a link keeps for reuse.
const maxSpareCalls = 1024

func (l *link) recycle(p *pendingCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && len(l.spare) < maxSpareCalls {
		l.spare = append(l.spare, p)
	}
}
