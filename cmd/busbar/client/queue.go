package client

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// NewQueueCommand makes busbar queue: what a user or an operator does with one queue.
func NewQueueCommand() *cobra.Command {
	c := &cobra.Command{Use: "queue", Short: "Create, list, inspect, purge and delete queues",
		Args: cobra.NoArgs, RunE: showHelp}
	f := dial.AddFlags(c)
	c.AddCommand(queueCreateCommand(f), queueListCommand(f), queueShowCommand(f), queueDeleteCommand(f),
		queueLocksCommand(f), queueHistoryCommand(f), queueSessionsCommand(f), queuePeekCommand(f),
		queuePurgeCommand(f), queueMoveCommand(f), queueTransactionsCommand(f), queueOptionsCommand(f),
		queueSuspendCommand(f), queueResumeCommand(f))
	return c
}

// showHelp makes a command that only groups others say so and fail.
func showHelp(c *cobra.Command, _ []string) error {
	_ = c.Help()
	return exit.Usagef("%s needs a subcommand", c.Name())
}

// exactly is cobra.ExactArgs with the exit code of a wrong command line.
func exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return exit.Usagef("%s takes %d arguments, got %d", c.CommandPath(), n, len(args))
		}
		return nil
	}
}

// queueFlags are the properties that create can set.
type queueFlags struct {
	session, partitioned, deadLetterExpired bool
	noDeadLetter                            bool
	lock, ttl, duplicates, idle             time.Duration
	maxDelivery                             int
	maxSizeMB, maxMessageKB                 int64
	forwardTo, forwardDead, metadata        string
}

func queueCreateCommand(f *dial.Flags) *cobra.Command {
	var q queueFlags
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a queue", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := f.Target()
			if err != nil {
				return err
			}
			m := dial.NewManagement(t, f.Timeout)
			info, err := m.CreateQueue(c.Context(), args[0], q.description(c))
			if err != nil {
				return err
			}
			if q.forwardTo != "" || q.forwardDead != "" {
				entities.WarnOfCircle(c.Context(), m, args[0], func(text string) { fmt.Fprintln(c.ErrOrStderr(), "warning:", text) })
			}
			return printQueues(c.OutOrStdout(), f, []dial.QueueInfo{info}, true)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&q.session, "session", false, "messages belong to sessions")
	flags.BoolVar(&q.partitioned, "partitioned", false, "spread the queue over all partitions")
	flags.BoolVar(&q.deadLetterExpired, "dead-letter-on-expiration", false, "keep expired messages as dead letters")
	flags.BoolVar(&q.noDeadLetter, "no-dead-letter", false, "no dead-letter queue: what would be dead-lettered is dropped and counted")
	flags.DurationVar(&q.lock, "lock-duration", 0, "how long a received message is locked, 5s to 5m")
	flags.DurationVar(&q.ttl, "default-ttl", 0, "how long a message lives that does not say so itself")
	flags.DurationVar(&q.duplicates, "duplicate-window", 0, "drop messages whose id was seen in this time")
	flags.DurationVar(&q.idle, "auto-delete-on-idle", 0, "delete the queue after this time without use")
	flags.IntVar(&q.maxDelivery, "max-delivery-count", 0, "deliveries before a message is dead-lettered")
	flags.Int64Var(&q.maxSizeMB, "max-size-mb", 0, "limit of all messages together")
	flags.Int64Var(&q.maxMessageKB, "max-message-kb", 0, "limit of one message")
	flags.StringVar(&q.forwardTo, "forward-to", "", "queue that every message goes on to")
	flags.StringVar(&q.forwardDead, "forward-dead-letters-to", "", "queue that dead letters go on to")
	flags.StringVar(&q.metadata, "metadata", "", "text of the user's own")
	return c
}

// description holds what the command line says and leaves the rest to the broker.
func (q queueFlags) description(c *cobra.Command) dial.Queue {
	d := dial.Queue{
		MaxDeliveryCount: q.maxDelivery, MaxSizeInMegabytes: q.maxSizeMB,
		MaxMessageSizeKilobytes: q.maxMessageKB, ForwardTo: q.forwardTo,
		ForwardDeadLettersTo: q.forwardDead, UserMetadata: q.metadata,
		LockDuration: isoDuration(q.lock), DefaultTimeToLive: isoDuration(q.ttl),
		AutoDeleteOnIdle: isoDuration(q.idle), DuplicateWindow: isoDuration(q.duplicates),
	}
	given := func(name string, v bool) *bool {
		if !c.Flags().Changed(name) {
			return nil
		}
		return &v
	}
	d.RequiresSession = given("session", q.session)
	d.EnablePartitioning = given("partitioned", q.partitioned)
	d.DeadLetterOnExpiration = given("dead-letter-on-expiration", q.deadLetterExpired)
	if none := given("no-dead-letter", q.noDeadLetter); none != nil {
		d.Options = &dial.QueueOptions{NoDeadLetter: none}
	}
	d.DuplicateDetection = given("duplicate-window", q.duplicates > 0)
	return d
}

