package cluster

import (
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
)

// BeginHandler answers one call without a goroutine. The handler owns request, and must not wait. If ok is false, the mesh asks the [Handler]
// of the kind. Otherwise the handler calls done once, with a function that makes the answer. done does not wait, and may be called under a
// mutex. The mesh calls cancel when the caller cancels, or when the link to it is lost.
type BeginHandler = func(from fsm.NodeID, request []byte, done func(answer func() ([]byte, error))) (cancel func(), ok bool)

// HandleBegun registers a second handler of a kind, which is asked first. It must be called before Start.
func (m *Mesh) HandleBegun(kind uint8, h func(
	from fsm.NodeID, request []byte, done func(answer func() ([]byte, error))) (cancel func(), ok bool),
) {
	m.mustNotServe()
	m.beginHandlers[kind] = h
}

// Begin is [Mesh.Call] without a goroutine that waits. If ok is false, nothing was begun: Call would wait for a connection or for room in
// the queue, or return an error. Otherwise the mesh calls done once, with what Call would return. A goroutine of the link calls it, or
// cancel does. So done must be short and call nothing of the mesh. cancel does not wait. It ends the call with an error that wraps
// fsm.ErrUnknown and the cause. A call to this node is never begun.
func (m *Mesh) Begin(to fsm.NodeID, kind uint8, request []byte, done func(answer []byte, err error)) (cancel func(cause error), ok bool) {
	if len(request) > int(m.cfg.MaxFrameBytes) {
		return nil, false
	}
	m.mu.RLock()
	p := m.peers[to]
	m.mu.RUnlock()
	if p == nil {
		return nil, false
	}
	p.mu.Lock()
	l := p.link
	p.mu.Unlock()
	if l == nil {
		return nil, false
	}
	return l.beginCall(kind, request, done)
}

// beginCall queues one request for the writer, if there is room.
func (l *link) beginCall(kind uint8, request []byte, done func([]byte, error)) (cancel func(error), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.draining || len(l.pending) >= l.mesh.cfg.MaxCalls || !l.fitsLocked(len(request)) {
		return nil, false
	}
	id := l.nextID
	l.nextID++
	p := &pendingCall{done: done, batch: l.batches + 1}
	l.pending[id] = p
	l.appendLocked(frameRequest, kind, id, request)
	return func(cause error) {
		if l.forget(id, p) {
			done(nil, l.given(cause))
		}
	}, true
}

// forget has nobody wait for an answer, and tells the peer. It is false if the call has ended.
func (l *link) forget(id uint64, p *pendingCall) bool {
	l.mu.Lock()
	if l.pending[id] != p { // answered or lost at this very moment
		l.mu.Unlock()
		return false
	}
	delete(l.pending, id)
	// Cancels of small calls may pass the bound of the queue: each stands for a request that fitted.
	l.appendLocked(frameCancel, 0, id, nil)
	over := l.finishLocked()
	l.mu.Unlock()
	if over {
		l.close(errFinished)
	}
	return true
}

// given is the error of a call that was given up.
func (l *link) given(cause error) error {
	return fmt.Errorf("%w: call to node %s: %w", fsm.ErrUnknown, l.peer, cause)
}

// end tells whoever waits what became of a call. The caller does not hold mu.
func (p *pendingCall) end(r callResult) {
	if p.done != nil {
		p.done(r.payload, r.err)
		return
	}
	p.result <- r
}

// requestBegun asks a BeginHandler; it is false if that begins nothing. The request is in l.active. Only the reader calls it.
func (l *link) requestBegun(h BeginHandler, f frame) bool {
	cancel, ok := h(l.peer, f.payload, func(answer func() ([]byte, error)) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err != nil {
			return
		}
		l.answers = append(l.answers, begunAnswer{f.id, len(f.payload), answer})
		if !l.writing { // else who writes looks again
			l.wakeWriter()
		}
	})
	if !ok {
		return false
	}
	l.mu.Lock()
	lost := l.err != nil
	if _, waits := l.active[f.id]; waits {
		l.active[f.id] = cancel
	}
	l.mu.Unlock()
	if lost {
		cancel()
	}
	return true
}

// begunAnswer waits to be encoded by the writer.
type begunAnswer struct {
	id     uint64
	bytes  int // of the request
	answer func() ([]byte, error)
}

// encodeLocked sends the answers that wait. It releases mu meanwhile. Only the writer calls it.
func (l *link) encodeLocked() {
	answers := l.answers
	l.answers, l.unusedAnswers = l.unusedAnswers, nil
	for i := range answers {
		a := &answers[i]
		l.mu.Unlock()
		typ, payload := l.mesh.encodeAnswer(a.answer())
		a.answer = nil
		l.mu.Lock()
		if !l.roomLocked(len(payload)) {
			return
		}
		delete(l.active, a.id)
		l.handledBytes -= a.bytes
		if len(payload) < directBytes {
			l.appendLocked(typ, 0, a.id, payload)
		} else {
			l.sendLocked(typ, 0, a.id, payload)
		}
	}
	if cap(answers) <= maxSpareCalls {
		l.unusedAnswers = answers[:0]
	}
}

// roomLocked returns when a payload of n bytes may be queued; it is false if the link has ended. Only the writer calls it: what others
// write makes room and wakes it.
func (l *link) roomLocked(n int) bool {
	for l.err == nil && !l.fitsLocked(n) {
		if !l.writing {
			l.flushLocked(nil)
			continue
		}
		l.mu.Unlock()
		select {
		case <-l.wake:
		case <-l.done:
		}
		l.mu.Lock()
	}
	return l.err == nil
}
