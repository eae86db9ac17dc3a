package client

import (
	"cmp"
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

// step is one answer of an act that is repeated until it is done.
type step struct {
	Deleted uint64 `json:"deleted"`
	Moved   uint64 `json:"moved"`
	Skipped uint64 `json:"skippedSessions"`
	Before  string `json:"before"`
	Until   string `json:"until"`
	Next    string `json:"next"`
	Left    uint64 `json:"left"`   // with a filter: selected, and held or gone
	Failed  uint64 `json:"failed"` // with a filter: messages on which it failed
	Fault   string `json:"fault"`
}

// add adds the numbers of another step, and keeps the first fault.
func (s *step) add(o *step) {
	s.Deleted, s.Moved, s.Skipped = s.Deleted+o.Deleted, s.Moved+o.Moved, s.Skipped+o.Skipped
	s.Left, s.Failed, s.Fault = s.Left+o.Left, s.Failed+o.Failed, cmp.Or(s.Fault, o.Fault)
}

type purgeFlags struct {
	ops     opsFlags
	dead    bool
	yes     bool
	session string
	reason  string
	from    string
	before  string
	rate    uint64
}

func queuePurgeCommand(f *dial.Flags) *cobra.Command {
	var p purgeFlags
	var one numberedFlags
	c := &cobra.Command{
		Use: "purge NAME", Short: "Delete the messages that wait in a queue",
		Long: "Deletes what is active and not locked when the command starts, or older than --before. Locked,\n" +
			"deferred and scheduled messages stay, and so do sessions that a receiver holds. Of dead letters those\n" +
			"may be chosen that died for a --reason, in a --session, or were enqueued --from a time on; with --filter\n" +
			"any messages. A command that is interrupted says how to go on without what has come meanwhile.",
		Example: "  busbar queue purge orders --yes\n  busbar queue purge orders --dlq --before 2026-01-31T00:00:00Z --yes\n" +
			"  busbar queue purge orders --dlq --reason MaxDeliveryCountExceeded --yes",
		RunE: func(c *cobra.Command, args []string) error {
			if one.filter == "" {
				return p.run(c, f, args)
			}
			for _, name := range []string{"session", "reason", "from", "before"} {
				if c.Flags().Changed(name) {
					return exit.Usagef("--%s does not go with --filter: say it in the filter", name)
				}
			}
			one.dead, one.yes, one.rate, one.ops.base = p.dead, p.yes, p.rate, p.ops.base
			return one.run(c, f, purges, args)
		},
	}
	addOpsFlag(c, &p.ops)
	flags := c.Flags()
	flags.BoolVar(&p.dead, "dlq", false, "purge the dead-letter queue instead")
	flags.BoolVar(&p.yes, "yes", false, "do it; without it the command only says what it would do")
	flags.StringVar(&p.session, "session", "", "only this session")
	flags.StringVar(&p.reason, "reason", "", "with --dlq only those that died for this reason")
	flags.StringVar(&one.filter, "filter", "", filterUsage)
	flags.StringVar(&p.from, "from", "", "with --dlq only messages enqueued from this time on")
	flags.StringVar(&p.before, "before", "", "only messages enqueued before this time")
	flags.Uint64Var(&p.rate, "rate", 0, "messages per second at most, over the whole; 0 for as fast as it goes")
	return c
}

func (p *purgeFlags) run(c *cobra.Command, f *dial.Flags, args []string) error {
	i, err := inspect(f, &p.ops, args, p.dead)
	if err != nil {
		return err
	}
	values := url.Values{}
	if err := setTimes(values, map[string]string{"from": p.from, "before": p.before}); err != nil {
		return err
	}
	for name, text := range map[string]string{"session": p.session, "reason": p.reason} {
		if c.Flags().Changed(name) {
			values.Set(name, text)
		}
	}
	if !p.dead && (values.Has("reason") || values.Has("from")) {
		return exit.Usagef("--reason and --from choose dead letters; add --dlq")
	}
	total, err := i.waiting(c.Context(), p.dead)
	if err != nil {
		return err
	}
	if !p.yes {
		return exit.Usagef("%s holds %d messages; add --yes to delete those that the flags choose", i.path, total)
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := newBar(c.ErrOrStderr(), total)
	deleted, skipped, err := p.loop(ctx, values, b, func(ctx context.Context) (s step, err error) {
		return s, i.call(ctx, http.MethodPost, "purge", values, nil, &s)
	})
	b.end()
	if err != nil {
		return exit.With(exit.Code(err), fmt.Errorf("stopped after %d messages (%w); go on with: busbar queue purge %s%s",
			deleted, err, strings.TrimSuffix(i.path, "/$DeadLetterQueue"), p.resume(values)))
	}
	text := fmt.Sprintf("deleted %s of %s", dial.Plural(deleted, "message"), i.path)
	if skipped > 0 {
		text += fmt.Sprintf("; %d sessions are held by receivers and were left alone", skipped)
	}
	return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"entity": i.path, "deleted": deleted, "skippedSessions": skipped}, text)
}

