package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func numberText(n uint64) string { return strconv.FormatUint(n, 10) }

// step is one answer of an act that is repeated until it is done.
type step struct {
	Deleted uint64 `json:"deleted"`
	Moved   uint64 `json:"moved"`
	Skipped uint64 `json:"skippedSessions"`
	Before  string `json:"before"`
	Until   string `json:"until"`
	Next    string `json:"next"`
}

type purgeFlags struct {
	ops     opsFlags
	dead    bool
	yes     bool
	session string
	before  string
}

func queuePurgeCommand(f *clientFlags) *cobra.Command {
	var p purgeFlags
	c := &cobra.Command{
		Use: "purge NAME", Short: "Delete the messages that wait in a queue",
		Long: "Deletes what is active and not locked when the command starts, or older than --before. Locked,\n" +
			"deferred and scheduled messages stay, and so do sessions that a receiver holds.",
		Example: "  busbar queue purge orders --yes\n  busbar queue purge orders --dlq --before 2026-01-31T00:00:00Z --yes",
		RunE:    func(c *cobra.Command, args []string) error { return p.run(c, f, args) },
	}
	addOpsFlag(c, &p.ops)
	flags := c.Flags()
	flags.BoolVar(&p.dead, "dlq", false, "purge the dead-letter queue instead")
	flags.BoolVar(&p.yes, "yes", false, "do it; without it the command only says what it would do")
	flags.StringVar(&p.session, "session", "", "only this session")
	flags.StringVar(&p.before, "before", "", "only messages enqueued before this time")
	return c
}

