package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// idleConn is a connection whose handshake is over and whose loop has nothing to do.
func idleConn(t *testing.T, s *Server) *conn {
	t.Helper()
	near, far := net.Pipe()
	c := newConn(s, near, protocolAMQP)
	c.turns()
	t.Cleanup(func() { c.mail.close(); c.cancel(); near.Close(); far.Close() })
	return c
}

// Whoever posts, the functions of a connection run once each, one at a time, and those of one poster in their order.
func TestPostsRunOneAtATimeAndInOrder(t *testing.T) {
	ts := startServer(t, 1)
	const conns, posters, posts = 40, 4, 500
	var all sync.WaitGroup
	for range conns {
		c := idleConn(t, ts.Server)
		var inside atomic.Int32
		next := make([]int, posters) // owned by the loop
		for who := range posters {
			put := c.post
			if who%2 == 0 {
				put = c.postSoon
			}
			all.Add(posts)
			go func() {
				for n := range posts {
					put(func() {
						defer all.Done()
						c.onLoop()
						if inside.Add(1) != 1 {
							t.Error("two functions run at a time")
						}
						if next[who] != n {
							t.Errorf("function %d of poster %d ran in the place of %d", n, who, next[who])
						}
						next[who]++
						if n%16 == 0 {
							runtime.Gosched()
						}
						inside.Add(-1)
					})
				}
			}()
		}
	}
	all.Wait()
}

// A connection that always has something to do does not keep a runner from others.
func TestABusyConnectionLeavesRunnersToOthers(t *testing.T) {
	ts := startServer(t, 1)
	ts.runners.most = 1
	busy, other := idleConn(t, ts.Server), idleConn(t, ts.Server)
	var over atomic.Bool
	var again func()
	again = func() {
		if !over.Load() {
			busy.postSoon(again)
		}
	}
	busy.postSoon(again)
	done := make(chan struct{})
	other.postSoon(func() { close(done) })
	<-done
	over.Store(true)
}

// The list of waiting connections does not grow for ever while it is never empty.
func TestWaitingConnectionsTakeNoMoreThanTheirRoom(t *testing.T) {
	r := runners{run: func(func()) {}, most: 1}
	c := &conn{}
	r.push(c)
	for range 100_000 {
		r.push(c)
		if r.pop() != c {
			t.Fatal("nobody waits")
		}
	}
	if cap(r.waiting) > 64 {
		t.Errorf("room for %d", cap(r.waiting))
	}
	if r.pop() != c || r.pop() != nil || r.running != 0 {
		t.Errorf("%d run", r.running)
	}
}

// A panic in a turn ends the connection. What was posted besides comes back, so that the end waits for nothing.
func TestAPanicEndsItsConnectionOnly(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.client()
		c.authenticate()
		var served *conn
		b.server.mu.Lock()
		for served = range b.server.conns { // there is one
			break
		}
		b.server.mu.Unlock()
		other := b.client()
		other.authenticate()
		came := 0 // owned by the loop
		hold := make(chan struct{})
		served.post(func() {
			for range 3 {
				served.spawn(func() func() {
					<-hold
					return func() { came++ }
				})
			}
			served.post(func() { panic("on purpose") })
			served.post(func() { came++ })
		})
		synctest.Wait()
		select {
		case <-served.done:
			t.Error("the connection has ended before its work has come back")
		default:
		}
		close(hold)
		<-served.done
		if n := b.server.stats.Rejected[sitePanic].Load(); came != 4 || n != 1 {
			t.Errorf("%d functions ran beside %d panics, want 4 and 1", came, n)
		}
		other.close()
	})
}

// socketPair returns both ends of a TCP connection on loopback.
func socketPair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return accepted.(*net.TCPConn), dialed.(*net.TCPConn)
}