// setTimes puts the times that were given among the parameters. The flags have the parameters' names.
func setTimes(v url.Values, times map[string]string) error {
	for name, text := range times {
		if text == "" {
			continue
		}
		if err := checkTime("--"+name, text); err != nil {
			return err
		}
		v.Set(name, text)
	}
	return nil
}

// purgeBatch is what one request deletes at most: one entry of the log.
const purgeBatch = 4_000

// loop deletes in rounds what the values choose.
func (p *purgeFlags) loop(ctx context.Context, values url.Values, b *bar,
	next func(context.Context) (step, error)) (deleted, skipped uint64, err error) {
	all, err := rounds{batch: purgeBatch, rate: p.rate}.run(ctx, values, b, next)
	return all.Deleted, all.Skipped, err
}

// rounds repeats a request to the operations port that does something to some messages at a time.
type rounds struct {
	batch uint64 // messages of one request at most
	max   uint64 // of all requests, 0 for all messages
	rate  uint64 // messages per second at most, 0 for as fast as it goes
}

// run repeats the request, which next does with those values, until there is nothing left, and keeps to the rate. Messages
// that come after the first request stay (S-265). It returns the sums, with an error too.
func (r rounds) run(ctx context.Context, values url.Values, b *bar, next func(context.Context) (step, error)) (all step, err error) {
	began := time.Now()
	for {
		done := all.Moved + all.Deleted
		batch := batchOf(r.batch, r.rate)
		if r.max > 0 {
			batch = min(batch, r.max-done)
		}
		values.Set("max", numberText(batch))
		s, err := next(ctx)
		if err != nil {
			return all, err
		}
		all.add(&s)
		done = all.Moved + all.Deleted
		b.show(done)
		for name, bound := range map[string]string{"before": s.Before, "until": s.Until} {
			if bound != "" {
				values.Set(name, bound)
			}
		}
		if s.Next == "" || r.max > 0 && done >= r.max {
			return all, nil
		}
		values.Set("cursor", s.Next)
		if err := pace(ctx, began, done, r.rate); err != nil {
			return all, err
		}
	}
}

// resume is the rest of the command line that deletes what is left. It needs no cursor: what was deleted
// is not there.
func (p *purgeFlags) resume(values url.Values) string {
	var out strings.Builder
	if p.dead {
		out.WriteString(" --dlq")
	}
	for _, name := range []string{"reason", "session", "from", "before"} {
		if values.Has(name) {
			fmt.Fprintf(&out, " --%s %s", name, shellText(values.Get(name)))
		}
	}
	if p.rate > 0 {
		fmt.Fprintf(&out, " --rate %d", p.rate)
	}
	return out.String() + " --yes"
}

// batchOf is how many messages one request concerns: all that it may, or at a rate so few that two steps
// a second flow.
func batchOf(most, rate uint64) uint64 {
	if rate == 0 {
		return most
	}
	return min(most, max(1, rate/2))
}

// pace waits until so many messages are due at the rate, 0 for none.
func pace(ctx context.Context, began time.Time, done, rate uint64) error {
	if rate == 0 {
		return ctx.Err()
	}
	due := began.Add(time.Duration(float64(done) / float64(rate) * float64(time.Second)))
	select {
	case <-time.After(time.Until(due)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waiting is how many messages the counters show, deferred ones included.
func (i *inspector) waiting(ctx context.Context, dead bool) (uint64, error) {
	counts, err := i.counts(ctx)
	if dead {
		return counts.DeadLetter, err
	}
	return counts.Active, err
}

// counts are the counters of the entity, without those of shares that do not answer.
func (i *inspector) counts(ctx context.Context) (counts struct{ Active, DeadLetter, Transfer uint64 }, err error) {
	d := struct{ Counts any }{&counts}
	err = i.call(ctx, http.MethodGet, "description", nil, nil, &d)
	return counts, err
}
