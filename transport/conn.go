package transport

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
)

// phase is where a connection is in its life.
type phase uint8

const (
	phaseOpen    phase = iota
	phaseLeaving       // the peer sent close: links are ending, then we answer it
	phaseClosing       // we sent close and wait for the peer's, or for its socket to go
	phaseOver          // no more frames; only clean-up goes on
)

// conn is one AMQP connection. Its loop, run on the goroutine that accepted it, owns everything
// here; the reader and the writer have their batches and buffers, the goroutines of spawn what
// they were given. Nothing is shared, so nothing is locked.
type conn struct {
	s      *Server
	cfg    *Config
	socket net.Conn
	log    hclog.Logger

	inbox    chan func()   // what spawned work and the watcher want done on the loop
	stop     chan struct{} // closed by shutdown
	stopOnce sync.Once
	done     chan struct{} // closed when everything has ended
	ctx      context.Context
	cancel   context.CancelFunc

	// Below is the loop's alone.
	phase    phase
	orderly  bool // the peer closed as it should (RUL-2)
	forced   bool // we are shutting down: locks and counts stay
	inflight int  // spawned work that has not come back
	channels map[uint16]*channel
	ended    map[uint16]bool // channels that were ended and have not begun again
	links    map[linkKey]*link
	replies  []*replies
	asking   []*requests // links whose requests wait for their turn
	running  int         // requests under way on all links
	sessions map[sessionKey]*heldSession
	txns     map[string]*txn // transactions that are not discharged, by id

	heldBytes    int         // of deliveries and requests that wait for a partition
	arrivedBytes int         // of deliveries and requests whose last frame has not come
	txnBytes     int         // of open transactions; they wait for the client, so reading goes on
	replyBytes   int         // of replies that wait for credit
	attachBytes  int         // of links, as their attaches had
	frameBytes   int         // of the body of the frame that is being handled
	counted      int         // of the footprint, that the node knows of
	queuedBytes  int         // of messages taken for the client that wait for its window
	starved      []*outgoing // do not fetch because of queuedBytes

	authed       bool
	onAuthed     func()
	claims       map[string]auth.Claim // by audience
	container    string
	hostname     string // as the client calls us, a hint
	goClient     bool   // the Go SDK, which writes a null session state as empty binary
	jsClient     bool   // the JavaScript SDK, which in 7.0.5 drops a message that comes for the credit of its drain
	pythonClient bool   // the Python SDK
	peerFrame    uint32 // largest frame we may send
	maxChan      uint16
	beat         time.Duration // between signs of life to the peer
	lastWrite    time.Time
	openedAt     time.Time
	wake         *time.Timer
	leftAt       time.Time // when we sent close
	dirty        []*channel
	blocked      []*channel // have deliveries that wait for the socket
	starters     []starter
	scratch      []byte
	parcel       parcel // whose first frame is being written
	handles      int    // in use on all channels, detaching ones included

	lastTransfer    amqp.Transfer
	lastDisposition amqp.Disposition
	lastFlow        amqp.Flow

	out, spare []byte
	writing    bool
	writeErr   error
	toWriter   chan []byte
	fromWriter chan wrote
	frames     chan *batch
	free       chan *batch
}

// linkKey names a link: a sender and a receiver may share a name.
type linkKey struct {
	name string
	role amqp.Role // the client's
}

func newConn(s *Server, socket net.Conn) *conn {
	c := &conn{
		s: s, cfg: &s.cfg, socket: socket,
		log:        s.log.With("remote", socket.RemoteAddr()),
		inbox:      make(chan func()),
		stop:       make(chan struct{}),
		done:       make(chan struct{}),
		channels:   map[uint16]*channel{},
		ended:      map[uint16]bool{},
		links:      map[linkKey]*link{},
		sessions:   map[sessionKey]*heldSession{},
		txns:       map[string]*txn{},
		claims:     map[string]auth.Claim{},
		toWriter:   make(chan []byte, 1),
		fromWriter: make(chan wrote, 1),
		frames:     make(chan *batch),
		free:       make(chan *batch, batches),
	}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	for range batches {
		c.free <- &batch{}
	}
	return c
}

