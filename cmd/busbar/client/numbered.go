package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// numberedFlags choose messages one by one: by their numbers, or by a filter.
type numberedFlags struct {
	ops       opsFlags
	filter    string
	state     string
	to        string // for a redrive: another entity
	max, rate uint64
	yes, dry  bool
	dead      bool
}

// numberedAct is what is done to each of the messages.
type numberedAct struct {
	view string // of the operations port
	done string // "deleted"
	json string // the field that counts them
}

var (
	deletes  = numberedAct{"delete", "deleted", "deleted"}
	redrives = numberedAct{"redrive", "sent again", "moved"}
	moves    = numberedAct{"move", "moved", "moved"}
	purges   = numberedAct{"purge", "deleted", "deleted"}
)

// numbers are those of the command line, or of the messages that the filter selects now.
func (n *numberedFlags) numbers(ctx context.Context, i *inspector, given []string) (all []uint64, err error) {
	for _, text := range given {
		number, err := strconv.ParseUint(text, 10, 63)
		if err != nil || number == 0 {
			return nil, exit.Usagef("%q is no sequence number; busbar peek prints them", text)
		}
		all = append(all, number)
	}
	if len(given) > 0 {
		return all, nil
	}
	values := url.Values{"filter": {n.filter}}
	values.Set("state", cmp.Or(n.state, "active"))
	err = i.list(ctx, "messages", "messages", values, int(n.max), func(raw json.RawMessage) error {
		var m struct{ SequenceNumber uint64 }
		err := json.Unmarshal(raw, &m)
		all = append(all, m.SequenceNumber)
		return err
	})
	return all, err
}

// run does the act to each message. A message that is gone, or that a receiver holds, is told and left alone.
func (n *numberedFlags) run(c *cobra.Command, f *dial.Flags, act numberedAct, args []string) error {
	if len(args) == 0 {
		return exit.Usagef("name a queue")
	}
	given := args[1:]
	if (len(given) == 0) == (n.filter == "") {
		return exit.Usagef("name the numbers of messages, or give a --filter")
	}
	i, err := inspect(f, &n.ops, args[:1], n.dead)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ask := n.dry || act.json == "deleted" && n.filter != "" && !n.yes
	if n.filter != "" && n.state == "" && !ask {
		return n.sifted(ctx, c, f, i, act)
	}
	numbers, err := n.numbers(ctx, i, given)
	if err != nil {
		return err
	}
	if ask {
		if _, err := fmt.Fprintf(c.OutOrStdout(), "the filter selects %s of %s\n", dial.Plural(len(numbers), "message"), i.path); err != nil || n.dry {
			return err
		}
		return exit.Usagef("add --yes to delete them")
	}
	done, left, err := n.each(ctx, c, i, act, numbers)
	if err != nil {
		return exit.With(exit.Code(err), fmt.Errorf("stopped behind %s %s: %w", dial.Plural(done, "message"), act.done, err))
	}
	if err := n.tell(c, f, i, act, uint64(done), uint64(left)); err != nil {
		return err
	}
	if left > 0 && n.filter == "" {
		return exit.With(exit.Conflict, fmt.Errorf("%d of %d messages were left alone", left, len(numbers)))
	}
	return nil
}

func (n *numberedFlags) tell(c *cobra.Command, f *dial.Flags, i *inspector, act numberedAct, done, left uint64) error {
	text := fmt.Sprintf("%s %s of %s", act.done, dial.Plural(done, "message"), i.path)
	values := map[string]any{"entity": i.path, act.json: done, "left": left}
	if n.to != "" {
		text += " to " + n.to
		values["to"] = n.to
	}
	if left > 0 {
		text += fmt.Sprintf("; %d were left alone", left)
	}
	return dial.PrintDone(c.OutOrStdout(), f, values, text)
}