// isoDuration writes a duration as the management API reads it; zero is no text.
func isoDuration(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	seconds := strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
	return "PT" + seconds + "S"
}

func queueListCommand(f *dial.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List all queues with their counts", Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := f.Target()
			if err != nil {
				return err
			}
			all, err := dial.NewManagement(t, f.Timeout).ListQueues(c.Context())
			if err != nil {
				return err
			}
			return printQueues(c.OutOrStdout(), f, all, false)
		},
	}
}

func queueShowCommand(f *dial.Flags) *cobra.Command {
	var ops opsFlags
	c := &cobra.Command{
		Use: "show NAME", Short: "Show one queue and what it dropped", Args: exactly(1),
		Long: "What the queue dropped is asked of the operations port. If neither --ops nor BUSBAR_OPS names one and\n" +
			"the default does not answer, the rest is shown without it.",
		RunE: func(c *cobra.Command, args []string) error {
			t, err := f.Target()
			if err != nil {
				return err
			}
			info, err := dial.NewManagement(t, f.Timeout).GetQueue(c.Context(), args[0])
			if err != nil {
				return err
			}
			i, err := inspect(f, &ops, args, false)
			if err != nil {
				return err
			}
			if info.Dropped, err = i.dropped(c.Context()); err != nil && i.ops.named() {
				return err
			}
			if err := printQueues(c.OutOrStdout(), f, []dial.QueueInfo{info}, true); err != nil || f.Output == "json" {
				return err
			}
			return printDropped(c.OutOrStdout(), info.Dropped)
		},
	}
	addOpsFlag(c, &ops)
	return c
}

// dropped asks for the counters of what the queue dropped, by reason (S-169).
func (i *inspector) dropped(ctx context.Context) (map[string]uint64, error) {
	var answer struct{ Dropped map[string]uint64 }
	err := i.call(ctx, http.MethodGet, "description", nil, nil, &answer)
	return answer.Dropped, err
}

// printDropped writes the counters that are not 0 as a table of their own.
func printDropped(w io.Writer, dropped map[string]uint64) error {
	if len(dropped) == 0 {
		return nil
	}
	rows := [][]string{{"DROPPED", "MESSAGES"}}
	for _, why := range slices.Sorted(maps.Keys(dropped)) {
		rows = append(rows, []string{why, numberText(dropped[why])})
	}
	fmt.Fprintln(w)
	return dial.PrintTable(w, rows)
}

func queueDeleteCommand(f *dial.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a queue and all its messages", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := f.Target()
			if err != nil {
				return err
			}
			if err := dial.NewManagement(t, f.Timeout).DeleteQueue(c.Context(), args[0]); err != nil {
				return err
			}
			return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"deleted": args[0]}, "deleted "+args[0])
		},
	}
}

// printQueues writes a table, or JSON: an array, or an object for a command about one queue.
func printQueues(w io.Writer, f *dial.Flags, all []dial.QueueInfo, single bool) error {
	if f.Output == "json" {
		if single {
			return dial.PrintJSON(w, all[0])
		}
		if all == nil {
			all = []dial.QueueInfo{}
		}
		return dial.PrintJSON(w, all)
	}
	rows := [][]string{{"NAME", "STATUS", "ACTIVE", "DEAD", "SCHEDULED", "SESSIONS", "LOCK", "DELIVERIES", "BYTES", "DLQ"}}
	for _, q := range all {
		active, dead, scheduled := int64(math.MinInt64), int64(math.MinInt64), int64(math.MinInt64)
		if q.CountDetails != nil {
			active, dead, scheduled = q.CountDetails.Active, q.CountDetails.DeadLetter, q.CountDetails.Scheduled
		}
		rows = append(rows, []string{q.Name, q.Status, count(active), count(dead), count(scheduled),
			yes(q.RequiresSession), strings.ToLower(strings.TrimPrefix(q.LockDuration, "PT")),
			strconv.Itoa(q.MaxDeliveryCount), bytesOf(q.SizeInBytes), hasDeadLetters(q.Options)})
	}
	return dial.PrintTable(w, rows)
}

// count writes a number that may be absent.
func count(n int64) string {
	if n == math.MinInt64 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func yes(b *bool) string {
	if b != nil && *b {
		return "yes"
	}
	return "no"
}

func hasDeadLetters(o *dial.QueueOptions) string {
	none := o != nil && o.NoDeadLetter != nil && *o.NoDeadLetter
	has := !none
	return yes(&has)
}

func bytesOf(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
