package audit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// queueLines bounds the lines that wait for the sink: 32 MiB of the longest ones, some 1 MiB of usual ones.
	queueLines = 1024
	// retryPause lies between two tries to write a line.
	retryPause = time.Second
	// omittedPause is how often the log tells of events that have no line.
	omittedPause = time.Minute
)

// Sink takes lines: a file, standard output, syslog. One goroutine uses it.
type Sink interface {
	// Write writes a line, which ends in a line feed. action and refused are of its event.
	Write(at time.Time, action string, refused bool, line []byte) error
	// Reopen opens anew what somebody may have moved away.
	Reopen() error
	Close() error
}

var (
	errBehind  = errors.New("the audit log is written too slowly: events are dropped")
	errBlocked = errors.New("the audit log blocks: what waits for it is lost")
)

// Config is what a [Log] needs.
type Config struct {
	Node string // as people name it
	Life uint64 // of the process, in ids
	Now  func() time.Time
}

// Log has a line for each event. It is safe for concurrent use. Nobody waits for its sink: a line that finds the queue full is
// dropped and counted.
type Log struct {
	cfg  Config
	sink Sink
	log  hclog.Logger
	pace pace

	issued atomic.Uint64
	counts Counts

	mu     sync.Mutex
	queue  []line
	closed bool

	wake   chan struct{} // holds one: there are lines
	reopen chan struct{} // holds one
	stop   chan struct{} // closed by Close, whose deadline is in cutOff
	cutOff context.Context
	done   chan struct{}

	failure atomic.Pointer[error] // why the last line was not written, nil if it was
	behind  atomic.Bool           // events are dropped, and the writer has not written all that waits since then

	// Of the writer alone.
	unopened              bool   // the sink was not opened again when it should have been
	toldBounded, toldFull uint64 // counters as the log has told of them
}

// Counts are counters since the start of the process.
type Counts struct {
	OK, Refused   atomic.Uint64 // lines that were written
	Bounded       atomic.Uint64 // refusals beyond the bound
	Full          atomic.Uint64 // events that found the queue full, or that the node stopped before the sink took them
	WriteFailures atomic.Uint64 // tries to write that failed
}

type line struct {
	at      time.Time
	action  string
	refused bool
	text    []byte
}

// New returns a log that writes to a sink, which it closes at the end. [Log.Close] must be called.
func New(cfg Config, sink Sink, log hclog.Logger) *Log {
	l := &Log{cfg: cfg, sink: sink, log: log, wake: make(chan struct{}, 1), reopen: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}), cutOff: context.Background()}
	l.pace.hosts = map[netip.Prefix]time.Time{}
	go l.run()
	return l
}

// Record notes an event; it never waits. A nil log notes nothing.
func (l *Log) Record(e Event) {
	if l == nil {
		return
	}
	if e.Outcome == "" {
		e.Outcome = OK
	}
	if e.Time.IsZero() {
		e.Time = l.cfg.Now()
	}
	if e.stranger() && !l.pace.may(e.Remote, e.Time) {
		l.counts.Bounded.Add(1)
		return
	}
	l.put(e, false)
}

