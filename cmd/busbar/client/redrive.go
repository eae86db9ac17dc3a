package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// redriveFlags choose messages that go somewhere else: dead letters to their queue again, or any
// messages to another entity.
type redriveFlags struct {
	ops                 opsFlags
	reason, session     string
	from, until, cursor string
	to                  string
	max, rate           uint64
	wait                time.Duration
	hasReason           bool
	dead                bool
	line                string // the command, as it is repeated
}

func redriveCommand(f *dial.Flags) *cobra.Command {
	var r redriveFlags
	var one numberedFlags
	c := &cobra.Command{
		Use: "redrive QUEUE [NUMBER...]", Short: "Send dead letters to their queue again, or to another",
		Long: "Every dead letter that the flags choose becomes a new message at the tail of its queue, or with --to\n" +
			"of another queue or topic, in any partition. What dies again meanwhile is not sent a second time.\n" +
			"No crash loses or doubles a message. A command that is interrupted says how to go on.\n\n" +
			"A destination of --to that detects duplicates drops messages whose ids it has seen within its window.\n" +
			"Dead letters that go to their own queue are never taken for duplicates.\n\n" +
			"With numbers the messages are sent one by one.",
		Example: "  busbar dlq redrive orders\n" +
			"  busbar dlq redrive orders 4711 4712\n" +
			"  busbar dlq redrive orders --filter \"sys.DeliveryCount > 3 AND region = 'eu'\" --dry-run\n" +
			"  busbar dlq redrive orders --reason MaxDeliveryCountExceeded --rate 100\n" +
			"  busbar dlq redrive orders --to quarantine\n" +
			"  busbar dlq redrive orders --from 2026-01-31T00:00:00Z --until 2026-02-01T00:00:00Z --max 500",
		RunE: func(c *cobra.Command, args []string) error {
			if one.filter != "" || len(args) > 1 {
				for _, name := range []string{"reason", "session", "from", "until", "cursor"} {
					if c.Flags().Changed(name) {
						return exit.Usagef("--%s does not go with numbers or --filter: say it in the filter", name)
					}
				}
				one.dead, one.ops.base, one.to, one.max, one.rate = true, r.ops.base, r.to, r.max, r.rate
				return one.run(c, f, redrives, args)
			}
			if one.dry {
				return exit.Usagef("--dry-run goes with --filter; busbar dlq stats counts all dead letters")
			}
			r.dead, r.hasReason, r.line = true, c.Flags().Changed("reason"), "dlq redrive"
			return r.run(c, f, args)
		},
	}
	r.add(c, "send")
	c.Flags().StringVar(&one.filter, "filter", "", filterUsage)
	c.Flags().BoolVar(&one.dry, "dry-run", false, "say how many messages --filter selects, and do nothing")
	c.Flags().StringVar(&r.reason, "reason", "", "only messages that died for this reason")
	c.Flags().StringVar(&r.to, "to", "", "queue or topic to send them to, instead of their own")
	return c
}

func queueMoveCommand(f *dial.Flags) *cobra.Command {
	var r redriveFlags
	var one numberedFlags
	c := &cobra.Command{
		Use: "move SOURCE DESTINATION", Short: "Move the messages that wait in a queue to another queue or topic",
		Long: "Moves what is active and not locked, in order, to the tail of another queue or topic, in any partition.\n" +
			"Locked, deferred and scheduled messages stay, and so do sessions that a receiver holds. Each message is\n" +
			"a new one there. No crash loses or doubles one; a command that is interrupted says how to go on. What\n" +
			"the destination refuses is in SOURCE/$Transfer/$DeadLetterQueue. A destination that detects duplicates\n" +
			"drops messages whose ids it has seen within its window.",
		Example: "  busbar queue move orders orders-archive\n" +
			"  busbar queue move orders urgent --session s1\n" +
			"  busbar queue move orders eu --filter \"region = 'eu'\" --dry-run\n" +
			"  busbar queue move orders slow --from 2026-01-31T00:00:00Z --rate 200",
		RunE: func(c *cobra.Command, args []string) error {
			if err := exactly(2)(c, args); err != nil {
				return err
			}
			if one.filter != "" {
				for _, name := range []string{"session", "from", "until", "cursor"} {
					if c.Flags().Changed(name) {
						return exit.Usagef("--%s does not go with --filter: say it in the filter", name)
					}
				}
				one.ops.base, one.to, one.max, one.rate = r.ops.base, args[1], r.max, r.rate
				return one.run(c, f, moves, args[:1])
			}
			if one.dry {
				return exit.Usagef("--dry-run goes with --filter; busbar queue show counts all messages")
			}
			r.to, r.line = args[1], "queue move"
			return r.run(c, f, args[:1])
		},
	}
	r.add(c, "move")
	c.Flags().StringVar(&one.filter, "filter", "", filterUsage)
	c.Flags().BoolVar(&one.dry, "dry-run", false, "say how many messages --filter selects, and do nothing")
	return c
}

