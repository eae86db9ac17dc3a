package transport

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
)

const (
	// batchBytes closes a batch: what arrived together is handled together, so that its answers
	// ride in one write and its messages in one proposal.
	batchBytes = 128 << 10
	// batches is how many go round: the loop works on one while the reader fills the other.
	batches = 2
)

// frame is one frame of a batch.
type frame struct {
	kind    amqp.FrameType
	channel uint16
	body    []byte
}

// batch is what arrived together. Its bytes are the loop's until it gives the batch back.
type batch struct {
	frames []frame
	buf    []byte
	ends   []int // of the bodies in buf
	bytes  int
	err    error // after the frames
}

func (b *batch) reset() {
	b.frames, b.buf, b.ends, b.bytes, b.err = b.frames[:0], b.buf[:0], b.ends[:0], 0, nil
}

// read fills batches with frames until the first error, which travels in the last batch.
func (c *conn) read(r *amqp.Reader) {
	for {
		var b *batch
		select {
		case b = <-c.free:
		case <-c.quit:
			return
		}
		b.reset()
		fill(c.socket, r, 2*c.cfg.IdleTimeout, b)
		c.arrive(b)
		if errors.Is(b.err, amqp.ErrFraming) {
			c.awaitEnd()
		}
		if b.err != nil {
			return
		}
	}
}

// arrive gives a batch to the loop, and takes its turns if nobody else does. Answers may come as fast as turns are taken, so a runner
// goes on after some of them: the client's next frames must be read.
func (c *conn) arrive(b *batch) {
	if c.mail.arrive(b) && c.someTurns(runnerTurns) {
		c.s.runners.push(c)
	}
}

// awaitEnd throws away what comes behind a framing error, and tells when the peer has nothing more to say.
// The loop ends the connection before, if that takes longer than CloseTimeout.
func (c *conn) awaitEnd() {
	_, err := io.Copy(io.Discard, c.socket)
	if err == nil {
		err = io.EOF
	}
	c.arrive(&batch{err: err})
}

// fill reads at least one frame, and on as long as another one has arrived completely.
func fill(socket net.Conn, r *amqp.Reader, idle time.Duration, b *batch) {
	// A frame is the sign of life, so a peer that trickles bytes of one is as good as silent.
	if b.err = socket.SetReadDeadline(time.Now().Add(idle)); b.err != nil {
		return
	}
	for {
		f, err := r.ReadFrame()
		if err != nil {
			b.err = err
			break
		}
		b.frames = append(b.frames, frame{kind: f.Type, channel: f.Channel})
		b.buf = append(b.buf, f.Body...)
		b.ends = append(b.ends, len(b.buf))
		b.bytes += len(f.Body) + amqp.FrameHeaderBytes
		if len(b.buf) >= batchBytes || !r.FrameBuffered() {
			break
		}
	}
	start := 0
	for i, end := range b.ends {
		b.frames[i].body = b.buf[start:end:end]
		start = end
	}
}
