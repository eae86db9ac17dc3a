package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// NewMessagesCommand makes busbar messages: messages as lines of JSON.
func NewMessagesCommand() *cobra.Command {
	c := &cobra.Command{Use: "messages", Short: "Copy messages to lines of JSON, send such lines, and delete single messages",
		Args: cobra.NoArgs, RunE: showHelp}
	f := dial.AddFlags(c)
	c.AddCommand(messagesExportCommand(f), messagesImportCommand(f), messagesDeleteCommand(f))
	return c
}

type exportFlags struct {
	file    string
	session *string
	filter  string
	// progress is where a terminal may be; nil if the lines go to it.
	progress io.Writer
	from     int64
	max      int
	dead     bool
}

func messagesExportCommand(f *dial.Flags) *cobra.Command {
	var e exportFlags
	var session string
	c := &cobra.Command{
		Use: "export QUEUE", Short: "Write the messages of a queue as lines of JSON, and leave them there",
		Long: "Writes one line for each message that the queue holds: active, locked, scheduled and deferred ones, in the\n" +
			"order of their numbers. A line holds all that AMQP says of the message. Nothing is locked or removed, so what\n" +
			"clients do meanwhile shows in part; suspend the queue for a copy of one moment. States of sessions and ids of\n" +
			"duplicate detection are not messages, and are not in it.",
		Example: "  busbar messages export orders --file orders.jsonl\n" +
			"  busbar messages export orders --dlq | jq -c 'select(.properties.subject==\"invoice\")'\n" +
			"  busbar messages export trade/Subscriptions/eu --session s1 --file s1.jsonl",
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("session") {
				e.session = &session
			}
			return e.command(c, f, args)
		},
	}
	flags := c.Flags()
	flags.StringVar(&e.file, "file", "", "write to this file, which appears when all is in it (default: the standard output)")
	flags.StringVar(&session, "session", "", "only messages of this session")
	flags.StringVar(&e.filter, "filter", "", filterUsage)
	flags.Int64Var(&e.from, "from", 0, "sequence number to begin with")
	flags.IntVar(&e.max, "max", 0, "messages to export at most, 0 for all")
	flags.BoolVar(&e.dead, "dlq", false, "export the dead-letter queue")
	return c
}

func (e *exportFlags) command(c *cobra.Command, f *dial.Flags, args []string) error {
	t, err := f.Target()
	if err != nil {
		return err
	}
	queue, rest, err := t.Queue(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return exit.Usagef("messages export takes one queue")
	}
	if e.max < 0 || e.from < 0 {
		return exit.Usagef("--max and --from must not be negative")
	}
	if e.dead {
		queue += "/$DeadLetterQueue"
	}
	if e.file == "" {
		_, err := e.run(c.Context(), t, f, queue, c.OutOrStdout())
		return err
	}
	n := 0
	e.progress = c.ErrOrStderr()
	err = writeWhole(e.file, func(w io.Writer) (err error) {
		n, err = e.run(c.Context(), t, f, queue, w)
		return err
	})
	if err != nil {
		return err
	}
	return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"exported": n, "queue": queue, "file": e.file},
		fmt.Sprintf("exported %s of %s to %s", dial.Plural(n, "message"), queue, e.file))
}

// writeWhole makes a file that is there with all its content or not at all.
func writeWhole(path string, content func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	err = content(file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// run writes the messages and returns how many there were.
func (e *exportFlags) run(ctx context.Context, t *dial.Target, f *dial.Flags, queue string, to io.Writer) (n int, err error) {
	w, r, done, err := openManagement(ctx, t, f.Timeout, queue)
	if err != nil {
		return 0, err
	}
	defer done()
	out := bufio.NewWriter(to)
	next := e.from
	b := newBar(e.progress, uint64(e.max))
	defer b.end()
	p := peekRequest{from: e.from, session: e.session, filter: e.filter, lines: true}
	for m, err := range p.all(ctx, w, r, e.max) {
		if err == nil {
			err = exportLine(out, m)
		}
		if err != nil {
			return n, errors.Join(out.Flush(), exit.With(exit.Code(err),
				fmt.Errorf("%w (%d messages were written; the rest begins with --from %d)", err, n, next)))
		}
		n, next = n+1, m.number+1
		b.show(uint64(n))
	}
	return n, out.Flush()
}

// exportLine writes one message.
func exportLine(out *bufio.Writer, m peeked) error {
	text, err := m.line.Line()
	if err != nil {
		return fmt.Errorf("message %d: %w", m.number, err)
	}
	_, err = out.Write(append(text, '\n'))
	return err
}
