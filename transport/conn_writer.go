package transport

import (
	"net"
	"time"
)

// wrote says what became of one buffer; the buffer is the loop's again.
type wrote struct {
	buf []byte
	err error
}

// writeLoop writes what the loop hands over, one buffer at a time. It ends when out is closed, and
// after the first error: the loop hears of it and hands over nothing more.
func writeLoop(socket net.Conn, timeout time.Duration, out <-chan []byte, done chan<- wrote) {
	for buf := range out {
		var err error
		for rest := buf; len(rest) > 0 && err == nil; {
			n := min(len(rest), writeChunkBytes)
			if err = socket.SetWriteDeadline(time.Now().Add(timeout)); err == nil {
				_, err = socket.Write(rest[:n])
			}
			rest = rest[n:]
		}
		done <- wrote{buf, err}
	}
}

// writeChunkBytes is what one write deadline covers, so that a slow peer that does read is not
// taken for one that does not.
const writeChunkBytes = 256 << 10

// flush hands the output to the writer if that is idle; otherwise it goes with what comes after.
func (c *conn) flush() {
	if len(c.out) == 0 || c.writing || c.writeErr != nil {
		return
	}
	c.s.stats.BytesOut.Add(uint64(len(c.out)))
	c.bytesOut += uint64(len(c.out))
	c.lastWrite = time.Now()
	c.writing = true
	c.toWriter <- c.out // has room: the writer is idle
	c.out, c.spare = c.spare[:0], nil
}

// written takes the buffer back.
func (c *conn) written(w wrote) {
	c.writing = false
	if cap(w.buf) > 2*c.cfg.MaxWriteBytes {
		w.buf = nil // one large burst does not stay for ever
	}
	c.spare = w.buf
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
