package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"
)

const (
	maxCredit = 100                    // messages asked for at a time
	idleWait  = 300 * time.Millisecond // after a message, for the next one

	sessionFilter     = "com.microsoft:session-filter"
	sessionFilterCode = 0x000000137000000C
)

type receiveFlags struct {
	max                      int
	wait                     time.Duration
	session                  string
	nextSession, dead        bool
	remove, abandon, deadLet bool
	complete                 bool
	reason, description      string
}

func newReceiveCommand() *cobra.Command {
	var r receiveFlags
	c := &cobra.Command{
		Use:   "receive QUEUE",
		Short: "Receive messages, print them and settle them",
	}
	f := addClientFlags(c)
	flags := c.Flags()
	flags.IntVar(&r.max, "max", 1, "messages to receive at most")
	flags.DurationVar(&r.wait, "wait", 5*time.Second, "how long to wait for the first message or session")
	flags.StringVar(&r.session, "session", "", "receive from this session")
	flags.BoolVar(&r.nextSession, "next-session", false, "receive from the next session that has messages")
	flags.BoolVar(&r.dead, "dlq", false, "receive from the dead-letter queue")
	flags.BoolVar(&r.remove, "delete", false, "receive and delete: nothing is locked, nothing comes back")
	flags.BoolVar(&r.complete, "complete", true, "complete each message once it is printed; with =false it is given back and counts nothing")
	flags.BoolVar(&r.abandon, "abandon", false, "give each message back")
	flags.BoolVar(&r.deadLet, "deadletter", false, "move each message to the dead-letter queue")
	flags.StringVar(&r.reason, "reason", "", "reason, with --deadletter")
	flags.StringVar(&r.description, "description", "", "error description, with --deadletter")
	c.MarkFlagsMutuallyExclusive("session", "next-session")
	c.MarkFlagsMutuallyExclusive("delete", "abandon", "deadletter", "complete")
	c.RunE = func(c *cobra.Command, args []string) error {
		t, err := f.target()
		if err != nil {
			return err
		}
		queue, rest, err := t.queue(args)
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			return usageError("receive takes one queue")
		}
		if r.max < 1 {
			return usageError("--max must be at least 1")
		}
		return r.run(c, t, f, queue)
	}
	return c
}

func (r *receiveFlags) run(c *cobra.Command, t *target, f *clientFlags, queue string) error {
	path := queue
	if r.dead {
		path += "/$DeadLetterQueue"
	}
	w, err := dialWire(c.Context(), t, path, f.timeout)
	if err != nil {
		return err
	}
	defer w.close()
	in, err := r.open(c, w, path)
	if err != nil {
		if r.nextSession && nothingCame(err) {
			return nil
		}
		return err
	}
	p := &messagePrinter{w: c.OutOrStdout(), json: f.output == "json"}
	err = r.take(c.Context(), w, in, p)
	ctx, cancel := context.WithTimeout(context.Background(), w.limit)
	defer cancel()
	return errors.Join(err, wireError("close", in.Close(ctx)))
}

// open attaches the receiver. On a session queue the broker answers once the session is locked.
func (r *receiveFlags) open(c *cobra.Command, w *wire, path string) (*amqp.Receiver, error) {
	opt := &amqp.ReceiverOptions{Credit: -1, SettlementMode: amqp.ReceiverSettleModeFirst.Ptr()}
	opt.RequestedSenderSettleMode = amqp.SenderSettleModeUnsettled.Ptr()
	if r.remove {
		opt.RequestedSenderSettleMode = amqp.SenderSettleModeSettled.Ptr()
	}
	limit := w.limit
	if c.Flags().Changed("session") {
		opt.Filters = []amqp.LinkFilter{amqp.NewLinkFilter(sessionFilter, sessionFilterCode, r.session)}
	}
	if r.nextSession {
		opt.Filters = []amqp.LinkFilter{amqp.NewLinkFilter(sessionFilter, sessionFilterCode, nil)}
		opt.Properties = map[string]any{"com.microsoft:timeout": uint32(r.wait.Milliseconds())}
		limit += r.wait
	}
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	in, err := w.session.NewReceiver(ctx, path, opt)
	return in, wireError("open "+path, err)
}

// take receives until it has enough or nothing more comes. What arrives while credit is taken back
// is settled like the rest, so that nothing stays locked for nobody.
func (r *receiveFlags) take(ctx context.Context, w *wire, in *amqp.Receiver, p *messagePrinter) error {
	got, wait := 0, r.wait
	for got < r.max {
		credit := min(r.max-got, maxCredit)
		if err := in.IssueCredit(uint32(credit)); err != nil {
			return wireError("receive", err)
		}
		for n := range credit {
			m, err := receiveOne(ctx, in, wait)
			if nothingCame(err) {
				return r.drain(ctx, w, in, p, credit-n)
			}
			if err != nil {
				return wireError("receive", err)
			}
			if err := r.finish(ctx, w, in, m, p); err != nil {
				return err
			}
			got++
			wait = idleWait
		}
	}
	return nil
}

func receiveOne(ctx context.Context, in *amqp.Receiver, wait time.Duration) (*amqp.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return in.Receive(ctx, nil)
}

func (r *receiveFlags) drain(ctx context.Context, w *wire, in *amqp.Receiver, p *messagePrinter, most int) error {
	limited, cancel := context.WithTimeout(ctx, w.limit)
	defer cancel()
	if err := in.DrainCredit(limited, nil); err != nil {
		return wireError("drain", err)
	}
	for range most {
		m := in.Prefetched()
		if m == nil {
			return nil
		}
		if err := r.finish(ctx, w, in, m, p); err != nil {
			return err
		}
	}
	return nil
}

// finish prints a message and then settles it: what could not be shown comes back.
func (r *receiveFlags) finish(ctx context.Context, w *wire, in *amqp.Receiver, m *amqp.Message, p *messagePrinter) error {
	if err := p.print(describe(m, true)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, w.limit)
	defer cancel()
	switch {
	case r.remove:
		return nil
	case r.abandon:
		return wireError("abandon", in.ModifyMessage(ctx, m, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
	case !r.complete && !r.deadLet: // as if it had never been delivered (RUL-15)
		return wireError("release", in.ReleaseMessage(ctx, m))
	case r.deadLet:
		info := map[string]any{}
		if r.reason != "" {
			info["DeadLetterReason"] = r.reason
		}
		if r.description != "" {
			info["DeadLetterErrorDescription"] = r.description
		}
		return wireError("dead-letter", in.RejectMessage(ctx, m, &amqp.Error{
			Condition: "com.microsoft:dead-letter", Info: info}))
	}
	return wireError("complete", in.AcceptMessage(ctx, m))
}