func (p *purgeFlags) run(c *cobra.Command, f *clientFlags, args []string) error {
	i, err := f.inspect(&p.ops, args, p.dead)
	if err != nil {
		return err
	}
	values := url.Values{}
	if p.before != "" {
		if err := checkTime("--before", p.before); err != nil {
			return err
		}
		values.Set("before", p.before)
	}
	if c.Flags().Changed("session") {
		values.Set("session", p.session)
	}
	total, err := i.waiting(c.Context(), p.dead)
	if err != nil {
		return err
	}
	if !p.yes {
		return usageError("%s holds %d messages; add --yes to delete those that the flags choose", i.path, total)
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := newBar(c.ErrOrStderr(), total)
	var deleted, skipped uint64
	for {
		var s step
		if err := i.call(ctx, http.MethodPost, "purge", values, nil, &s); err != nil {
			b.end()
			return fmt.Errorf("after %d messages: %w", deleted, err)
		}
		deleted, skipped = deleted+s.Deleted, skipped+s.Skipped
		b.show(deleted)
		if s.Next == "" {
			break
		}
		values.Set("cursor", s.Next)
		values.Set("before", s.Before) // S-265: what comes meanwhile stays
	}
	b.end()
	text := fmt.Sprintf("deleted %d messages of %s", deleted, i.path)
	if skipped > 0 {
		text += fmt.Sprintf("; %d sessions are held by receivers and were left alone", skipped)
	}
	return printDone(c.OutOrStdout(), f, map[string]any{"entity": i.path, "deleted": deleted, "skippedSessions": skipped}, text)
}

// waiting is how many messages the counters show, deferred ones included.
func (i *inspector) waiting(ctx context.Context, dead bool) (uint64, error) {
	var d struct {
		Counts struct{ Active, DeadLetter uint64 }
	}
	if err := i.call(ctx, http.MethodGet, "description", nil, nil, &d); err != nil {
		return 0, err
	}
	if dead {
		return d.Counts.DeadLetter, nil
	}
	return d.Counts.Active, nil
}

type redriveFlags struct {
	ops                  opsFlags
	reason, session      string
	from, until, cursor  string
	max, rate            uint64
	hasReason, inSession bool
}

func newDeadLetterCommand() *cobra.Command {
	c := &cobra.Command{Use: "dlq", Short: "Work on dead-letter queues", Args: cobra.NoArgs, RunE: showHelp}
	c.AddCommand(redriveCommand(addClientFlags(c)))
	return c
}

func redriveCommand(f *clientFlags) *cobra.Command {
	var r redriveFlags
	c := &cobra.Command{
		Use: "redrive QUEUE", Short: "Send dead letters to their queue again",
		Long: "Every dead letter that the flags choose becomes a new message at the tail of its queue. What dies\n" +
			"again meanwhile is not sent a second time. A command that is interrupted says how to go on.",
		Example: "  busbar dlq redrive orders\n" +
			"  busbar dlq redrive orders --reason MaxDeliveryCountExceeded --rate 100\n" +
			"  busbar dlq redrive orders --from 2026-01-31T00:00:00Z --until 2026-02-01T00:00:00Z --max 500",
		RunE: func(c *cobra.Command, args []string) error {
			r.hasReason, r.inSession = c.Flags().Changed("reason"), c.Flags().Changed("session")
			return r.run(c, f, args)
		},
	}
	addOpsFlag(c, &r.ops)
	flags := c.Flags()
	flags.StringVar(&r.reason, "reason", "", "only messages that died for this reason")
	flags.StringVar(&r.session, "session", "", "only messages of this session")
	flags.StringVar(&r.from, "from", "", "only messages enqueued at this time or later")
	flags.StringVar(&r.until, "until", "", "only messages enqueued before this time")
	flags.StringVar(&r.cursor, "cursor", "", "where an interrupted command stopped")
	flags.Uint64Var(&r.max, "max", 0, "messages to send at most, 0 for all")
	flags.Uint64Var(&r.rate, "rate", 0, "messages per second at most, 0 for as fast as it goes")
	return c
}

// values are the parameters of the first request.
func (r *redriveFlags) values() (url.Values, error) {
	v := url.Values{}
	for flag, text := range map[string]string{"from": r.from, "until": r.until} {
		if text == "" {
			continue
		}
		if err := checkTime("--"+flag, text); err != nil {
			return nil, err
		}
		v.Set(flag, text)
	}
	if r.hasReason {
		v.Set("reason", r.reason)
	}
	if r.inSession {
		v.Set("session", r.session)
	}
	if r.cursor != "" {
		v.Set("cursor", r.cursor)
	}
	return v, nil
}

// redriveBatch is what one request sends; one is one entry of the log.
const redriveBatch = 500

func (r *redriveFlags) run(c *cobra.Command, f *clientFlags, args []string) error {
	i, err := f.inspect(&r.ops, args, true)
	if err != nil {
		return err
	}
	values, err := r.values()
	if err != nil {
		return err
	}
	total, err := i.waiting(c.Context(), true)
	if err != nil {
		return err
	}
	if r.max > 0 {
		total = min(total, r.max)
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := newBar(c.ErrOrStderr(), total)
	moved, err := r.loop(ctx, i, values, b)
	b.end()
	if err != nil {
		return &exitError{codeIn(err), fmt.Errorf("stopped after %d messages (%w); go on with: busbar dlq redrive %s%s",
			moved, err, strings.TrimSuffix(i.path, "/$DeadLetterQueue"), resume(values))}
	}
	return printDone(c.OutOrStdout(), f, map[string]any{"entity": i.path, "moved": moved},
		fmt.Sprintf("sent %d messages of %s again", moved, i.path))
}

// loop repeats the request until there is nothing left, and keeps to the rate.
func (r *redriveFlags) loop(ctx context.Context, i *inspector, values url.Values, b *bar) (moved uint64, err error) {
	began := time.Now()
	for {
		batch := uint64(redriveBatch)
		if r.rate > 0 {
			batch = min(batch, max(1, r.rate/2)) // two steps a second at least, so that it flows
		}
		if r.max > 0 {
			batch = min(batch, r.max-moved)
		}
		values.Set("max", numberText(batch))
		var s step
		if err := i.call(ctx, http.MethodPost, "redrive", values, nil, &s); err != nil {
			return moved, err
		}
		moved += s.Moved
		b.show(moved)
		values.Set("until", s.Until)
		if s.Next == "" || r.max > 0 && moved >= r.max {
			return moved, nil
		}
		values.Set("cursor", s.Next)
		if r.rate == 0 {
			continue
		}
		due := began.Add(time.Duration(float64(moved) / float64(r.rate) * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return moved, ctx.Err()
		}
	}
}

// resume is the rest of the command line that goes on.
func resume(values url.Values) string {
	var out strings.Builder
	for _, name := range []string{"reason", "session", "from", "until", "cursor"} {
		if values.Has(name) {
			fmt.Fprintf(&out, " --%s %s", name, shellText(values.Get(name)))
		}
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

// codeIn keeps the code of an error that is wrapped.
func codeIn(err error) int {
	var known *exitError
	if errors.As(err, &known) {
		return known.code
	}
	return exitFailed
}