// sifted has the node do it to all waiting messages that the filter selects, some at a time. Messages that come after the
// first request stay.
func (n *numberedFlags) sifted(ctx context.Context, c *cobra.Command, f *dial.Flags, i *inspector, act numberedAct) error {
	total, err := i.waiting(ctx, n.dead)
	if err != nil {
		return err
	}
	if n.max > 0 {
		total = min(total, n.max)
	}
	if act == deletes {
		act = purges
	}
	values := url.Values{"filter": {n.filter}}
	if n.to != "" {
		values.Set("to", n.to)
	}
	b := newBar(c.ErrOrStderr(), total)
	defer b.end()
	all, err := rounds{batch: redriveBatch, max: n.max, rate: n.rate}.run(ctx, values, b, func(ctx context.Context) (s step, err error) {
		return s, i.call(ctx, http.MethodPost, act.view, values, nil, &s)
	})
	done := all.Moved + all.Deleted
	if err != nil {
		return exit.With(exit.Code(err), fmt.Errorf("stopped behind %s %s: %w; the same command goes on",
			dial.Plural(done, "message"), act.done, err))
	}
	b.end()
	if all.Failed > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "the filter failed on %s, which stay: %s\n", dial.Plural(all.Failed, "message"), all.Fault)
	}
	return n.tell(c, f, i, act, done, all.Left)
}

func (n *numberedFlags) each(ctx context.Context, c *cobra.Command, i *inspector, act numberedAct, numbers []uint64) (done, left int, err error) {
	b := newBar(c.ErrOrStderr(), uint64(len(numbers)))
	defer b.end()
	began := time.Now()
	for _, number := range numbers {
		values := url.Values{"number": {numberText(number)}}
		if n.to != "" {
			values.Set("to", n.to)
		}
		var answer json.RawMessage
		err := i.call(ctx, http.MethodPost, act.view, values, nil, &answer)
		switch code := exit.Code(err); {
		case err == nil:
			done++
		case code == exit.Conflict, code == exit.NotFound && n.to == "":
			fmt.Fprintln(c.ErrOrStderr(), err)
			left++
		default:
			return done, left, err
		}
		b.show(uint64(done))
		if err := pace(ctx, began, uint64(done), n.rate); err != nil {
			return done, left, err
		}
	}
	return done, left, nil
}

// add adds the flags that choose.
func (n *numberedFlags) add(c *cobra.Command, verb string) {
	addOpsFlag(c, &n.ops)
	flags := c.Flags()
	flags.StringVar(&n.filter, "filter", "", filterUsage)
	flags.BoolVar(&n.dry, "dry-run", false, "say how many messages that are, and do nothing")
	flags.Uint64Var(&n.max, "max", 0, "messages to "+verb+" at most, 0 for all")
	flags.Uint64Var(&n.rate, "rate", 0, "messages per second at most, 0 for as fast as it goes")
}

// addDelete adds the flags of a command that deletes.
func (n *numberedFlags) addDelete(c *cobra.Command) {
	n.add(c, "delete")
	c.Flags().BoolVar(&n.yes, "yes", false, "delete what --filter selects")
}

func messagesDeleteCommand(f *dial.Flags) *cobra.Command {
	var n numberedFlags
	c := &cobra.Command{
		Use: "delete QUEUE NUMBER...", Short: "Delete messages by their numbers, or by a filter",
		Long: "Deletes the messages with these numbers, whether active, scheduled or deferred, or with --dlq dead letters; or all that " +
			"--filter selects. A message that a receiver holds stays.",
		Example: "  busbar messages delete orders 4711 4712\n  busbar messages delete orders --state scheduled --filter \"region = 'eu'\" --yes\n" +
			"  busbar messages delete orders --dlq 4713",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case n.state == "active":
				n.state = ""
			case n.state != "" && n.state != "scheduled" && n.state != "deferred":
				return exit.Usagef("--state is active, scheduled or deferred, not %q", n.state)
			}
			return n.run(c, f, deletes, args)
		},
	}
	n.addDelete(c)
	c.Flags().BoolVar(&n.dead, "dlq", false, "delete dead letters")
	c.Flags().StringVar(&n.state, "state", "active", "with --filter: active, scheduled or deferred")
	return c
}
