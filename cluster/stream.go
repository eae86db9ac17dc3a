package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/busbar-mq/busbar/fsm"
)

// A body travels as chunks of {length uint32, bytes}. Length 0 ends it, bodyAborted says that the
// sender could not go on.
const (
	chunkBytes  = 64 << 10
	bodyAborted = 0xFFFFFFFF
)

var (
	errBodyAborted = errors.New("sender gave up the body")
	errBodyRead    = errors.New("read body")
)

// CallStream sends a header and a body of any length on a stream of its own, so that small calls go
// on meanwhile. The caller's goroutine reads body until it ends or an answer arrives. A Read
// that blocks also blocks the end of ctx. Errors are as for [Mesh.Call]; a link on which no byte
// could be moved for Config.StreamIdle ends the call.
func (m *Mesh) CallStream(
	ctx context.Context, to fsm.NodeID, kind uint8, header []byte, body io.Reader,
) ([]byte, error) {
	if len(header) > int(m.cfg.MaxFrameBytes) {
		return nil, fmt.Errorf("%w: header of %d bytes, want at most %d",
			fsm.ErrUnavailable, len(header), m.cfg.MaxFrameBytes)
	}
	if to == m.cfg.Node {
		h := m.streamHandlers[kind]
		if err := m.selfCallable(ctx, h != nil); err != nil {
			return nil, err
		}
		answer, err := h(ctx, m.cfg.Node, append([]byte(nil), header...), body)
		return m.selfAnswer(answer, err)
	}
	for {
		l, err := m.linkTo(ctx, to)
		if err != nil {
			return nil, err
		}
		answer, err := l.callStream(ctx, kind, header, body)
		if errors.Is(err, errDraining) {
			continue // decided before a byte of body was read
		}
		return answer, err
	}
}

func (l *link) callStream(
	ctx context.Context, kind uint8, header []byte, body io.Reader,
) ([]byte, error) {
	id, err := l.beginStream(ctx)
	if err != nil {
		return nil, err
	}
	defer l.endStream(id)
	s, err := l.openStream(id)
	if err != nil {
		return nil, fmt.Errorf("%w: open a stream to node %s: %w", fsm.ErrUnavailable, l.peer, err)
	}
	s.writeIdle = l.mesh.cfg.StreamIdle
	// The answer is awaited while the body is sent: a node that refuses need not take it all first.
	answered := make(chan callResult, 1)
	go func() {
		answered <- l.readStreamAnswer(s)
		s.Close() // wakes a sender that waits for the window
	}()
	stop := context.AfterFunc(ctx, func() {
		l.cancelRemote(id)
		s.Close()
	})
	sendErr := l.sendStream(ctx, s, kind, id, header, body)
	if sendErr != nil && errors.Is(sendErr, errBodyRead) || isTimeout(sendErr) {
		l.cancelRemote(id)
		s.Close()
	}
	r := <-answered
	if !stop() && ctx.Err() != nil && r.err != nil {
		return nil, fmt.Errorf("%w: stream to node %s: %w", fsm.ErrUnknown, l.peer, context.Cause(ctx))
	}
	// A body that broke is why the handler failed, too, if its answer came first.
	if sendErr != nil && (errors.Is(r.err, errNoAnswer) || r.err != nil && errors.Is(sendErr, errBodyRead)) {
		return nil, fmt.Errorf("%w: stream to node %s: %w", fsm.ErrUnknown, l.peer, sendErr)
	}
	return r.payload, r.err
}

// beginStream makes the stream count among what a draining link waits for.
func (l *link) beginStream(ctx context.Context) (id uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.draining: // closed or not: there is another one, or will be
		return 0, errDraining
	case l.err != nil:
		return 0, fmt.Errorf("%w: connection to node %s lost: %w", fsm.ErrUnavailable, l.peer, l.err)
	case ctx.Err() != nil:
		return 0, fmt.Errorf("%w: stream to node %s: %w", fsm.ErrUnavailable, l.peer, context.Cause(ctx))
	case len(l.pending) >= l.mesh.cfg.MaxCalls:
		return 0, fmt.Errorf("%w: %d calls to node %s: %w",
			fsm.ErrUnavailable, len(l.pending), l.peer, fsm.ErrBusy)
	}
	id = l.nextID
	l.nextID++
	l.pending[id] = &pendingCall{result: make(chan callResult, 1)} // its answer comes by the stream
	return id, nil
}

func (l *link) endStream(id uint64) {
	l.mu.Lock()
	delete(l.pending, id)
	over := l.finishLocked()
	l.mu.Unlock()
	if over {
		l.close(errFinished)
	}
}

