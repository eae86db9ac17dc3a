package cluster

import (
	"context"
	"fmt"
	"net"
)

const (
	// maxSpareBytes is the largest write buffer that a link keeps for its next batch.
	maxSpareBytes = 1 << 20
	// writePieceBytes is the largest piece that has the time limit of one write. A larger one would take a slow
	// network for a peer that does not read.
	writePieceBytes = 512 << 10
	// directBytes is from where a payload is not worth copying into the queue.
	directBytes = 8 << 10
)

// appendLocked queues a frame whatever the queue holds; the caller has bounded it.
func (l *link) appendLocked(typ frameType, kind uint8, id uint64, payload []byte) {
	if l.err != nil {
		return
	}
	l.queue = appendFrameHeader(l.queue, typ, kind, id, len(payload))
	l.queue = append(l.queue, payload...)
	if !l.writing { // else who writes looks again
		l.wakeWriter()
	}
}

func (l *link) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// sendLocked sends a frame and all frames that wait, from the caller's goroutine if no other one writes. Most
// frames find the socket free, and a goroutine in between would cost as much as the write. The call may
// release mu meanwhile and wait for the socket, so neither the reader nor the monitor may call it.
// payload is not kept.
func (l *link) sendLocked(typ frameType, kind uint8, id uint64, payload []byte) {
	if l.err != nil || l.writing {
		l.appendLocked(typ, kind, id, payload)
		return
	}
	l.queue = appendFrameHeader(l.queue, typ, kind, id, len(payload))
	if len(payload) < directBytes {
		l.queue = append(l.queue, payload...)
		payload = nil
	}
	l.flushLocked(payload)
}

// flushLocked writes the queue, and rest behind it, with mu released; nobody else writes.
func (l *link) flushLocked(rest []byte) {
	batch := l.queue
	l.queue, l.unused = l.unused, nil
	l.writing = true
	l.batches++
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
	l.mu.Unlock()
	err := l.conn.writeAll(l.through, batch, rest)
	if err != nil {
		l.close(fmt.Errorf("write: %w", err))
	}
	l.mu.Lock()
	l.writing = false
	if l.err != nil {
		return
	}
	if cap(batch) <= maxSpareBytes {
		l.unused = batch[:0]
	}
	if len(l.queue) > 0 || len(l.answers) > 0 {
		l.wakeWriter()
	}
}

// write is the goroutine that writes what nobody else does.
func (l *link) write() {
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
		l.mu.Lock()
		for len(l.queue)+len(l.answers) > 0 && !l.writing {
			if len(l.answers) > 0 {
				l.encodeLocked()
				continue
			}
			l.flushLocked(nil)
		}
		l.mu.Unlock()
	}
}

// fitsLocked reports whether a payload of n bytes may be queued now. An empty queue takes anything
// that a frame may hold.
func (l *link) fitsLocked(n int) bool {
	return len(l.queue)+n+frameHeaderBytes <= l.mesh.cfg.MaxQueueBytes
}

// awaitRoomLocked waits, with mu released, until the queue was taken or the link or ctx ended.
func (l *link) awaitRoomLocked(ctx context.Context) error {
	if l.room == nil {
		l.room = make(chan struct{})
	}
	room := l.room
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeAll writes two buffers, one behind the other, through c or the TLS connection over it.
func (c *meteredConn) writeAll(through net.Conn, first, second []byte) error {
	socket, plain := c.Conn.(*net.TCPConn)
	if plain && through == net.Conn(c) && len(second) > 0 && len(first)+len(second) <= writePieceBytes {
		if err := c.allowWrite(); err != nil {
			return err
		}
		both := net.Buffers{first, second}
		n, err := both.WriteTo(socket)
		c.sent.Add(uint64(n))
		return err
	}
	for _, b := range [2][]byte{first, second} {
		for len(b) > 0 {
			n := min(len(b), writePieceBytes)
			if _, err := through.Write(b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
	}
	return nil
}
