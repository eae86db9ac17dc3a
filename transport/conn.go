package transport

import (
	"context"
	"errors"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// phase is where a connection is in its life.
type phase uint8

const (
	phaseOpen     phase = iota
	phaseLeaving        // the peer sent close: links are ending, then we answer it
	phaseClosing        // we sent close and wait for the peer's, or for its socket to go
	phaseFlushing       // the last frames are being written
	phaseOver           // no more frames; only clean-up goes on
)

// conn is one AMQP connection of a client.
//
// Its loop owns what stands below. It runs on one goroutine at a time: on one that had news when no other took turns (see
// mailbox). The reader is the goroutine that accepted the connection. The reader and the writer own the batches and buffers that
// they were given; a goroutine of spawn owns what its closure holds. Nothing but the mailbox is
// shared, so nothing else is locked. The listener makes a conn and calls run; everything else reaches it over post.
// Invariant: onLoop holds in every method of a channel, a link, a link's end, a settler, a held session and a
// transaction.
type conn struct {
	loopOwner

	// Immutable.
	s        *Server
	cfg      *Config
	socket   net.Conn
	accepted time.Time // when it came
	protocol protocol
	number   uint64 // among the connections of this life of the node, from 1
	log      hclog.Logger
	ctx      context.Context
	cancel   context.CancelFunc
	serve    func() // is turns

	// Any goroutine may use these.
	mail     mailbox       // what others want done on the loop
	stop     chan struct{} // closed by shutdown
	stopOnce sync.Once
	quit     chan struct{} // closed when the reader is to end
	swept    chan struct{} // closed when the loop has ended
	done     chan struct{} // closed when everything has ended

	peer
	life
	tables
	turn
	budgets
	traffic
	frames
}

// peer is what the client said of itself. The handshake sets it, before the reader and the writer begin; it is
// immutable afterwards.
type peer struct {
	container    string
	hostname     string // as the client calls us, a hint
	product      string // and version: a part of what it says, for operators
	version      string
	goClient     bool          // the Go SDK, which writes a null session state as empty binary
	javaClient   bool          // the Java SDK
	jsClient     bool          // the JavaScript SDK, which in 7.0.5 drops a message that comes for the credit of its drain
	pythonClient bool          // the Python SDK
	sdk          sdk           // for the metrics
	isCounted    bool          // among the clients of its kind
	peerFrame    uint32        // bytes of the largest frame that we may send
	maxChan      uint16        // the highest channel number of the client
	beat         time.Duration // between signs of life to the peer
	openedAt     time.Time
}

// life is where the connection stands, and when it acts by itself. The loop owns it.
type life struct {
	phase    phase
	orderly  bool // the peer closed as it should (RUL-2)
	forced   bool // we are shutting down, or dismissed it: locks and counts stay
	inflight int  // spawned work and requests that have not come back

	begun map[*begun]struct{} // requests that are under way without a goroutine

	dismissed bool // an operator closes it

	authed     bool
	onAuthed   func()
	turnedAway bool // the client is told to go to another node as soon as it has opened; register sets it
	lastWrite  time.Time
	leftAt     time.Time   // when we sent close
	wake       *time.Timer // fires when the next thing is due

	sweeping bool        // the clean-up has begun
	broken   bool        // the clean-up has failed
	giveUp   *time.Timer // ends what is in flight
}

// tables hold what the client has open. The loop owns them.
type tables struct {
	channels map[uint16]*channel
	ended    map[uint16]bool // channels that were ended and have not begun again
	links    map[linkKey]*link
	handles  int // in use on all channels, detaching ones included
	sessions map[sessionKey]*heldSession
	txns     map[string]*txn      // transactions that are not discharged, by id
	claims   map[string]heldClaim // by audience
	tokens   uint64               // that the client has sent so far
	replies  []*replies           // links that receive answers of request nodes
	running  int                  // requests under way on all links
}

// turn is what the events of this turn of the loop have made possible; advance does it. The loop owns it.
type turn struct {
	clock    time.Time   // when it was read, zero if nobody has asked in this turn
	posts    []func()    // that were taken out of the mailbox
	ran      int         // of posts, how many have run
	starters []starter   // have a round to start
	dirty    []*channel  // have something to send
	blocked  []*channel  // have deliveries that wait for the socket
	starved  []*outgoing // do not fetch because of queuedBytes
	asking   []*requests // links whose requests wait for their turn
}

// budgets count the bytes that the node holds for the client; footprint is their sum. The loop owns them.
type budgets struct {
	heldBytes    int // of deliveries and requests that wait for a partition
	arrivedBytes int // of deliveries and requests whose last frame has not come
	spareBytes   int // of memory that they have got, and not filled yet
	txnBytes     int // of open transactions; they wait for the client, so reading goes on
	replyBytes   int // of replies that wait for credit
	attachBytes  int // of links, as their attaches had
	queuedBytes  int // of messages taken for the client that wait for its window
	counted      int // of the footprint, that the node knows of
}

// traffic counts for operators what has passed. The loop owns it.
type traffic struct {
	messagesIn, messagesOut uint64
	bytesIn, bytesOut       uint64
}

// frames is what passes between the loop, the reader and the writer. A batch is the reader's while it is in free, and
// the loop's from the mailbox on until the loop gives it back. A buffer is the writer's while writing is set.
type frames struct {
	free chan *batch // to the reader

	out, spare []byte // the loop's: what goes out next, and the buffer for what follows
	saidClose  bool   // our close is in out, or has gone
	last       int    // bytes of out up to our close; 0 once that has gone
	direct     *directWriter
	writing    bool // the writer has a buffer
	writeErr   error

	frameBytes int    // of the body of the frame that is being handled
	scratch    []byte // memory for one delivery, used again
	parcel     parcel // whose first frame is being written

	// The performatives of most frames are decoded into these; they are good until the next frame.
	lastTransfer    amqp.Transfer
	lastDisposition amqp.Disposition
	lastFlow        amqp.Flow
}

// linkKey names a link: a sender and a receiver may share a name.
type linkKey struct {
	name string
	role amqp.Role // the client's
}

func newConn(s *Server, socket net.Conn, by protocol) *conn {
	c := &conn{
		s: s, cfg: &s.cfg, socket: socket, protocol: by, accepted: time.Now(), number: s.numbers.Add(1),
		log:   s.log.With("remote", socket.RemoteAddr().String()),
		mail:  mailbox{taken: true}, // by the handshake
		life:  life{begun: map[*begun]struct{}{}},
		stop:  make(chan struct{}),
		quit:  make(chan struct{}),
		swept: make(chan struct{}),
		done:  make(chan struct{}),
		tables: tables{
			channels: map[uint16]*channel{},
			ended:    map[uint16]bool{},
			links:    map[linkKey]*link{},
			sessions: map[sessionKey]*heldSession{},
			txns:     map[string]*txn{},
			claims:   map[string]heldClaim{},
		},
		frames: frames{
			free:   make(chan *batch, batches),
			direct: directTo(socket),
		},
	}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.serve = c.turns
	context.AfterFunc(c.ctx, func() { c.post(c.giveAllUp) })
	for range batches {
		c.free <- &batch{}
	}
	return c
}

// shutdown asks the loop to end the connection in good order; it may be called from anywhere.
func (c *conn) shutdown() {
	c.stopOnce.Do(func() {
		close(c.stop)
		c.come(c.mail.put(func(m *mailbox) { m.leave = true }))
	})
}

// cut ends the connection now; it may be called from anywhere.
func (c *conn) cut() {
	c.shutdown()
	c.socket.Close()
	c.cancel()
}

// post runs f on the loop, or never if that has ended; it may be called from anywhere.
func (c *conn) post(f func()) { c.come(c.mail.post(f)) }

// postSoon is post for a caller who has many connections to tell of answers.
func (c *conn) postSoon(f func()) {
	if c.mail.post(f) {
		c.s.runners.push(c)
	}
}

// come takes turns on another goroutine if the mailbox says so. The caller may have a mutex, or be waited for by others.
func (c *conn) come(take bool) {
	if take {
		c.s.workers.run(c.serve)
	}
}

// spawn runs work on a goroutine beside the loop, and what work returns on the loop. The loop does not
// end before all of them have come back.
func (c *conn) spawn(work func() func()) {
	c.inflight++
	c.s.workers.run(func() {
		done := c.guard(work)
		take := c.mail.post(func() {
			c.inflight--
			if done != nil {
				done()
			}
		})
		if take {
			c.serve()
		}
	})
}

// guard runs work; a panic ends the connection instead of the process.
func (c *conn) guard(work func() func()) (done func()) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p)
			done = func() { c.lose(sites, errPanic) }
		}
	}()
	return work()
}

var errPanic = errors.New("internal error")

// panicked reports a broken invariant.
func (c *conn) panicked(p any) {
	c.s.stats.reject(sitePanic)
	c.log.Error("panic on a connection", "panic", p, "stack", string(debug.Stack()))
}

// keepsSessions reports whether the client is still to be told that its sessions end.
func (c *conn) keepsSessions() bool { return c.forced && c.phase != phaseOver }
