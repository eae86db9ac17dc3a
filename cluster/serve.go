package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
)

// maxErrorBytes bounds the text of a handler's error on the wire.
const maxErrorBytes = 4 << 10

// readBufferBytes lets one read of the socket take many small frames.
const readBufferBytes = 64 << 10

// read takes frames off the connection until the link ends. It never waits for a handler or for the
// socket, so two peers that flood each other cannot lock up.
func (l *link) read() {
	r := bufio.NewReaderSize(l.through, readBufferBytes)
	var header [frameHeaderBytes]byte
	for {
		f, err := readFrame(r, &header, l.mesh.cfg.MaxFrameBytes)
		if err == nil {
			err = l.receive(f)
		}
		if err != nil {
			l.close(fmt.Errorf("read: %w", err))
			return
		}
	}
}

// receive acts on one frame; an error ends the link.
func (l *link) receive(f frame) error {
	switch f.typ {
	case frameRequest:
		return l.request(f)
	case frameAnswer:
		return l.answer(f.id, callResult{payload: f.payload})
	case frameError:
		text := f.payload
		if len(text) > maxErrorBytes {
			text = text[:maxErrorBytes]
		}
		return l.answer(f.id, callResult{err: &RemoteError{Node: l.peer, Text: string(text)}})
	case frameBusy:
		return l.answer(f.id, callResult{err: fmt.Errorf("%w: node %s: %w",
			fsm.ErrUnavailable, l.peer, fsm.ErrBusy)})
	case frameUnknown:
		return l.answer(f.id, callResult{err: fmt.Errorf("%w: node %s does not serve this kind of call",
			fsm.ErrUnavailable, l.peer)})
	case frameCancel:
		l.mu.Lock()
		cancel := l.active[f.id]
		l.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case frameOpen, frameData, frameEnd, frameWindow:
		return l.bulkFrame(f)
	case frameDrain, frameFinished:
		l.mu.Lock()
		l.draining = true
		l.finishedReceived = l.finishedReceived || f.typ == frameFinished
		over := l.finishLocked()
		l.mu.Unlock()
		if over {
			return errFinished
		}
	}
	return nil
}

// answer ends a pending call. An answer that nobody waits for is of a cancelled call.
func (l *link) answer(id uint64, r callResult) error {
	l.mu.Lock()
	p := l.pending[id]
	delete(l.pending, id)
	over := p != nil && l.finishLocked()
	l.mu.Unlock()
	if p != nil {
		p.end(r)
	}
	if over {
		return errFinished
	}
	return nil
}

// request starts the handler of one request, or says why not.
func (l *link) request(f frame) error {
	handler := l.mesh.handlers[f.kind]
	admitted, err := l.admit(f, handler != nil)
	if !admitted {
		return err
	}
	if begin := l.mesh.beginHandlers[f.kind]; begin != nil && l.requestBegun(begin, f) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	ctx, cancel := context.WithCancel(l.ctx)
	l.active[f.id] = cancel
	l.handOverLocked(job{ctx, cancel, handler, f})
	return nil
}

// admit notes a request, or refuses it.
func (l *link) admit(f frame, served bool) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false, l.err
	}
	if _, twice := l.active[f.id]; twice {
		return false, fmt.Errorf("%w: call id %d is in use", errFrame, f.id)
	}
	if l.finishedReceived {
		return false, fmt.Errorf("%w: request after the last", errFrame)
	}
	refusal := frameType(0)
	switch {
	case !served:
		refusal = frameUnknown
	case len(l.active) >= l.mesh.cfg.MaxCalls,
		l.handledBytes+len(f.payload) > l.mesh.cfg.MaxHandledBytes,
		!l.fitsLocked(0):
		refusal = frameBusy
	}
	if refusal != 0 {
		// The peer calls faster than it reads the answers: those alone must not fill the memory.
		if len(l.queue) > l.mesh.cfg.MaxQueueBytes+maxRefusalBytes {
			return false, errors.New("peer does not read its answers")
		}
		l.appendLocked(refusal, 0, f.id, nil)
		return false, nil
	}
	l.active[f.id] = nil
	l.handledBytes += len(f.payload)
	return true, nil
}

// job is one request under way.
type job struct {
	ctx    context.Context
	cancel context.CancelFunc
	h      Handler
	f      frame
}

// maxIdleHandlers bounds the handlers of a link that wait for more.
const maxIdleHandlers = 32

// handOverLocked gives a job to a handler that waits for one, whose stack has grown already, or to a
// new one. It never waits.
func (l *link) handOverLocked(j job) {
	select {
	case l.jobs <- j:
		return
	default:
	}
	l.workers.Add(1)
	go func() {
		defer l.workers.Done()
		for l.handle(j) {
			select {
			case j = <-l.jobs:
				l.mu.Lock()
				l.idle--
				l.mu.Unlock()
			case <-l.done:
				return
			}
		}
	}()
}

// maxRefusalBytes is what refusals may add to a full queue before the link is given up: 75,000.
const maxRefusalBytes = 1 << 20

// handle runs one handler and answers; it reports whether the goroutine is to wait for another job.
func (l *link) handle(j job) (stay bool) {
	defer j.cancel()
	answer, err := j.h(j.ctx, l.peer, j.f.payload)
	typ, payload := l.mesh.encodeAnswer(answer, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && !l.fitsLocked(len(payload)) {
		if l.awaitRoomLocked(l.ctx) != nil {
			break
		}
	}
	delete(l.active, j.f.id)
	l.handledBytes -= len(j.f.payload)
	l.sendLocked(typ, 0, j.f.id, payload)
	if stay = l.idle < maxIdleHandlers; stay {
		l.idle++
	}
	return stay
}

// encodeAnswer turns what a handler returned into a frame that the peer accepts.
func (m *Mesh) encodeAnswer(answer []byte, err error) (frameType, []byte) {
	if err == nil && len(answer) > int(m.cfg.MaxFrameBytes) {
		err = fmt.Errorf("answer of %d bytes, want at most %d", len(answer), m.cfg.MaxFrameBytes)
	}
	if err == nil {
		return frameAnswer, answer
	}
	text := err.Error()
	if len(text) > maxErrorBytes {
		text = text[:maxErrorBytes]
	}
	return frameError, []byte(text)
}
