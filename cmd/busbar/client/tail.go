package client

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

type tailFlags struct {
	peekFlags
	every time.Duration
	start bool
}

// NewTailCommand makes busbar tail.
func NewTailCommand() *cobra.Command {
	var p tailFlags
	c := &cobra.Command{
		Use:   "tail QUEUE",
		Short: "Print messages as they come, without locking or removing them",
		Long: "Print messages as they come, without locking or removing them. A subscription is named by\n" +
			"TOPIC/Subscriptions/NAME. What was there before is not printed, unless " +
			"--from-start or --from asks for it.\n\nThe command looks again and again. A message that is received and completed " +
			"between two looks is not seen; the history of a queue has those, too: busbar queue options QUEUE --accepted-history.",
		Example: "  busbar tail orders\n  busbar tail orders --filter \"region = 'eu'\" -f '%d %k %v\\n'\n" +
			"  busbar tail trade/Subscriptions/eu --dlq -o jsonl",
	}
	f := dial.AddFlags(c)
	flags := c.Flags()
	flags.Int64Var(&p.from, "from", 0, "sequence number to begin with")
	flags.BoolVar(&p.start, "from-start", false, "begin with what is there")
	flags.IntVar(&p.max, "max", 0, "end behind so many messages, 0 for never")
	flags.StringVar(&p.session, "session", "", "only messages of this session")
	flags.StringVar(&p.filter, "filter", "", filterUsage)
	flags.StringVarP(&p.format, "format", "f", "", formatUsage)
	flags.BoolVar(&p.dead, "dlq", false, "look into the dead-letter queue")
	flags.DurationVar(&p.every, "every", 250*time.Millisecond, "the pause between two looks")
	c.MarkFlagsMutuallyExclusive("from", "from-start")
	c.RunE = func(c *cobra.Command, args []string) error {
		t, err := f.Target()
		if err != nil {
			return err
		}
		queue, rest, err := t.Queue(args)
		switch {
		case err != nil:
			return err
		case len(rest) > 0:
			return exit.Usagef("tail takes one queue")
		case p.max < 0 || p.from < 0:
			return exit.Usagef("--max and --from must not be negative")
		case p.every < 10*time.Millisecond:
			return exit.Usagef("--every is %v, want at least 10ms", p.every)
		}
		if p.dead {
			queue += "/$DeadLetterQueue"
		}
		return p.run(c, t, f, queue)
	}
	return c
}

// run looks until it is interrupted, or has printed enough.
func (p *tailFlags) run(c *cobra.Command, t *dial.Target, f *dial.Flags, queue string) error {
	out, err := newMessagePrinter(c.OutOrStdout(), f, p.format)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w, r, done, err := openManagement(ctx, t, f.Timeout, queue)
	if err != nil {
		return err
	}
	defer done()
	l := &follower{w: w, r: r, ask: p.request(c), behind: map[int64]int64{}}
	if !p.start && !c.Flags().Changed("from") {
		if err := l.skip(ctx); err != nil {
			return ended(ctx, err)
		}
		fmt.Fprintf(c.ErrOrStderr(), "waiting for messages of %s; end with Ctrl-C\n", printable(queue))
	}
	for printed := 0; ; {
		err := l.look(ctx, func(m peeked) error {
			printed++
			return out.printEncoded(m.payload, m.Message)
		}, func() bool { return p.max > 0 && printed >= p.max })
		if err != nil || p.max > 0 && printed >= p.max {
			return ended(ctx, err)
		}
		select {
		case <-time.After(p.every):
		case <-ctx.Done():
			return nil
		}
	}
}

// ended is the error of a command that goes on until it is interrupted: none then.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// shareBits are the bits of a number below those that tell the share of a partitioned entity.
const shareBits = 48

// follower sees each message of an entity once. The shares of a partitioned entity have ranges of numbers of their own, and
// numbers only grow in each.
type follower struct {
	w   *dial.Wire
	r   *dial.Requests
	ask peekRequest
	// behind has the number to go on with in each share that has had a message.
	behind map[int64]int64
}

// shares calls each with the first number of every share that holds messages.
func (l *follower) shares(ctx context.Context, each func(share int64) error) error {
	probe := peekRequest{count: 1, bodiless: true}
	for probe.from = 0; ; {
		page, _, err := probe.send(ctx, l.w, l.r)
		if err != nil || len(page) == 0 {
			return err
		}
		share := page[0].number >> shareBits
		if err := each(share); err != nil {
			return err
		}
		probe.from = (share + 1) << shareBits
	}
}

// skip goes behind all that is there. It finds the last number of each share by halves, so it reads no messages.
func (l *follower) skip(ctx context.Context) error {
	return l.shares(ctx, func(share int64) error {
		low, high := share<<shareBits, (share+1)<<shareBits // a message at or behind low, none at or behind high
		for low+1 < high {
			middle := low + (high-low)/2
			probe := peekRequest{from: middle, count: 1, bodiless: true}
			page, _, err := probe.send(ctx, l.w, l.r)
			switch {
			case err != nil:
				return err
			case len(page) > 0 && page[0].number>>shareBits == share:
				low = page[0].number
			default:
				high = middle
			}
		}
		l.behind[share] = low + 1
		return nil
	})
}

// look calls each with every message that it has not seen, until enough says so.
func (l *follower) look(ctx context.Context, each func(peeked) error, enough func() bool) error {
	return l.shares(ctx, func(share int64) error {
		ask := l.ask
		ask.count = peekPage
		for ask.from = max(l.behind[share], share<<shareBits, l.ask.from); !enough(); {
			probe := peekRequest{from: ask.from, count: 1, bodiless: true} // a page would be of the shares behind this one
			first, _, err := probe.send(ctx, l.w, l.r)
			if err != nil || len(first) == 0 || first[0].number>>shareBits != share {
				return err
			}
			page, next, err := ask.send(ctx, l.w, l.r)
			if err != nil {
				return err
			}
			for _, m := range page {
				if m.number>>shareBits != share || enough() {
					return nil
				}
				if err := each(m); err != nil {
					return err
				}
				l.behind[share] = m.number + 1
			}
			if next == 0 || next>>shareBits != share {
				return nil
			}
			l.behind[share], ask.from = next, next
		}
		return nil
	})
}
