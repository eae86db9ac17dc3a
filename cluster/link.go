package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/busbar-mq/busbar/fsm"
)

// Why a link ended, for those who branch.
var (
	errSilent   = errors.New("peer is silent")
	errReplaced = errors.New("link was replaced by a newer one")
	errFinished = errors.New("link was given up in favour of another")
	errClosing  = errors.New("mesh is closing")
	errDraining = errors.New("link takes no more calls")
)

// streamWindowBytes is what a stream may have under way unread: 1 MiB fills 8 Gbit/s at 1 ms.
const streamWindowBytes = 1 << 20

// maxSpareBytes is the largest write buffer that a link keeps for its next batch.
const maxSpareBytes = 1 << 20

// link is one live connection to a peer. Its goroutines are reader, writer, monitor, the acceptor of
// bulk streams and one per request under way; run waits for them all.
type link struct {
	mesh        *Mesh
	peer        fsm.NodeID
	incarnation fsm.Incarnation
	dialled     bool // by us
	since       time.Time
	conn        *meteredConn
	session     *yamux.Session
	calls       net.Conn        // the stream of small calls
	ctx         context.Context // of all handlers; ends with the link
	cancel      context.CancelFunc
	wake        chan struct{} // tells the writer that queue is not empty; capacity 1
	done        chan struct{} // closed when the link has ended; err is then set
	workers     sync.WaitGroup
	silent      atomic.Int32 // ping intervals since the last byte came

	mu  sync.Mutex
	err error // why the link ended; nil while it lives
	// queue holds whole frames for the writer. They form batch number batches+1; what the writer has
	// taken is in batches 1 to batches and may have reached the peer.
	queue   []byte
	batches uint64
	room    chan struct{} // closed when queue was taken; nil if nobody waits
	nextID  uint64
	pending map[uint64]*pendingCall
	spare   []*pendingCall
	// active holds the requests of the peer that have not been answered; handledBytes is the sum of
	// their sizes, streams the number of bulk streams among them.
	active       map[uint64]context.CancelFunc
	handledBytes int
	streams      int
	// A draining link calls no more. It is closed when both sides have said that they wait for
	// nothing.
	draining, finishedSent, finishedReceived bool
}

// pendingCall waits for its answer.
type pendingCall struct {
	batch  uint64 // the batch its request is in
	result chan callResult
}

type callResult struct {
	payload []byte
	err     error
}

