package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"

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