// A write that does not wait takes what the socket takes. The writer goes on with the rest, and every byte comes once and in order.
func TestASlowReaderGetsEveryByteInOrder(t *testing.T) {
	ts := startServer(t, 1)
	near, far := socketPair(t)
	c := newConn(ts.Server, &peekedConn{Conn: near}, protocolAMQP)
	defer func() { c.mail.close(); c.cancel() }()
	c.turns()
	const chunk, chunks = 300_000, 40
	byteAt := func(i int) byte { return byte(i * 7 / 5) }
	left := false // something was left to the writer; owned by the loop
	for n := range chunks {
		done := make(chan struct{})
		c.post(func() {
			for i := range chunk {
				c.out = append(c.out, byteAt(n*chunk+i))
			}
			c.flush()
			left = left || c.writing
			close(done)
		})
		<-done
	}
	got, err := io.ReadAll(io.LimitReader(far, chunk*chunks))
	if err != nil || len(got) != chunk*chunks {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	for i, b := range got {
		if b != byteAt(i) {
			t.Fatalf("byte %d of %d is wrong", i, len(got))
		}
	}
	idle := make(chan struct{})
	c.post(func() {
		if !left || c.writing && len(c.out) > 0 || c.writeErr != nil {
			t.Errorf("the writer had something: %v, has %v; %d bytes wait, %v", left, c.writing, len(c.out), c.writeErr)
		}
		close(idle)
	})
	<-idle
}

// A write to a socket whose peer is gone is an error. Nothing is written directly to what is no TCP socket.
func TestDirectWritesTellOfAPeerThatIsGone(t *testing.T) {
	near, far := socketPair(t)
	w := directTo(&peekedConn{Conn: &peekedConn{Conn: near}})
	if n, err := w.write([]byte("hello")); n != 5 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if err := far.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	far.Close()
	var err error
	for err == nil {
		_, err = w.write([]byte("anybody?"))
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the peer is gone: %v", err)
	}
	near.Close()
	if _, err := w.write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket is closed: %v", err)
	}
	pipe, _ := net.Pipe()
	for _, other := range []net.Conn{pipe, &peekedConn{Conn: tls.Server(near, nil)}} {
		if n, err := directTo(other).write([]byte("x")); n != 0 || err != nil {
			t.Errorf("%T: %d bytes, %v", other, n, err)
		}
	}
}

// Answers that come as fast as turns are taken do not keep the reader from the client's next frames.
func TestABusyLoopLeavesTheReader(t *testing.T) {
	ts := startServer(t, 1)
	c := idleConn(t, ts.Server)
	var over atomic.Bool
	var again func()
	again = func() {
		if !over.Load() {
			c.postSoon(again)
		}
	}
	c.mail.mu.Lock()
	c.mail.posts = append(c.mail.posts, again)
	c.mail.mu.Unlock()
	back := make(chan struct{})
	go func() { // as the reader
		c.arrive(<-c.free)
		close(back)
	}()
	select {
	case <-back:
	case <-time.After(patience):
		t.Error("the reader takes turns for ever")
	}
	over.Store(true)
	<-back
}

// slowSocket takes its time to close.
type slowSocket struct {
	net.Conn
	closing, released chan struct{}
}

func (s *slowSocket) Close() error {
	close(s.closing)
	<-s.released
	return s.Conn.Close()
}

// A peer that does not read lets TLS wait with its goodbye. No other connection waits for that.
func TestACloseThatWaitsHoldsNobodyUp(t *testing.T) {
	ts := startServer(t, 1)
	ts.runners.most = 1
	c, other := idleConn(t, ts.Server), idleConn(t, ts.Server)
	slow := &slowSocket{c.socket, make(chan struct{}), make(chan struct{})}
	c.socket, c.direct = slow, nil
	c.postSoon(func() { c.lose(sites, io.EOF) })
	<-slow.closing
	done := make(chan struct{})
	other.postSoon(func() { close(done) })
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("a connection waits for the close of another one")
	}
	select {
	case <-c.swept:
		t.Error("the connection is over before its socket")
	default:
	}
	close(slow.released)
	<-c.swept
}

// panics is a starter that panics each time.
type panics struct{ times *int }

func (p panics) startRound() {
	*p.times++
	panic("on purpose")
}

// A panic during the clean-up ends that. What was begun is cancelled, because nobody will hear its answer.
func TestAPanicInTheSweepCancelsWhatWasBegun(t *testing.T) {
	ts := startServer(t, 1)
	c := idleConn(t, ts.Server)
	var cancelled []error
	times := 0
	c.post(func() {
		c.inflight++
		c.begun[&begun{c: c, cancel: func(cause error) { cancelled = append(cancelled, cause) }}] = struct{}{}
		c.lose(sites, io.EOF)
	})
	c.post(func() { c.starters = append(c.starters, panics{&times}) })
	<-c.swept
	if times != 1 || len(cancelled) != 1 || !errors.Is(cancelled[0], context.Canceled) {
		t.Errorf("%d panics, cancelled with %v", times, cancelled)
	}
}