// add adds the flags of both commands.
func (r *redriveFlags) add(c *cobra.Command, verb string) {
	addOpsFlag(c, &r.ops)
	flags := c.Flags()
	flags.StringVar(&r.session, "session", "", "only messages of this session")
	flags.StringVar(&r.from, "from", "", "only messages enqueued at this time or later")
	flags.StringVar(&r.until, "until", "", "only messages enqueued before this time")
	flags.StringVar(&r.cursor, "cursor", "", "where an interrupted command stopped")
	flags.Uint64Var(&r.max, "max", 0, "messages to "+verb+" at most, 0 for all")
	flags.Uint64Var(&r.rate, "rate", 0, "messages per second at most, 0 for as fast as it goes")
	flags.DurationVar(&r.wait, "wait", 10*time.Second, "how long to wait until another entity has what was sent to it")
}

// values are the parameters of the first request.
func (r *redriveFlags) values(c *cobra.Command) (url.Values, error) {
	v := url.Values{}
	if err := setTimes(v, map[string]string{"from": r.from, "until": r.until}); err != nil {
		return nil, err
	}
	if r.hasReason {
		v.Set("reason", r.reason)
	}
	if c.Flags().Changed("session") {
		v.Set("session", r.session)
	}
	if r.cursor != "" {
		v.Set("cursor", r.cursor)
	}
	if r.to != "" {
		v.Set("to", r.to)
	}
	return v, nil
}

// redriveBatch is what one request sends; one is one entry of the log.
const redriveBatch = 500

func (r *redriveFlags) run(c *cobra.Command, f *dial.Flags, args []string) error {
	i, err := inspect(f, &r.ops, args, r.dead)
	if err != nil {
		return err
	}
	values, err := r.values(c)
	if err != nil {
		return err
	}
	total, err := i.waiting(c.Context(), r.dead)
	if err != nil {
		return err
	}
	if r.max > 0 {
		total = min(total, r.max)
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := newBar(c.ErrOrStderr(), total)
	act := "move"
	if r.dead {
		act = "redrive"
	}
	moved, err := r.loop(ctx, values, b, func(ctx context.Context) (s step, err error) {
		return s, i.call(ctx, http.MethodPost, act, values, nil, &s)
	})
	b.end()
	if err != nil {
		return exit.With(exit.Code(err), fmt.Errorf("stopped after %d messages (%w); go on with: busbar %s %s%s",
			moved, err, r.line, strings.TrimSuffix(i.path, "/$DeadLetterQueue"), r.resume(values, moved)))
	}
	done := map[string]any{"entity": i.path, "moved": moved}
	text := fmt.Sprintf("sent %s of %s again", dial.Plural(moved, "message"), i.path)
	if r.to != "" {
		done["to"] = r.to
		text = fmt.Sprintf("moved %s of %s to %s", dial.Plural(moved, "message"), i.path, r.to)
		left, known := i.arrived(ctx, r.wait)
		if known {
			done["onTheirWay"] = left
		}
		switch {
		case !known:
			text += "; how many are still on their way from there, nobody could tell"
		case left > 0:
			text += fmt.Sprintf("; %d are still on their way from there", left)
		}
	}
	return dial.PrintDone(c.OutOrStdout(), f, done, text)
}

// arrivePause lies between two looks at what is on its way.
const arrivePause = 100 * time.Millisecond

// arrived waits until nothing is on its way from the entity to others. It returns how many messages were at the last
// look, if there was one. Messages of clients count, too.
func (i *inspector) arrived(ctx context.Context, limit time.Duration) (left uint64, known bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		counts, err := i.counts(ctx)
		if err == nil {
			left, known = counts.Transfer, true
		}
		if err == nil && left == 0 {
			return 0, true
		}
		select {
		case <-time.After(arrivePause):
		case <-ctx.Done():
			return left, known
		}
	}
}

// loop sends in rounds what the values choose.
func (r *redriveFlags) loop(ctx context.Context, values url.Values, b *bar,
	next func(context.Context) (step, error)) (moved uint64, err error) {
	all, err := rounds{batch: redriveBatch, max: r.max, rate: r.rate}.run(ctx, values, b, next)
	return all.Moved, err
}

// resume is the rest of the command line that goes on behind moved messages: no further, and no faster,
// than the one that was stopped.
func (r *redriveFlags) resume(values url.Values, moved uint64) string {
	var out strings.Builder
	if !r.dead {
		out.WriteString(" " + shellText(r.to))
	}
	for _, name := range []string{"to", "reason", "session", "from", "until", "cursor"} {
		if values.Has(name) && (name != "to" || r.dead) {
			fmt.Fprintf(&out, " --%s %s", name, shellText(values.Get(name)))
		}
	}
	if r.max > 0 {
		fmt.Fprintf(&out, " --max %d", r.max-min(moved, r.max))
	}
	if r.rate > 0 {
		fmt.Fprintf(&out, " --rate %d", r.rate)
	}
	return out.String()
}

// shellText quotes a text for a shell if it needs that.
func shellText(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