// cancelRemote ends the context of the handler.
func (l *link) cancelRemote(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appendLocked(frameCancel, 0, id, nil)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func (l *link) sendStream(
	ctx context.Context, s *stream, kind uint8, id uint64, header []byte, body io.Reader,
) error {
	send := func(b []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := s.Write(b)
		return err
	}
	head := appendFrameHeader(make([]byte, 0, frameHeaderBytes+len(header)),
		frameRequest, kind, id, len(header))
	if err := send(append(head, header...)); err != nil {
		return err
	}
	var chunk [4 + chunkBytes]byte
	for {
		n, err := io.ReadFull(body, chunk[4:])
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && n > 0
		if err != nil && !ended {
			_ = send(binary.BigEndian.AppendUint32(nil, bodyAborted)) // best effort: closing says the same
			return fmt.Errorf("%w: %w", errBodyRead, err)
		}
		if n > 0 {
			binary.BigEndian.PutUint32(chunk[:], uint32(n))
			if err := send(chunk[:4+n]); err != nil {
				return err
			}
		}
		if ended {
			return send(make([]byte, 4))
		}
	}
}

// errNoAnswer: the stream ended without a word.
var errNoAnswer = errors.New("stream ended without an answer")

func (l *link) readStreamAnswer(s *stream) callResult {
	var header [frameHeaderBytes]byte
	f, err := readFrame(s, &header, l.mesh.cfg.MaxFrameBytes)
	if err != nil {
		return callResult{err: fmt.Errorf("%w: node %s: %w: %w",
			fsm.ErrUnknown, l.peer, errNoAnswer, err)}
	}
	switch f.typ {
	case frameAnswer:
		return callResult{payload: f.payload}
	case frameError:
		if len(f.payload) > maxErrorBytes {
			f.payload = f.payload[:maxErrorBytes]
		}
		return callResult{err: &RemoteError{Node: l.peer, Text: string(f.payload)}}
	case frameBusy:
		return callResult{err: fmt.Errorf("%w: node %s: %w", fsm.ErrUnavailable, l.peer, fsm.ErrBusy)}
	case frameUnknown:
		return callResult{err: fmt.Errorf("%w: node %s does not serve this kind of stream",
			fsm.ErrUnavailable, l.peer)}
	}
	return callResult{err: fmt.Errorf("%w: %w: type %d for an answer", fsm.ErrUnknown, errFrame, f.typ)}
}

func (l *link) serveStream(s *stream) {
	defer l.workers.Done()
	defer s.Close()
	defer func() {
		l.mu.Lock()
		l.streams--
		l.mu.Unlock()
	}()
	s.readIdle, s.writeIdle = l.mesh.cfg.StreamIdle, l.mesh.cfg.WriteTimeout
	var header [frameHeaderBytes]byte
	f, err := readFrame(s, &header, l.mesh.cfg.MaxFrameBytes)
	if err != nil || f.typ != frameRequest {
		l.mesh.log.Debug("peer opened a stream without a request", "peer", l.peer, "error", err)
		return
	}
	typ, payload := frameUnknown, []byte(nil)
	if h := l.mesh.streamHandlers[f.kind]; h != nil {
		ctx, cancel := context.WithCancel(l.ctx)
		defer cancel()
		if !l.activate(f.id, cancel) {
			l.close(fmt.Errorf("%w: call id %d is in use", errFrame, f.id))
			return
		}
		answer, err := h(ctx, l.peer, f.payload, &bodyReader{stream: s})
		typ, payload = l.mesh.encodeAnswer(answer, err)
		l.deactivate(f.id)
	}
	// A caller that is gone needs no answer; the link reports its own end.
	_, _ = s.Write(append(appendFrameHeader(nil, typ, 0, f.id, len(payload)), payload...))
}

func (l *link) activate(id uint64, cancel context.CancelFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := l.active[id]; twice {
		return false
	}
	l.active[id] = cancel
	return true
}

func (l *link) deactivate(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.active, id)
}

// bodyReader takes the chunks off a stream. Its first error is its last.
type bodyReader struct {
	stream io.Reader
	left   int // bytes of the current chunk
	err    error
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	n, err := b.read(p)
	if err != nil {
		b.err = err
	}
	return n, err
}

func (b *bodyReader) read(p []byte) (int, error) {
	if b.left == 0 {
		var length [4]byte
		if _, err := io.ReadFull(b.stream, length[:]); err != nil {
			return 0, cutOff(err)
		}
		switch n := binary.BigEndian.Uint32(length[:]); {
		case n == 0:
			return 0, io.EOF
		case n == bodyAborted:
			return 0, errBodyAborted
		case n > chunkBytes:
			return 0, fmt.Errorf("%w: chunk of %d bytes, want at most %d", errFrame, n, chunkBytes)
		default:
			b.left = int(n)
		}
	}
	n, err := b.stream.Read(p[:min(len(p), b.left)])
	b.left -= n
	if err != nil {
		err = cutOff(err)
	}
	return n, err
}

// cutOff keeps the end of the connection from looking like the end of the body.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
