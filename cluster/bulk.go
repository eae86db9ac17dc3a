package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

const (
	// streamWindowBytes is what a bulk stream may have under way unread: 1 MiB fills 8 Gbit/s at 1 ms.
	streamWindowBytes = 1 << 20
	// bulkQueueBytes is up to where bulk streams fill the queue of the socket: small calls wait behind
	// no more than that.
	bulkQueueBytes = 256 << 10
	// pieceBytes is what one frame of a bulk stream carries at most.
	pieceBytes = 64 << 10
)

// The side that opened the stream of a bulk frame, in the frame's kind.
const (
	openedBySender   = 0
	openedByReceiver = 1
)

// streamKey names a bulk stream of a link: both sides count their own from 0.
type streamKey struct {
	id     uint64
	theirs bool // opened by the peer
}

// stream is a bulk stream: bytes both ways, with a window each. One goroutine may read and another
// write. Its frames share the connection with the small calls, a piece at a time.
type stream struct {
	l   *link
	key streamKey
	// A read or write in which nothing moves for that long fails; 0 means never.
	readIdle, writeIdle time.Duration

	readable, writable chan struct{} // something changed; capacity 1

	// The rest is guarded by l.mu.
	in     [][]byte // came and was not read
	unread int      // bytes of in
	taken  int      // bytes read that the peer has not been told of
	window int      // what may be sent
	ended  bool     // the peer neither sends nor reads any more
	closed bool     // nor do we
}

var errPeerEnded = errors.New("peer ended the stream")

func (l *link) newStreamLocked(key streamKey) *stream {
	s := &stream{
		l: l, key: key, window: streamWindowBytes,
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
	}
	l.bulk[key] = s
	return s
}

// openStream opens a stream to the peer; the id is that of its call.
func (l *link) openStream(id uint64) (*stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	s := l.newStreamLocked(streamKey{id: id})
	l.appendLocked(frameOpen, 0, id, nil)
	return s, nil
}

func (s *stream) kind() uint8 {
	if s.key.theirs {
		return openedByReceiver
	}
	return openedBySender
}

func (s *stream) wakeLocked() {
	for _, c := range [2]chan struct{}{s.readable, s.writable} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// wait waits, with mu released, until c tells of a change or idle has passed.
func (s *stream) waitLocked(c <-chan struct{}, idle time.Duration) error {
	s.l.mu.Unlock()
	defer s.l.mu.Lock()
	var over <-chan time.Time
	if idle > 0 {
		t := time.NewTimer(idle)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-c:
		return nil
	case <-over:
		return os.ErrDeadlineExceeded
	}
}

// Read implements io.Reader. A stream that the peer has ended, or whose link is lost, ends with
// errPeerEnded or the link's error once all that came is read; there is no orderly end at this level.
func (s *stream) Read(p []byte) (int, error) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(s.in) == 0 {
		switch {
		case s.closed:
			return 0, net.ErrClosed
		case s.ended:
			return 0, errPeerEnded
		case l.err != nil:
			return 0, l.err
		}
		if err := s.waitLocked(s.readable, s.readIdle); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.in[0])
	if s.in[0] = s.in[0][n:]; len(s.in[0]) == 0 {
		s.in[0] = nil
		s.in = s.in[1:]
	}
	s.unread -= n
	s.taken += n
	if s.taken >= streamWindowBytes/2 && !s.ended && !s.closed {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(s.taken))
		l.appendLocked(frameWindow, s.kind(), s.key.id, b[:])
		s.taken = 0
	}
	return n, nil
}

// Write implements io.Writer. It waits for the peer to read and for the socket.
func (s *stream) Write(p []byte) (int, error) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	done := 0
	for done < len(p) {
		switch {
		case s.closed:
			return done, net.ErrClosed
		case s.ended:
			return done, errPeerEnded
		case l.err != nil:
			return done, l.err
		case s.window == 0:
			if err := s.waitLocked(s.writable, s.writeIdle); err != nil {
				return done, err
			}
			continue
		case len(l.queue) >= bulkQueueBytes:
			if err := s.awaitSocketLocked(); err != nil {
				return done, err
			}
			continue
		}
		n := min(len(p)-done, s.window, pieceBytes)
		s.window -= n
		l.sendLocked(frameData, s.kind(), s.key.id, p[done:done+n])
		done += n
	}
	return done, nil
}