// newLink starts nothing yet; conn has been through the hello and raw lies below it.
func newLink(m *Mesh, conn net.Conn, raw *meteredConn, id identity, dialled bool) (*link, error) {
	l := &link{
		mesh: m, peer: id.node, incarnation: id.incarnation, dialled: dialled, since: time.Now(),
		conn: raw, wake: make(chan struct{}, 1), done: make(chan struct{}),
		pending: map[uint64]*pendingCall{}, active: map[uint64]context.CancelFunc{},
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive = false // ours is faster, and counts every byte
	cfg.ConnectionWriteTimeout = m.cfg.WriteTimeout
	cfg.MaxStreamWindowSize = streamWindowBytes
	cfg.StreamOpenTimeout = m.cfg.HelloTimeout
	cfg.StreamCloseTimeout = m.cfg.StreamIdle
	cfg.LogOutput = lineWriter{func(line string) { m.log.Debug("multiplexer", "peer", id.node, "line", line) }}
	// Closing TLS would try to say goodbye to a peer that may not read; closing the socket does not.
	under := &carrier{Conn: conn, raw: raw}
	var err error
	if dialled {
		if l.session, err = yamux.Client(under, cfg); err != nil {
			return nil, err
		}
		l.calls, err = l.session.Open()
	} else {
		if l.session, err = yamux.Server(under, cfg); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(m.ctx, m.cfg.HelloTimeout)
		defer cancel()
		l.calls, err = l.session.AcceptStreamWithContext(ctx)
	}
	if err != nil {
		l.session.Close()
		return nil, fmt.Errorf("open the call stream: %w", err)
	}
	return l, nil
}

// carrier is what the multiplexer writes to and closes.
type carrier struct {
	net.Conn
	raw  net.Conn
	held []byte // a header whose data comes with the next write
}

// The multiplexer's header: {version, type, flags uint16, stream uint32, length uint32}; type 0 is
// data and is followed by a write of length bytes.
const (
	muxHeaderBytes = 12
	muxTypeData    = 0
)

// Write joins the header of a data frame, which the multiplexer writes by itself, with its data: one
// packet and one TLS record instead of two. Only the multiplexer's one sender calls it.
func (c *carrier) Write(p []byte) (int, error) {
	if len(c.held) == 0 {
		if len(p) == muxHeaderBytes && p[1] == muxTypeData && binary.BigEndian.Uint32(p[8:]) > 0 {
			c.held = append(c.held, p...)
			return len(p), nil
		}
		return c.Conn.Write(p)
	}
	c.held = append(c.held, p...)
	_, err := c.Conn.Write(c.held)
	if c.held = c.held[:0]; cap(c.held) > maxSpareBytes {
		c.held = nil
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close closes the socket below TLS.
func (c *carrier) Close() error { return c.raw.Close() }

// run serves the link until it ends, and returns when none of its goroutines is left.
func (l *link) run() {
	for _, work := range []func(){l.write, l.read, l.monitor, l.acceptStreams} {
		l.workers.Add(1)
		go func() {
			defer l.workers.Done()
			work()
		}()
	}
	<-l.done
	l.session.Close()
	l.workers.Wait()
}

// close ends the link for that reason, once. Calls that may have reached the peer end unknown, the
// others undelivered. It does not wait.
func (l *link) close(reason error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = reason
	failed, taken := l.pending, l.batches
	l.pending, l.spare, l.queue = nil, nil, nil
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
	l.mu.Unlock()
	l.cancel()
	close(l.done)
	// The socket is closed here and not in run, so that a write to it ends now.
	l.conn.Close()
	for _, p := range failed {
		sentinel := fsm.ErrUnknown
		if p.batch > taken {
			sentinel = fsm.ErrUnavailable
		}
		p.result <- callResult{err: fmt.Errorf("%w: connection to node %s lost: %w",
			sentinel, l.peer, reason)}
	}
}

// live reports whether new calls may use the link.
func (l *link) live() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil && !l.draining
}

// drain gives the link up without losing a call: both sides call no more by it, finish what they wait
// for (see frameFinished), and then it is closed.
func (l *link) drain() {
	l.mu.Lock()
	if !l.draining {
		l.draining = true
		l.appendLocked(frameDrain, 0, 0, nil)
	}
	over := l.finishLocked()
	l.mu.Unlock()
	if over {
		l.close(errFinished)
	}
}

// finishLocked tells the peer, once, that a draining link is no longer needed from here, and reports
// whether neither side needs it.
func (l *link) finishLocked() (over bool) {
	if !l.draining || len(l.pending) != 0 || l.err != nil {
		return false
	}
	if !l.finishedSent {
		l.finishedSent = true
		l.appendLocked(frameFinished, 0, 0, nil)
	}
	// The peer, too, has said that it waits for nothing: closing now loses nothing, even if our own
	// word has not left yet.
	return l.finishedReceived
}

// appendLocked queues a frame whatever the queue holds; the caller has bounded it.
func (l *link) appendLocked(typ frameType, kind uint8, id uint64, payload []byte) {
	if l.err != nil {
		return
	}
	l.queue = appendFrameHeader(l.queue, typ, kind, id, len(payload))
	l.queue = append(l.queue, payload...)
	select {
	case l.wake <- struct{}{}:
	default:
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

// write hands the queue to the socket, all that gathered during the last write at once.
func (l *link) write() {
	var spare []byte
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
		l.mu.Lock()
		batch := l.queue
		l.queue = spare
		l.batches++
		if l.room != nil {
			close(l.room)
			l.room = nil
		}
		l.mu.Unlock()
		if err := l.writeBatch(batch); err != nil {
			l.close(fmt.Errorf("write: %w", err))
			return
		}
		if spare = batch[:0]; cap(spare) > maxSpareBytes {
			spare = nil
		}
	}
}

// writeBatch writes in pieces, each with the time of a write, so that a slow network is not taken for
// a peer that does not read.
func (l *link) writeBatch(batch []byte) error {
	for len(batch) > 0 {
		piece := batch[:min(len(batch), streamWindowBytes/4)]
		// The deadline is for the stream's window; the socket's own is set by meteredConn.
		if err := l.calls.SetWriteDeadline(time.Now().Add(l.mesh.cfg.WriteTimeout)); err != nil {
			return err
		}
		if _, err := l.calls.Write(piece); err != nil {
			return err
		}
		batch = batch[len(piece):]
	}
	return nil
}

// monitor sends a ping per interval and closes the link when the peer was silent for SilentPings
// ticks in a row. If this process is paused, it loses ticks rather than blaming the peer.
func (l *link) monitor() {
	ticker := time.NewTicker(l.mesh.cfg.PingInterval)
	defer ticker.Stop()
	seen := l.conn.received.Load()
	for {
		select {
		case <-ticker.C:
		case <-l.done:
			return
		}
		l.mu.Lock()
		if l.fitsLocked(0) { // else the queue is itself a sign of life, if it moves at all
			l.appendLocked(framePing, 0, 0, nil)
		}
		l.mu.Unlock()
		received := l.conn.received.Load()
		if received != seen {
			seen = received
			l.silent.Store(0)
			continue
		}
		if int(l.silent.Add(1)) >= l.mesh.cfg.SilentPings {
			l.close(fmt.Errorf("%w for %v", errSilent, l.quiet()))
			return
		}
	}
}

// quiet returns for how long no byte has come, to the ping.
func (l *link) quiet() time.Duration {
	return time.Duration(l.silent.Load()) * l.mesh.cfg.PingInterval
}
