package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/google/uuid"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

// measurement is one run of the load generator: its workers, and what they count.
type measurement struct {
	cfg   *loadConfig
	id    uint64 // in every body, so that what an earlier run left behind is not timed
	start time.Time

	sent, received, settled atomic.Uint64
	measuring               atomic.Bool
	confirm, endToEnd       histogram
	settle                  histogram

	// slots bounds a cycle: a message takes one when it is sent and gives it back when it is settled.
	// Otherwise senders that are faster would measure a growing queue. nil: no bound.
	slots chan struct{}

	// stop ends the senders, then the receivers; each ends what it has under way.
	stopSenders, stopReceivers context.CancelFunc
	senders, receivers         sync.WaitGroup

	failOnce sync.Once
	failed   chan error // closed by nobody; holds the first failure
}

// counts is what a run had counted at one moment.
type counts struct {
	at                      time.Time
	sent, received, settled uint64
	usage                   usage
}

func (r *measurement) snapshot() (counts, error) {
	u, err := readUsage(r.cfg.PIDs)
	return counts{at: time.Now(), sent: r.sent.Load(), received: r.received.Load(),
		settled: r.settled.Load(), usage: u}, err
}

func (r *measurement) fail(err error) {
	if err != nil {
		r.failOnce.Do(func() { r.failed <- err })
	}
}