// put gives an event its number and its place in the queue. last is for the one that the log writes while it closes.
func (l *Log) put(e Event, last bool) {
	e.Time, e.Node = e.Time.UTC(), l.cfg.Node
	e.ID = fmt.Sprintf("%016x-%d", l.cfg.Life, l.issued.Add(1))
	text, err := e.encode()
	if err != nil {
		l.log.Error("an event of the audit log cannot be written", "action", e.Action, "error", err)
		l.counts.Full.Add(1)
		return
	}
	l.mu.Lock()
	full := l.closed && !last || len(l.queue) >= queueLines
	if !full {
		l.queue = append(l.queue, line{e.Time, e.Action, e.refused(), text})
	}
	l.mu.Unlock()
	if full {
		l.counts.Full.Add(1)
		if !l.behind.Swap(true) {
			l.log.Error("events of the audit log are dropped: too many wait for where it goes", "waiting", queueLines)
		}
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Counts returns the live counters.
func (l *Log) Counts() *Counts { return &l.counts }

// Check returns why lines are not written now, nil if they are.
func (l *Log) Check() error {
	if l == nil {
		return nil
	}
	if err := l.failure.Load(); err != nil {
		return fmt.Errorf("the audit log is not written: %w", *err)
	}
	if l.behind.Load() {
		return errBehind
	}
	return nil
}

// Reopen has the sink opened anew before the next line.
func (l *Log) Reopen() {
	if l == nil {
		return
	}
	select {
	case l.reopen <- struct{}{}:
	default: // one is to come
	}
}

// Close writes what waits, until ctx ends, and closes the sink. A sink that blocks for longer is left alone.
func (l *Log) Close(ctx context.Context) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	already := l.closed
	l.closed = true
	l.mu.Unlock()
	if !already {
		l.cutOff = ctx
		close(l.stop)
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
	}
	grace := time.NewTimer(retryPause) // for a writer that counts what it leaves
	defer grace.Stop()
	select {
	case <-l.done:
		return nil
	case <-grace.C:
		return errBlocked
	}
}

func (l *Log) run() {
	defer close(l.done)
	tell := time.NewTicker(omittedPause)
	defer tell.Stop()
	for {
		select {
		case <-l.wake:
			if l.unopened {
				l.openAgain()
			}
			l.writeAll()
		case <-l.reopen:
			l.openAgain()
		case <-tell.C:
			l.tellOmitted(false)
		case <-l.stop:
			if l.cutOff.Err() == nil { // else no line has a chance
				l.tellOmitted(true)
			}
			l.writeAll()
			if err := l.sink.Close(); err != nil {
				l.log.Warn("close the audit log", "error", err)
			}
			return
		}
	}
}

func (l *Log) take() []line {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.queue
	l.queue = nil
	return all
}

func (l *Log) writeAll() {
	for {
		all := l.take()
		if len(all) == 0 {
			l.behind.Store(false)
			return
		}
		for i := range all {
			if !l.write(&all[i]) {
				l.counts.Full.Add(uint64(len(all) - i))
				return
			}
		}
	}
}

// write writes a line, however often that takes. It gives up when the log closes and the time of that is over.
func (l *Log) write(one *line) bool {
	for {
		select {
		case <-l.reopen: // logrotate made room, maybe
			l.openAgain()
		default:
		}
		err := l.sink.Write(one.at, one.action, one.refused, one.text)
		if err == nil {
			l.wrote(one)
			return true
		}
		l.counts.WriteFailures.Add(1)
		if errors.Is(err, syscall.EMSGSIZE) { // no other try would fare better
			l.counts.Full.Add(1)
			l.log.Error("an event of the audit log is dropped: where it goes takes none of that length", "action", one.action, "bytes", len(one.text))
			return true
		}
		if l.failure.Swap(&err) == nil {
			l.log.Error("the audit log cannot be written; events wait, and those beyond the queue are dropped", "error", err)
		}
		pause := time.NewTimer(retryPause)
		select {
		case <-pause.C:
		case <-l.reopen:
			pause.Stop()
			l.openAgain()
		case <-l.stop:
			pause.Stop()
			if !l.lastTry() {
				return false
			}
		}
	}
}

// lastTry waits for the pause once more while the log closes, and reports whether there is time for another try.
func (l *Log) lastTry() bool {
	pause := time.NewTimer(retryPause)
	defer pause.Stop()
	select {
	case <-pause.C:
		return l.cutOff.Err() == nil
	case <-l.cutOff.Done():
		return false
	}
}

func (l *Log) wrote(one *line) {
	if one.refused {
		l.counts.Refused.Add(1)
	} else {
		l.counts.OK.Add(1)
	}
	if !l.unopened && l.failure.Swap(nil) != nil {
		l.log.Info("the audit log is written again")
	}
}

// openAgain has the sink opened anew. If that fails, lines go where they went before, and the next batch tries again.
func (l *Log) openAgain() {
	err := l.sink.Reopen()
	if err == nil {
		l.unopened = false
		l.failure.Store(nil)
		l.put(l.own("audit.reopened"), false)
		return
	}
	err = fmt.Errorf("open it again: %w", err)
	l.counts.WriteFailures.Add(1)
	l.failure.Store(&err)
	if !l.unopened {
		l.log.Error("the audit log is not opened again, and goes on where it was", "error", err)
	}
	l.unopened = true
}

// own is an event of the log itself.
func (l *Log) own(action string) Event {
	return Event{Time: l.cfg.Now(), Action: action, Outcome: OK, Who: TheNode(), Via: ViaNode}
}

// tellOmitted tells of the events that have no line since it told last.
func (l *Log) tellOmitted(last bool) {
	bounded, full := l.counts.Bounded.Load(), l.counts.Full.Load()
	e := l.own("audit.omitted")
	e.Counts = map[string]uint64{"refusals": bounded - l.toldBounded, "queueFull": full - l.toldFull}
	if bounded == l.toldBounded && full == l.toldFull {
		return
	}
	l.toldBounded, l.toldFull = bounded, full
	l.put(e, last)
}
