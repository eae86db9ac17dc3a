package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/busbar-mq/busbar/cluster/tick"
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

// link is one live connection to a peer. Its goroutines are reader, writer, monitor and one per
// request or bulk stream of the peer under way; run waits for them all.
type link struct {
	mesh        *Mesh
	peer        fsm.NodeID
	owner       *peer // told of the end; nil if the link was never enrolled
	incarnation fsm.Incarnation
	dialled     bool // by us
	since       time.Time
	conn        *meteredConn    // the socket
	through     net.Conn        // conn, or TLS over it
	ctx         context.Context // of all handlers; ends with the link
	cancel      context.CancelFunc
	wake        chan struct{} // tells the writer that queue is not empty; capacity 1
	done        chan struct{} // closed when the link has ended; err is then set
	jobs        chan job      // to handlers that wait for more; unbuffered
	workers     sync.WaitGroup
	silent      atomic.Int32 // ping intervals since the last byte came

	mu  sync.Mutex
	err error // why the link ended; nil while it lives
	// queue holds whole frames that wait for the socket. They form batch number batches+1; what was
	// taken is in batches 1 to batches and may have reached the peer. writing says that somebody
	// writes a batch, without mu; others only queue meanwhile.
	queue         []byte
	writing       bool
	unused        []byte        // for the next queue
	answers       []begunAnswer // that the writer encodes
	unusedAnswers []begunAnswer // for the next answers
	batches       uint64
	room          chan struct{} // closed when queue was taken; nil if nobody waits
	nextID        uint64
	pending       map[uint64]*pendingCall
	spare         []*pendingCall
	// active holds the requests of the peer that have not been answered; handledBytes is the sum of
	// their sizes, streams the number of bulk streams among them.
	active       map[uint64]context.CancelFunc // nil for one that is about to be begun
	handledBytes int
	streams      int
	idle         int                   // handlers that wait for a job
	bulk         map[streamKey]*stream // bulk streams that have not ended
	// A draining link calls no more. It is closed when both sides have said that they wait for
	// nothing.
	draining, finishedSent, finishedReceived bool
}

// pendingCall waits for its answer.
type pendingCall struct {
	batch  uint64 // the batch its request is in
	result chan callResult
	done   func([]byte, error) // in place of result
}

type callResult struct {
	payload []byte
	err     error
}

// newLink starts nothing yet; conn has been through the hello and raw lies below it.
func newLink(m *Mesh, conn net.Conn, raw *meteredConn, id identity, dialled bool) *link {
	l := &link{
		mesh: m, peer: id.node, incarnation: id.incarnation, dialled: dialled, since: time.Now(),
		conn: raw, through: conn, wake: make(chan struct{}, 1), done: make(chan struct{}),
		jobs: make(chan job), pending: map[uint64]*pendingCall{},
		active: map[uint64]context.CancelFunc{}, bulk: map[streamKey]*stream{},
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// run serves the link until it ends, and returns when none of its goroutines is left.
func (l *link) run() {
	for _, work := range []func(){l.write, l.read, l.monitor} {
		l.workers.Add(1)
		go func() {
			defer l.workers.Done()
			work()
		}()
	}
	<-l.done
	l.workers.Wait()
}

// close ends the link for that reason, once. Calls that may have reached the peer end unknown, the
// others undelivered. It does not wait. The caller holds neither peer.mu nor mu.
func (l *link) close(reason error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = reason
	failed, taken := l.pending, l.batches
	l.pending, l.spare, l.queue, l.unused, l.answers = nil, nil, nil, nil, nil
	served := slices.Collect(maps.Values(l.active)) // order-free: each ends for itself
	for _, s := range l.bulk {
		s.wakeLocked()
	}
	clear(l.bulk)
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
	l.mu.Unlock()
	if l.owner != nil {
		l.owner.lose(l, reason)
	}
	l.cancel()
	close(l.done)
	// The socket is closed here and not in run, so that a write to it ends now.
	l.conn.Close()
	for _, cancel := range served {
		if cancel != nil { // else its handler is about to begin it, and looks for itself
			cancel()
		}
	}
	for _, p := range failed {
		sentinel := fsm.ErrUnknown
		if p.batch > taken {
			sentinel = fsm.ErrUnavailable
		}
		p.end(callResult{err: fmt.Errorf("%w: connection to node %s lost: %w",
			sentinel, l.peer, reason)})
	}
}

// live reports whether new calls may use the link.
func (l *link) live() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil && !l.draining
}

// drain gives the link up without losing a call. Both sides begin no call on it and finish those under
// way (see frameFinished). Then the link is closed.
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

// monitor sends a ping in each interval in which nothing else was sent. It closes the link when the peer was silent for
// SilentPings ticks in a row. If this process is paused, it loses ticks rather than blaming the peer.
func (l *link) monitor() {
	ticker := tick.Every(l.mesh.cfg.PingInterval)
	defer ticker.Stop()
	seen, sent := l.conn.received.Load(), l.conn.sent.Load()
	for {
		select {
		case <-ticker.C:
			ticker.Next()
		case <-l.done:
			return
		}
		l.mu.Lock()
		if now := l.conn.sent.Load(); now != sent {
			sent = now // that was a sign of life
		} else if l.fitsLocked(0) { // else the queue is itself a sign of life, if it moves at all
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
