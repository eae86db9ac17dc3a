package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

// startReceivers starts the receiving links.
func (r *measurement) startReceivers(ctx context.Context, conns []*amqp.Conn) {
	for i := range r.cfg.Receivers {
		b := &receiver{run: r, number: i}
		conn := conns[(r.cfg.Senders+i)%len(conns)]
		r.receivers.Go(func() {
			work := b.work
			if r.cfg.Sessions > 0 {
				work = b.workSessions
			}
			if err := work(ctx, conn); err != nil && ctx.Err() == nil {
				r.fail(fmt.Errorf("receiver %d: %w", i, err))
			}
		})
	}
}

// receiver is one receiver; with sessions, of one after the other.
type receiver struct {
	run    *measurement
	number int
}

func (b *receiver) options() *amqp.ReceiverOptions {
	cfg := b.run.cfg
	opt := &amqp.ReceiverOptions{Credit: int32(cfg.Credit),
		RequestedSenderSettleMode: amqp.SenderSettleModeUnsettled.Ptr(),
		SettlementMode:            amqp.ReceiverSettleModeFirst.Ptr()}
	switch cfg.Settle {
	case "second":
		opt.SettlementMode = amqp.ReceiverSettleModeSecond.Ptr()
	case "delete":
		opt.RequestedSenderSettleMode = amqp.SenderSettleModeSettled.Ptr()
	}
	return opt
}

func (b *receiver) work(ctx context.Context, conn *amqp.Conn) error {
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return dial.Failure("begin", err)
	}
	queue := b.run.cfg.queue(b.number)
	link, err := session.NewReceiver(ctx, queue, b.options())
	if err != nil {
		return dial.Failure("open "+queue, err)
	}
	return b.consume(ctx, link, -1, 0)
}

// consume takes most messages from a link (-1: all until ctx ends), or until none comes for idle
// (0: for ever), and settles each. With settlements that are confirmed, several are under way.
func (b *receiver) consume(ctx context.Context, link *amqp.Receiver, most int, idle time.Duration) error {
	cfg := b.run.cfg
	got := make(chan *amqp.Message) // holds nothing: who takes a message settles it
	var workers sync.WaitGroup
	var once sync.Once
	var failed error
	for range cfg.Concurrency {
		workers.Go(func() {
			for m := range got {
				if err := b.settle(ctx, link, m); err != nil {
					once.Do(func() { failed = err })
				}
			}
		})
	}
	err := b.receive(ctx, link, most, idle, got)
	close(got)
	workers.Wait()
	return errors.Join(err, failed)
}

func (b *receiver) receive(ctx context.Context, link *amqp.Receiver, most int, idle time.Duration,
	got chan<- *amqp.Message) error {
	for n := 0; n != most; n++ {
		m, err := receiveWithin(ctx, link, idle)
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				return nil
			}
			return dial.Failure("receive", err)
		}
		b.run.received.Add(1)
		b.time(m)
		if b.run.cfg.Concurrency > 1 {
			got <- m
		} else if err := b.settle(ctx, link, m); err != nil {
			return err
		}
	}
	return nil
}

func receiveWithin(ctx context.Context, link *amqp.Receiver, idle time.Duration) (*amqp.Message, error) {
	if m := link.Prefetched(); m != nil {
		return m, nil
	}
	if idle == 0 {
		return link.Receive(ctx, nil)
	}
	return dial.ReceiveOne(ctx, link, idle)
}

// time records how long a message of this run was under way, from when it was due.
func (b *receiver) time(m *amqp.Message) {
	r := b.run
	if !r.measuring.Load() || !r.cfg.sends() || len(m.Data) == 0 || len(m.Data[0]) < minBody {
		return
	}
	if body := m.Data[0]; binary.LittleEndian.Uint64(body[8:]) == r.id {
		due := time.Duration(binary.LittleEndian.Uint64(body))
		r.endToEnd.record(time.Since(r.start) - due)
	}
}

func (b *receiver) settle(ctx context.Context, link *amqp.Receiver, m *amqp.Message) error {
	r := b.run
	if r.cfg.Settle != "delete" {
		start := time.Now()
		// A run that ends still settles what it has taken.
		limited, cancel := ctx, context.CancelFunc(func() {})
		if r.cfg.Settle == "second" {
			limited, cancel = context.WithTimeout(context.WithoutCancel(ctx), endWait)
		}
		err := link.AcceptMessage(limited, m)
		cancel()
		if err != nil {
			return dial.Failure("complete", err)
		}
		if r.cfg.Settle == "second" && r.measuring.Load() {
			r.settle.record(time.Since(start))
		}
	}
	r.settled.Add(1)
	r.giveSlot()
	return nil
}

// sessionIdle is how long a receiver waits for the next message of a session before it releases it. retryAfter is how
// long it waits before it asks again for a session that it did not get.
const (
	sessionIdle = 200 * time.Millisecond
	retryAfter  = 50 * time.Millisecond
)

// workSessions accepts the sessions that fall to this receiver, one after the other: take messages,
// set the state, release.
func (b *receiver) workSessions(ctx context.Context, conn *amqp.Conn) error {
	cfg := b.run.cfg
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return dial.Failure("begin", err)
	}
	var r *dial.Requests
	if cfg.SessionState {
		w := &dial.Wire{Session: session}
		if r, err = w.OpenRequests(ctx, cfg.queue(b.number)+"/$management"); err != nil {
			return err
		}
	}
	for i := b.number % cfg.Sessions; ctx.Err() == nil; {
		if err := b.holdSession(ctx, session, r, sessionName(i)); err != nil {
			return err
		}
		if i += cfg.Receivers; i >= cfg.Sessions {
			i = b.number % cfg.Sessions
		}
	}
	return nil
}

func (b *receiver) holdSession(ctx context.Context, session *amqp.Session, r *dial.Requests, name string) error {
	cfg := b.run.cfg
	opt := b.options()
	opt.Credit = -1 // exactly what is taken, so that nothing is handed out in vain
	opt.Filters = []amqp.LinkFilter{amqp.NewLinkFilter(dial.SessionFilter, dial.SessionFilterCode, name)}
	link, err := session.NewReceiver(ctx, cfg.queue(b.number), opt)
	if dial.Condition(err) == "com.microsoft:session-cannot-be-locked" { // it is not released yet
		_ = sleepUntil(ctx, time.Now().Add(retryAfter))
		return nil
	}
	if err != nil {
		return dial.Failure("accept "+name, err)
	}
	if err = link.IssueCredit(uint32(cfg.SessionMessages)); err == nil {
		err = b.consume(ctx, link, cfg.SessionMessages, sessionIdle)
	}
	if err == nil && r != nil && ctx.Err() == nil {
		_, err = r.Call(ctx, &amqp.Message{
			ApplicationProperties: map[string]any{"operation": "com.microsoft:set-session-state",
				"associated-link-name": link.LinkName()},
			Value: map[string]any{"session-id": name, "session-state": []byte(name)},
		})
		err = dial.Failure("set the state of "+name, err)
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	return errors.Join(err, dial.Failure("release "+name, link.Close(closing)))
}
