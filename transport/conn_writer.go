package transport

import (
	"time"
)

// wrote says what became of one buffer; the buffer is the loop's again.
type wrote struct {
	buf []byte
	err error
}

// writeChunkBytes is what one write deadline covers, so that a slow peer that does read is not
// taken for one that does not.
const writeChunkBytes = 256 << 10

// flush writes the output, unless the writer has some already; then it goes with what comes after. The rest that
// the socket does not take at once is left to the writer, so the loop never waits.
func (c *conn) flush() {
	if c.saidClose {
		c.out = c.out[:c.last]
	}
	if len(c.out) == 0 || c.writing || c.writeErr != nil {
		return
	}
	c.s.stats.BytesOut.Add(uint64(len(c.out)))
	c.bytesOut += uint64(len(c.out))
	c.lastWrite, c.last = time.Now(), 0
	n, err := c.direct.write(c.out)
	if n == len(c.out) || err != nil {
		c.written(wrote{c.out, err})
		return
	}
	buf := c.out
	c.out, c.spare, c.writing = c.spare[:0], nil, true
	c.s.workers.run(func() { c.write(buf, n) })
}

// write is the writer. It writes one buffer, of which some bytes are out already.
func (c *conn) write(buf []byte, n int) {
	err := c.writeRest(buf[n:])
	if c.mail.put(func(m *mailbox) { m.wrote = &wrote{buf, err} }) {
		c.serve()
	}
}

func (c *conn) writeRest(rest []byte) error {
	for len(rest) > 0 {
		if err := c.socket.SetWriteDeadline(time.Now().Add(c.cfg.WriteTimeout)); err != nil {
			return err
		}
		n, err := c.socket.Write(rest[:min(len(rest), writeChunkBytes)])
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	if c.direct == nil {
		return nil
	}
	return c.socket.SetWriteDeadline(time.Time{}) // it would end a later write of the loop
}

// written takes a buffer back.
func (c *conn) written(w wrote) {
	if cap(w.buf) > 2*c.cfg.MaxWriteBytes {
		w.buf = nil // one large burst does not stay for ever
	}
	if c.writing {
		c.writing, c.spare = false, w.buf
	} else {
		c.out = w.buf[:0]
	}
	for _, ch := range c.blocked {
		ch.touch()
	}
	c.blocked = c.blocked[:0]
	if w.err != nil && c.writeErr == nil {
		c.writeErr = w.err
		c.lose(siteWrite, w.err)
	}
}

// outputFull reports whether deliveries wait for the socket.
func (c *conn) outputFull() bool { return len(c.out) >= c.cfg.MaxWriteBytes }
