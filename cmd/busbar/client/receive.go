package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

const (
	maxCredit = 100                    // messages asked for at a time
	idleWait  = 300 * time.Millisecond // after a message, for the next one
)

type receiveFlags struct {
	max                      int
	wait                     time.Duration
	session                  string
	nextSession, dead        bool
	remove, abandon, deadLet bool
	complete                 bool
	hold                     bool // defer
	keep                     bool // the locks
	deferred                 bool
	numbers                  []int64
	reason, description      string
	format                   string
}

// NewReceiveCommand makes busbar receive.
func NewReceiveCommand() *cobra.Command {
	var r receiveFlags
	c := &cobra.Command{
		Use:   "receive QUEUE",
		Short: "Receive messages, print them and settle them",
		Long: "Receive messages, print them and settle them. A subscription is named by TOPIC/Subscriptions/NAME.\n\n" +
			"When no message comes, the command says so on standard error, and ends with 0.",
		Example: "  busbar receive orders --max 5\n  busbar receive trades/Subscriptions/eu --wait 1m\n" +
			"  busbar receive orders --deadletter --reason BadJSON",
	}
	f := dial.AddFlags(c)
	flags := c.Flags()
	flags.IntVar(&r.max, "max", 1, "messages to receive at most")
	flags.DurationVar(&r.wait, "wait", 5*time.Second, "how long to wait for the first message or session")
	flags.StringVar(&r.session, "session", "", "receive from this session")
	flags.BoolVar(&r.nextSession, "next-session", false, "receive from the next session that has messages")
	flags.BoolVar(&r.dead, "dlq", false, "receive from the dead-letter queue")
	flags.BoolVar(&r.remove, "delete", false, "receive and delete: nothing is locked, nothing comes back")
	flags.BoolVar(&r.complete, "complete", true, "complete each message once it is printed; with =false all are given back at the end, and their counts stay")
	flags.BoolVar(&r.abandon, "abandon", false, "give all messages back at the end, with one more delivery counted")
	flags.BoolVar(&r.deadLet, "deadletter", false, "move each message to the dead-letter queue")
	flags.StringVar(&r.reason, "reason", "", "reason, with --deadletter")
	flags.StringVar(&r.description, "description", "", "error description, with --deadletter")
	flags.BoolVar(&r.hold, "defer", false, "put each message aside: receive --number takes it, and nothing else does")
	flags.BoolVar(&r.keep, "keep-locks", false, "print the tokens of the locks and leave the messages locked: busbar settle and busbar renew take the tokens")
	flags.BoolVar(&r.deferred, "deferred", false, "receive deferred messages, as many as --max")
	flags.Int64SliceVar(&r.numbers, "number", nil, "receive the deferred message with this sequence number; may be repeated")
	flags.StringVarP(&r.format, "format", "f", "", formatUsage)
	c.MarkFlagsMutuallyExclusive("session", "next-session")
	c.MarkFlagsMutuallyExclusive("delete", "abandon", "deadletter", "complete", "defer", "keep-locks")
	for _, name := range []string{"session", "next-session", "deferred", "number"} { // their locks end with the link, or are the session's
		c.MarkFlagsMutuallyExclusive("keep-locks", name)
	}
	c.MarkFlagsMutuallyExclusive("deferred", "number")
	c.RunE = func(c *cobra.Command, args []string) error {
		t, err := f.Target()
		if err != nil {
			return err
		}
		queue, rest, err := t.Queue(args)
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			return exit.Usagef("receive takes one queue")
		}
		if r.max < 1 {
			return exit.Usagef("--max must be at least 1")
		}
		if err := r.checkNumbers(); err != nil {
			return err
		}
		return r.run(c, t, f, queue)
	}
	return c
}

func (r *receiveFlags) run(c *cobra.Command, t *dial.Target, f *dial.Flags, queue string) error {
	path := queue
	if r.dead {
		path += "/$DeadLetterQueue"
	}
	if r.deferred || len(r.numbers) > 0 {
		return r.byNumber(c, t, f, path)
	}
	out, err := r.printer(c, f)
	if err != nil {
		return err
	}
	w, err := dial.Connect(c.Context(), t, path, f.Timeout)
	if err != nil {
		return err
	}
	defer w.Close()
	in, err := r.open(c, w, path)
	if err != nil {
		if r.nextSession && dial.NothingCame(err) {
			fmt.Fprintf(c.ErrOrStderr(), "no session with messages in %v\n", r.wait)
			return nil
		}
		return err
	}
	taking := &receiving{receiveFlags: r, w: w, in: in, out: out}
	if err = taking.run(c.Context()); err == nil && taking.got == 0 {
		fmt.Fprintf(c.ErrOrStderr(), "no message in %v\n", r.wait)
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.Limit)
	defer cancel()
	return errors.Join(err, dial.Failure("close", in.Close(ctx)))
}

// printer prints what is received. A library has read the messages by then, and lost some of their types.
func (r *receiveFlags) printer(c *cobra.Command, f *dial.Flags) (*messagePrinter, error) {
	if f.Form == "jsonl" {
		return nil, exit.Usagef("receive does not keep every type of a message: take -o json, or copy the messages by busbar " +
			"messages export and then receive them")
	}
	return newMessagePrinter(c.OutOrStdout(), f, r.format)
}