// shutdown asks the loop to end the connection in good order; it may be called from anywhere.
func (c *conn) shutdown() { c.stopOnce.Do(func() { close(c.stop) }) }

// cut ends the connection now; it may be called from anywhere.
func (c *conn) cut() {
	c.shutdown()
	c.socket.Close()
	c.cancel()
}

// post runs f on the loop, or never if that has ended; it may be called from anywhere.
func (c *conn) post(f func()) {
	select {
	case c.inbox <- f:
	case <-c.done:
	}
}

// run serves the connection to its end and cleans up after it.
func (c *conn) run(authed func()) {
	defer close(c.done)
	defer c.cancel()
	c.onAuthed = authed
	r := amqp.NewReader(c.socket, preOpenFrameBytes)
	if !c.handshake(r) {
		c.socket.Close()
		return
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { readLoop(c.socket, r, 2*c.cfg.IdleTimeout, c.free, c.frames, quit) })
	wg.Go(func() { writeLoop(c.socket, c.cfg.WriteTimeout, c.toWriter, c.fromWriter) })
	c.wake = time.NewTimer(c.nextWake())
	defer c.wake.Stop()
	c.guard(func() func() { c.loop(); return nil })
	c.socket.Close()
	close(quit)
	close(c.toWriter)
	c.guard(func() func() { c.sweep(); return nil })
	c.uncount()
	wg.Wait()
}

// loop serves frames until the connection is over.
func (c *conn) loop() {
	stop := c.stop
	for c.phase != phaseOver {
		frames := c.frames
		if c.paused() {
			frames = nil
		}
		select {
		case b := <-frames:
			c.batch(b)
		case f := <-c.inbox:
			f()
		case w := <-c.fromWriter:
			c.written(w)
		case <-c.wake.C:
			c.tick(time.Now())
		case <-stop:
			stop = nil
			c.leave()
		}
		c.drainInbox()
		c.advance()
	}
}

// drainInbox takes the answers that are there already, so that they share one write.
func (c *conn) drainInbox() {
	for range inboxBurst {
		select {
		case f := <-c.inbox:
			f()
		default:
			return
		}
	}
}

// inboxBurst bounds how long the loop goes without looking at the socket.
const inboxBurst = 64

// advance does what the events of this turn have made possible, then writes.
func (c *conn) advance() {
	c.startRounds()
	for i := 0; i < len(c.dirty); i++ { // a channel may touch itself or others
		ch := c.dirty[i]
		ch.dirty = false
		if c.channels[ch.number] == ch {
			ch.advance()
		}
	}
	clear(c.dirty)
	c.dirty = c.dirty[:0]
	c.runRequests()
	c.startRounds()
	c.checkReplies()
	c.count()
	c.finishLeaving()
	c.flush()
}

// startRounds starts the rounds that this turn has collected.
func (c *conn) startRounds() {
	for i := 0; i < len(c.starters); i++ { // a starter may add others
		c.starters[i].startRound()
	}
	clear(c.starters)
	c.starters = c.starters[:0]
}

// paused reports whether reading has to wait: too many bytes wait for partitions (A21), or the
// peer does not take what we answer.
func (c *conn) paused() bool {
	return c.heldBytes >= c.heldLimit() || len(c.out) >= 2*c.cfg.MaxWriteBytes
}

// batch handles what arrived together.
func (c *conn) batch(b *batch) {
	c.s.stats.BytesIn.Add(uint64(b.bytes))
	for i := range b.frames {
		if c.phase == phaseOver {
			break
		}
		err := c.frame(&b.frames[i])
		if err == nil {
			err = c.checkStranger()
		}
		if err != nil {
			c.fault(nil, nil, err)
		}
	}
	if b.err != nil && c.phase != phaseOver {
		c.readEnded(b.err)
		return
	}
	c.free <- b
}