// awaitSocketLocked waits until the queue was taken.
func (s *stream) awaitSocketLocked() error {
	ctx, cancel := s.l.ctx, func() {}
	if s.writeIdle > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, s.writeIdle, os.ErrDeadlineExceeded)
	}
	defer cancel()
	return s.l.awaitRoomLocked(ctx)
}

// Close ends the stream both ways: reads and writes under way fail, and what the peer still sends is
// dropped. Bytes that were written before are sent.
func (s *stream) Close() {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.closed {
		return
	}
	s.closed, s.in, s.unread = true, nil, 0
	if l.bulk[s.key] == s {
		delete(l.bulk, s.key)
		l.appendLocked(frameEnd, s.kind(), s.key.id, nil)
	}
	s.wakeLocked()
}

// bulkFrame acts on a frame of a bulk stream; an error ends the link. Frames of a stream that has
// ended here are late, and dropped.
func (l *link) bulkFrame(f frame) error {
	if f.kind > openedByReceiver {
		return fmt.Errorf("%w: bulk frame of kind %d", errFrame, f.kind)
	}
	key := streamKey{id: f.id, theirs: f.kind == openedBySender}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.bulk[key]
	switch f.typ {
	case frameOpen:
		if s != nil || !key.theirs {
			return fmt.Errorf("%w: stream %d is open", errFrame, f.id)
		}
		return l.acceptStreamLocked(key)
	case frameData:
		switch {
		case len(f.payload) == 0:
			return fmt.Errorf("%w: no data for stream %d", errFrame, f.id)
		case s == nil:
		case s.unread+s.taken+len(f.payload) > streamWindowBytes:
			return fmt.Errorf("%w: stream %d has more under way than %d bytes",
				errFrame, f.id, streamWindowBytes)
		default:
			s.keepLocked(f.payload)
		}
	case frameWindow:
		if len(f.payload) != 4 {
			return fmt.Errorf("%w: window of %d bytes", errFrame, len(f.payload))
		}
		n := binary.BigEndian.Uint32(f.payload)
		if s == nil {
			return nil
		}
		if n > uint32(streamWindowBytes-s.window) {
			return fmt.Errorf("%w: stream %d was given more than was sent", errFrame, f.id)
		}
		s.window += int(n)
	case frameEnd:
		if s == nil {
			return nil
		}
		s.ended = true
		delete(l.bulk, key)
	}
	if s != nil {
		s.wakeLocked()
	}
	return nil
}

// keepLocked keeps what came until it is read. Small pieces join the last one, so that what is kept
// is not many times what came.
func (s *stream) keepLocked(b []byte) {
	s.unread += len(b)
	if n := len(s.in); n > 0 && len(b) < smallPieceBytes {
		s.in[n-1] = append(s.in[n-1], b...)
		return
	}
	s.in = append(s.in, b)
}

// smallPieceBytes is below what a piece costs more to keep by itself than to copy.
const smallPieceBytes = 4 << 10

// acceptStreamLocked serves a stream that the peer has opened, or says that there are too many.
func (l *link) acceptStreamLocked(key streamKey) error {
	if l.err != nil {
		return l.err
	}
	if l.streams >= l.mesh.cfg.MaxStreams {
		if len(l.queue) > l.mesh.cfg.MaxQueueBytes+maxRefusalBytes {
			return errors.New("peer does not read its answers")
		}
		l.appendLocked(frameData, openedByReceiver, key.id, appendFrameHeader(nil, frameBusy, 0, key.id, 0))
		l.appendLocked(frameEnd, openedByReceiver, key.id, nil)
		return nil
	}
	l.streams++
	l.workers.Add(1)
	go l.serveStream(l.newStreamLocked(key))
	return nil
}