// open attaches the receiver. On a session queue the broker answers once the session is locked.
func (r *receiveFlags) open(c *cobra.Command, w *dial.Wire, path string) (*amqp.Receiver, error) {
	// In the second mode the library waits for what the broker makes of a settlement (S-151).
	opt := &amqp.ReceiverOptions{Credit: -1, SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()}
	opt.RequestedSenderSettleMode = amqp.SenderSettleModeUnsettled.Ptr()
	if r.remove { // nothing is settled
		opt.SettlementMode = amqp.ReceiverSettleModeFirst.Ptr()
		opt.RequestedSenderSettleMode = amqp.SenderSettleModeSettled.Ptr()
	}
	limit := w.Limit
	if c.Flags().Changed("session") {
		opt.Filters = []amqp.LinkFilter{amqp.NewLinkFilter(dial.SessionFilter, dial.SessionFilterCode, r.session)}
	}
	if r.nextSession {
		opt.Filters = []amqp.LinkFilter{amqp.NewLinkFilter(dial.SessionFilter, dial.SessionFilterCode, nil)}
		opt.Properties = map[string]any{"com.microsoft:timeout": uint32(r.wait.Milliseconds())}
		limit += r.wait
	}
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	in, err := w.Session.NewReceiver(ctx, path, opt)
	return in, dial.Failure("open "+path, err)
}

// receiving is one run of the command on its link.
type receiving struct {
	*receiveFlags
	w    *dial.Wire
	in   *amqp.Receiver
	out  *messagePrinter
	got  int             // messages that were printed and settled, or are held
	held []*amqp.Message // printed, and given back at the end
}

// run receives, and gives back at the end, in order, what is not to be settled or was not printed.
// A refusal of the broker ends it: what is settled after it could be out of order.
func (r *receiving) run(ctx context.Context) error {
	err := r.take(ctx)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.w.Limit)
	defer cancel()
	if err != nil {
		err = errors.Join(err, r.letGo(ending))
	}
	for _, m := range r.held {
		one, done := context.WithTimeout(context.WithoutCancel(ctx), r.w.Limit)
		err = errors.Join(err, r.giveBack(one, m))
		done()
	}
	return err
}

// take receives until it has enough or nothing more comes. A message that arrives while credit is taken back is
// settled like the rest, so that nothing stays locked for nobody.
func (r *receiving) take(ctx context.Context) error {
	wait := r.wait
	for r.got < r.max {
		credit := min(r.max-r.got, maxCredit)
		if err := r.in.IssueCredit(uint32(credit)); err != nil {
			return dial.Failure("receive", err)
		}
		for n := range credit {
			m, err := dial.ReceiveOne(ctx, r.in, wait)
			if dial.NothingCame(err) {
				return r.drain(ctx, credit-n)
			}
			if err != nil {
				return dial.Failure("receive", err)
			}
			if err := r.finish(ctx, m); err != nil {
				return err
			}
			wait = idleWait
		}
	}
	return nil
}

func (r *receiving) drain(ctx context.Context, most int) error {
	limited, cancel := context.WithTimeout(ctx, r.w.Limit)
	defer cancel()
	if err := r.in.DrainCredit(limited, nil); err != nil {
		return dial.Failure("drain", err)
	}
	for range most {
		m := r.in.Prefetched()
		if m == nil {
			return nil
		}
		if err := r.finish(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// letGo releases what has arrived and was not printed. A link that is broken has nothing to release:
// the broker gives the messages back by itself.
func (r *receiving) letGo(ctx context.Context) error {
	if r.remove || r.in.DrainCredit(ctx, nil) != nil {
		return nil
	}
	for m := r.in.Prefetched(); m != nil; m = r.in.Prefetched() {
		if err := r.in.ReleaseMessage(ctx, m); err != nil {
			return settled("release", m, err)
		}
	}
	return nil
}

// finish prints a message and then settles it: what could not be shown comes back.
func (r *receiving) finish(ctx context.Context, m *amqp.Message) error {
	s := describe(m, true)
	if r.keep {
		s.LockToken = lockToken(m)
	}
	if err := r.out.print(s); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	r.got++
	ctx, cancel := context.WithTimeout(ctx, r.w.Limit)
	defer cancel()
	switch {
	case r.remove, r.keep:
		return nil
	case r.deadLet:
		info := map[string]any{}
		if r.reason != "" {
			info["DeadLetterReason"] = r.reason
		}
		if r.description != "" {
			info["DeadLetterErrorDescription"] = r.description
		}
		return settled("dead-letter", m, r.in.RejectMessage(ctx, m, &amqp.Error{
			Condition: "com.microsoft:dead-letter", Info: info}))
	case r.hold:
		return settled("defer", m, r.in.ModifyMessage(ctx, m, &amqp.ModifyMessageOptions{UndeliverableHere: true}))
	case r.abandon, !r.complete: // given back now, it would be the next one to arrive
		m.Data = nil // it is printed
		r.held = append(r.held, m)
		return nil
	}
	return settled("complete", m, r.in.AcceptMessage(ctx, m))
}

// giveBack abandons a message, or makes it as if it had never been delivered (RUL-15).
func (r *receiving) giveBack(ctx context.Context, m *amqp.Message) error {
	if r.abandon {
		return settled("abandon", m, r.in.ModifyMessage(ctx, m, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
	}
	return settled("release", m, r.in.ReleaseMessage(ctx, m))
}

// settled says which message a settlement was refused for, and what becomes of it (S-151).
func settled(verb string, m *amqp.Message, err error) error {
	if err == nil {
		return nil
	}
	what := verb
	if s := describe(m, true); s.SequenceNumber != 0 {
		what = fmt.Sprintf("%s message %d", verb, s.SequenceNumber)
	}
	switch dial.Condition(err) {
	case dial.MessageLockLost, dial.SessionLockLost:
		return fmt.Errorf("%w; the message was given back when its lock ended", dial.Failure(what, err))
	}
	return fmt.Errorf("%w; the message comes back when its lock ends", dial.Failure(what, err))
}