// readEnded handles the end of the byte stream.
func (c *conn) readEnded(err error) {
	switch {
	case c.phase == phaseClosing || c.orderly:
		c.endAfterWrite() // our close may not be out yet
	case errors.Is(err, amqp.ErrFraming):
		c.fault(nil, nil, wireFault(err))
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.s.stats.reject(siteIdle)
		c.sendClose(amqpError(amqp.ConditionResourceLimitExceeded, "local-idle-timeout expired"))
		c.endAfterWrite()
	default:
		c.lose(sites, err)
	}
}

// frame handles one frame.
func (c *conn) frame(f *frame) error {
	if f.kind != amqp.FrameAMQP {
		return connFault(siteIllegalFrame, amqp.ConditionFramingError, "a frame of type %d after SASL", f.kind)
	}
	if len(f.body) == 0 {
		return nil // a sign of life
	}
	if waits, err := c.waitsForEnd(f); waits || err != nil {
		return err
	}
	c.frameBytes = len(f.body)
	p, payload, err := c.decode(f.body)
	if err != nil {
		return wireFault(err)
	}
	if c.phase == phaseClosing {
		if _, ok := p.(*amqp.Close); ok {
			c.phase = phaseOver
		}
		return nil // Q25: what was in flight when we closed
	}
	if c.phase != phaseOpen {
		return nil // after a close there is nothing to say
	}
	switch p := p.(type) {
	case *amqp.Open:
		return connFault(siteIllegalFrame, amqp.ConditionIllegalState, "a second open")
	case *amqp.Begin:
		return c.begin(f.channel, p)
	case *amqp.Close:
		c.peerClosed(p)
		return nil
	}
	ch := c.channels[f.channel]
	if ch == nil && c.ended[f.channel] {
		return nil // see channel.remove
	}
	if ch == nil {
		return connFault(siteChannel, amqp.ConditionNotAllowed, "channel %d has not begun", f.channel)
	}
	return ch.frame(p, payload)
}

// decode decodes a frame's body; the three frequent performatives into structs of the connection's
// own, which are good until the next frame.
func (c *conn) decode(body []byte) (p amqp.Performative, payload []byte, err error) {
	code, err := amqp.PeekCode(body)
	if err != nil {
		return nil, nil, err
	}
	switch code {
	case amqp.CodeTransfer:
		payload, err = c.lastTransfer.Decode(body)
		return &c.lastTransfer, payload, err
	case amqp.CodeDisposition:
		return &c.lastDisposition, nil, c.lastDisposition.Decode(body)
	case amqp.CodeFlow:
		return &c.lastFlow, nil, c.lastFlow.Decode(body)
	}
	return amqp.DecodePerformative(body)
}

// fault ends what an error says is broken. ch and l are where it happened, nil if unknown.
func (c *conn) fault(ch *channel, l *link, err error) {
	var onConn *connError
	var onChannel *channelError
	var onLink *linkError
	switch {
	case errors.As(err, &onLink) && l != nil:
		c.s.stats.reject(onLink.at)
		c.log.Debug("detach", "link", l.name, "site", siteNames[onLink.at], "error", onLink.cause)
		l.refuse(onLink.cause)
	case errors.As(err, &onChannel) && ch != nil:
		c.s.stats.reject(onChannel.at)
		c.log.Debug("end", "channel", ch.number, "site", siteNames[onChannel.at], "error", onChannel.cause)
		ch.end(onChannel.cause)
	case errors.As(err, &onConn):
		c.s.stats.reject(onConn.at)
		c.log.Debug("close", "site", siteNames[onConn.at], "error", onConn.cause)
		c.sendClose(onConn.cause)
	default:
		c.log.Error("unexpected error", "error", err)
		c.sendClose(amqpError(amqp.ConditionInternalError, "internal error"))
	}
}