func (r *measurement) takeSlot(ctx context.Context) bool {
	if r.slots == nil {
		return true
	}
	select {
	case r.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// giveSlot takes none back for a message that an earlier run left behind.
func (r *measurement) giveSlot() {
	select {
	case <-r.slots:
	default:
	}
}

// endWait is how long a run waits for what is under way when it ends.
const endWait = 10 * time.Second

// measure makes the load and measures it. Progress goes to the terminal, if there is one.
func measure(ctx context.Context, cfg *loadConfig, d *dialer, progress io.Writer) (*report, error) {
	id := uuid.New()
	r := &measurement{cfg: cfg, id: binary.LittleEndian.Uint64(id[:8]), failed: make(chan error, 1)}
	if cfg.Backlog > 0 {
		r.slots = make(chan struct{}, cfg.Backlog)
	}
	conns, err := d.dialAll(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer closeAll(conns)
	if cfg.Preload > 0 {
		if err := r.preload(ctx, conns); err != nil {
			return nil, fmt.Errorf("preload: %w", err)
		}
	}
	sending, stopSenders := context.WithCancel(ctx)
	receiving, stopReceivers := context.WithCancel(ctx)
	r.stopSenders, r.stopReceivers = stopSenders, stopReceivers
	defer stopSenders()
	defer stopReceivers()
	r.start = time.Now()
	r.measuring.Store(cfg.Warmup == 0)
	begun, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	if cfg.receives() {
		r.startReceivers(receiving, conns)
	}
	if cfg.sends() {
		r.startSenders(sending, conns, 0)
	}
	report, err := r.measure(ctx, begun, newProgress(progress, r))
	r.stop(ctx, err)
	if err != nil {
		return nil, err
	}
	report.fill(r)
	return report, nil
}

// measure waits for the warm-up and the measured time and returns what happened in it.
func (r *measurement) measure(ctx context.Context, from counts, p *progress) (*report, error) {
	p.start()
	defer p.stop()
	wait := func(d time.Duration, done func() bool) error {
		end := time.Now().Add(d)
		for now := time.Now(); now.Before(end) && !done(); now = time.Now() {
			select {
			case err := <-r.failed:
				return err
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(min(end.Sub(now), 20*time.Millisecond)):
			}
		}
		return nil
	}
	if r.cfg.Warmup > 0 {
		if err := wait(r.cfg.Warmup, func() bool { return false }); err != nil {
			return nil, err
		}
		r.measuring.Store(true)
		var err error
		if from, err = r.snapshot(); err != nil {
			return nil, err
		}
	}
	drained := func() bool { return r.cfg.Preload > 0 && r.settled.Load() >= uint64(r.cfg.Preload) }
	if err := wait(r.cfg.Duration, drained); err != nil {
		return nil, err
	}
	r.measuring.Store(false)
	to, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	return newReport(r.cfg, from, to), nil
}

// stop ends the workers. After an orderly run the receivers first take what was sent.
func (r *measurement) stop(ctx context.Context, failed error) {
	r.stopSenders()
	r.senders.Wait()
	if failed == nil && r.cfg.sends() && r.cfg.receives() {
		end := time.Now().Add(endWait)
		last, quiet := r.settled.Load(), 0
		for quiet < 20 && time.Now().Before(end) && r.settled.Load() < r.sent.Load() && ctx.Err() == nil {
			_ = sleepUntil(ctx, time.Now().Add(50*time.Millisecond))
			quiet++
			if now := r.settled.Load(); now != last {
				last, quiet = now, 0
			}
		}
	}
	r.stopReceivers()
	r.receivers.Wait()
}

func (r *measurement) preload(ctx context.Context, conns []*amqp.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.start = time.Now()
	r.startSenders(ctx, conns, r.cfg.Preload)
	done := make(chan struct{})
	go func() { r.senders.Wait(); close(done) }()
	select {
	case <-done:
	case err := <-r.failed:
		cancel()
		<-done
		return err
	}
	r.sent.Store(0)
	return ctx.Err()
}

// startSenders starts the sending links. With total, they send that many together and end.
func (r *measurement) startSenders(ctx context.Context, conns []*amqp.Conn, total int) {
	for i := range r.cfg.Senders {
		s := &sender{run: r, number: i, count: -1}
		if total > 0 {
			s.count = total / r.cfg.Senders
			if i < total%r.cfg.Senders {
				s.count++
			}
		}
		if r.cfg.Rate > 0 && total == 0 {
			s.every = time.Duration(float64(time.Second) * float64(r.cfg.Senders) / r.cfg.Rate)
		}
		conn := conns[i%len(conns)]
		r.senders.Go(func() {
			if err := s.work(ctx, conn); err != nil && ctx.Err() == nil {
				r.fail(fmt.Errorf("sender %d: %w", i, err))
			}
		})
	}
}

// sender is one sending link.
type sender struct {
	run    *measurement
	number int
	count  int           // to send, -1: until told to stop
	every  time.Duration // between two messages, 0: as fast as the broker takes them
}

// unconfirmed is a message that the broker has not answered yet.
type unconfirmed struct {
	receipt amqp.SendReceipt
	due     time.Time
}

func (s *sender) work(ctx context.Context, conn *amqp.Conn) error {
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return dial.Failure("begin", err)
	}
	queue := s.run.cfg.queue(s.number)
	link, err := session.NewSender(ctx, queue, &amqp.SenderOptions{
		SettlementMode: amqp.SenderSettleModeUnsettled.Ptr()})
	if err != nil {
		return dial.Failure("open "+queue, err)
	}
	// Receipts come in order or nearly so; waiting for them in order bounds what is under way.
	waiting := make(chan unconfirmed, s.run.cfg.InFlight)
	done := make(chan error, 1)
	go func() { done <- s.await(waiting) }()
	err = s.send(ctx, link, waiting)
	close(waiting)
	return errors.Join(err, <-done)
}

func (s *sender) send(ctx context.Context, link *amqp.Sender, waiting chan<- unconfirmed) error {
	cfg := s.run.cfg
	due := s.run.start
	if s.every > 0 { // senders take turns
		due = due.Add(s.every * time.Duration(s.number) / time.Duration(cfg.Senders))
	}
	for n := 0; n != s.count && ctx.Err() == nil; n++ {
		if !s.run.takeSlot(ctx) {
			return nil
		}
		if s.every > 0 {
			due = due.Add(s.every)
			if !sleepUntil(ctx, due) {
				return nil
			}
		} else {
			due = time.Now()
		}
		m := s.message(n, due)
		receipt, err := link.SendWithReceipt(ctx, m, nil)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return dial.Failure("send", err)
		}
		waiting <- unconfirmed{receipt, due}
	}
	return nil
}

// message makes the n-th message of this sender. It is due when it should have been sent: what a
// stall delays counts from then.
func (s *sender) message(n int, due time.Time) *amqp.Message {
	body := make([]byte, s.run.cfg.Size) // the link keeps it
	binary.LittleEndian.PutUint64(body, uint64(due.Sub(s.run.start)))
	binary.LittleEndian.PutUint64(body[8:], s.run.id)
	m := amqp.NewMessage(body)
	m.Header = &amqp.MessageHeader{Durable: true}
	if cfg := s.run.cfg; cfg.Sessions > 0 {
		id := sessionName((n*cfg.Senders + s.number) % cfg.Sessions)
		m.Properties = &amqp.MessageProperties{GroupID: &id}
	}
	return m
}

func sessionName(i int) string { return "bench-" + strconv.Itoa(i) }

// await waits for the answers.
func (s *sender) await(waiting <-chan unconfirmed) error {
	var failed error
	for u := range waiting {
		if failed != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), endWait)
		state, err := u.receipt.Wait(ctx)
		cancel()
		if err != nil {
			failed = dial.Failure("confirm", err)
			s.run.fail(failed)
			continue
		}
		if _, ok := state.(*amqp.StateAccepted); !ok {
			failed = fmt.Errorf("a message was not accepted: %v", state)
			s.run.fail(failed)
			continue
		}
		s.run.sent.Add(1)
		if s.run.measuring.Load() {
			s.run.confirm.record(time.Since(u.due))
		}
	}
	return failed
}
