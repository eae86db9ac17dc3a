package simnet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// windowBytes is the number of unread bytes of one direction of a stream at which writes wait. It is more than the
// multiplexer has under way. The multiplexer holds a lock while it reads the bytes of a frame. A
// bubble stands still while one of its goroutines waits for a lock.
const windowBytes = 16 << 20

// pipe is one direction of a stream.
type pipe struct {
	net      *Net
	from, to string // IPs

	mu       sync.Mutex
	segments []segment
	bytes    int
	ended    bool          // the writer closed
	broken   bool          // the reader closed, or the host was killed
	news     chan struct{} // closed whenever something changed
}

// segment is what one write sent. It arrives whole or not at all, for the same reason.
type segment struct {
	b     []byte
	at    time.Time // when it arrives
	begun bool      // part of it has been read: a cut comes too late
}

func newPipe(n *Net, from, to string) *pipe {
	return &pipe{net: n, from: from, to: to, news: make(chan struct{})}
}

func (p *pipe) newsLocked() {
	close(p.news)
	p.news = make(chan struct{})
}

// current returns the channel to wait on. It is taken before looking at anything that wake tells of.
func (p *pipe) current() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.news
}

func (p *pipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newsLocked()
}

// deadline is one of the two of a connection.
type deadline struct {
	mu sync.Mutex
	at time.Time
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = t
}

func (d *deadline) get() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// wait sleeps until news, then or the deadline, whichever is first.
func wait(news <-chan struct{}, then, limit time.Time) {
	if then.IsZero() || !limit.IsZero() && limit.Before(then) {
		then = limit
	}
	if then.IsZero() {
		<-news
		return
	}
	timer := time.NewTimer(time.Until(then))
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C:
	}
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func (p *pipe) read(b []byte, limit *deadline) (int, error) {
	for {
		news := p.current()
		at := limit.get()
		if passed(at) {
			return 0, os.ErrDeadlineExceeded
		}
		cut := p.net.isCut(p.from, p.to)
		p.mu.Lock()
		next := time.Time{}
		switch {
		case p.broken:
			p.mu.Unlock()
			return 0, net.ErrClosed
		case cut && (len(p.segments) == 0 || !p.segments[0].begun):
		case len(p.segments) > 0 && !p.segments[0].at.After(time.Now()):
			n := copy(b, p.segments[0].b)
			p.bytes -= n
			p.segments[0].begun = true
			if p.segments[0].b = p.segments[0].b[n:]; len(p.segments[0].b) == 0 {
				p.segments = p.segments[1:]
			}
			p.newsLocked()
			p.mu.Unlock()
			return n, nil
		case len(p.segments) > 0:
			next = p.segments[0].at
		case p.ended:
			p.mu.Unlock()
			return 0, io.EOF
		}
		p.mu.Unlock()
		wait(news, next, at)
	}
}

func (p *pipe) write(b []byte, limit *deadline) (n int, err error) {
	for len(b) > 0 {
		news := p.current()
		at := limit.get()
		if passed(at) {
			return n, os.ErrDeadlineExceeded
		}
		arrives := time.Now().Add(p.net.delayOf(p.from, p.to))
		cut := p.net.isCut(p.to, p.from) // then the writer cannot know that the reader is gone
		p.mu.Lock()
		switch {
		case p.ended, p.broken && !cut:
			p.mu.Unlock()
			return n, syscall.EPIPE
		case p.broken:
			p.mu.Unlock()
			return n + len(b), nil
		}
		if room := windowBytes - p.bytes; room > 0 {
			k := min(room, len(b))
			p.segments = append(p.segments, segment{b: append([]byte(nil), b[:k]...), at: arrives})
			p.bytes += k
			b, n = b[k:], n+k
			p.newsLocked()
			p.mu.Unlock()
			continue
		}
		p.mu.Unlock()
		wait(news, time.Time{}, at)
	}
	return n, nil
}

func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.newsLocked()
}

func (p *pipe) breakOff() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken, p.segments, p.bytes = true, nil, 0
	p.newsLocked()
}

// conn is one end of a stream.
type conn struct {
	in, out       *pipe
	local, remote net.Addr
	readBy        deadline
	writeBy       deadline
	closing       sync.Once
	closed        func()
	over          chan struct{} // closed with this end
	other         *conn
}

// AwaitEnd waits until an end of a stream of this package is closed, this one or the other. A cut hides that from the hosts,
// and not from a test.
func AwaitEnd(c net.Conn) {
	s := c.(*conn)
	select {
	case <-s.over:
	case <-s.other.over:
	}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return c.in.read(b, &c.readBy)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b, &c.writeBy) }

// Close implements net.Conn. The other end reads what is under way and then the end.
func (c *conn) Close() error {
	c.closing.Do(func() {
		c.out.end()
		c.in.breakOff()
		c.closed()
		close(c.over)
	})
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.readBy.set(t)
	c.in.wake()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writeBy.set(t)
	c.out.wake()
	return nil
}
