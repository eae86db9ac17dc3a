package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/cmd/busbar/lines"
)

type importFlags struct {
	file       string
	fromLine   int
	keepExpiry bool
	dryRun     bool
}

func messagesImportCommand(f *dial.Flags) *cobra.Command {
	var i importFlags
	c := &cobra.Command{
		Use: "import QUEUE", Short: "Send the messages of lines of JSON",
		Long: "Sends the message of each line, in their order. The queue gives each a new number and a new time of arrival.\n" +
			"A schedule and a session id stay; a deferred message or a dead letter becomes an active one. A queue with\n" +
			"duplicate detection drops a message whose id it has seen. An import that stops says which lines are stored.",
		Example: "  busbar messages import orders --file orders.jsonl\n" +
			"  busbar messages export a | busbar messages import b --connection-string \"$OTHER\"",
		RunE: func(c *cobra.Command, args []string) error { return i.command(c, f, args) },
	}
	flags := c.Flags()
	flags.StringVar(&i.file, "file", "", "read this file (default: the standard input)")
	flags.IntVar(&i.fromLine, "from-line", 1, "line to begin with")
	flags.BoolVar(&i.keepExpiry, "keep-expiry", false, "let each message end when it would have ended, and leave out those "+
		"whose time is over (default: their time to live begins anew)")
	flags.BoolVar(&i.dryRun, "dry-run", false, "check all lines and send nothing")
	return c
}

func (i *importFlags) command(c *cobra.Command, f *dial.Flags, args []string) (err error) {
	t, err := f.Target()
	if err != nil {
		return err
	}
	queue, rest, err := t.Queue(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return exit.Usagef("messages import takes one queue")
	}
	if i.fromLine < 1 {
		return exit.Usagef("--from-line must be at least 1")
	}
	in := c.InOrStdin()
	if i.file != "" {
		file, err := os.Open(i.file)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		in = file
	}
	m := &importer{flags: i, now: time.Now(), bar: newBar(c.ErrOrStderr(), 0)}
	defer m.bar.end()
	if !i.dryRun {
		w, err := dial.Connect(c.Context(), t, queue, f.Timeout)
		if err != nil {
			return err
		}
		defer w.Close()
		m.w = w
		if m.out, err = openSender(c.Context(), w, queue); err != nil {
			return err
		}
		m.batch = batchLimit(m.out)
	}
	if err := m.run(c.Context(), in); err != nil {
		return exit.With(exit.Code(err), fmt.Errorf("%w%s", err, m.left()))
	}
	verb := "sent"
	if i.dryRun {
		verb = "checked"
	}
	text := fmt.Sprintf("%s %d messages", verb, m.done)
	if m.expired > 0 {
		text += fmt.Sprintf("; %d more had expired", m.expired)
	}
	return dial.PrintDone(c.OutOrStdout(), f, map[string]any{verb: m.done, "expired": m.expired, "queue": queue}, text)
}

// batchLimit is how many bytes a batch may have on a link (RUL-32).
func batchLimit(s *amqp.Sender) uint64 {
	limit := s.MaxMessageSize()
	if announced, ok := s.Properties()["com.microsoft:max-message-batch-size"].(int64); ok && announced > 0 {
		limit = min(limit, uint64(announced))
	}
	return limit
}

// maxJSONBytes bounds a line. JSON writes a byte as six at most, in the text of the largest message.
const maxJSONBytes = 6 * maxLineBytes

// importer sends lines, many at a time, and knows of each whether it is stored.
type importer struct {
	flags *importFlags
	now   time.Time // when the import began; expired messages are judged by it
	w     *dial.Wire
	out   *amqp.Sender // nil if nothing is to be sent
	batch uint64       // bytes of a batch at most

	bar *bar // of the lines that are stored; nil for none

	open          []importing
	done, expired int
	next          int   // the first line that was not submitted
	refused       []int // lines that the broker has refused
	unknown       []int // lines that may be stored
}

// importing is a line that the broker has not answered.
type importing struct {
	line    int
	receipt amqp.SendReceipt
}

// run sends all lines. It stops at the first that fails, and waits for those that are under way.
func (m *importer) run(ctx context.Context, in io.Reader) error {
	m.next = m.flags.fromLine
	n := 0
	for text, err := range textLines(in, maxJSONBytes) {
		n++
		if n < m.flags.fromLine {
			continue
		}
		if err == nil && len(bytes.TrimSpace(text)) > 0 {
			err = m.submit(ctx, n, text)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("line %d: %w", n, err), m.settle(ctx, 0))
		}
		m.next = n + 1
		if err := m.settle(ctx, sendsInFlight-1); err != nil {
			return err
		}
	}
	return m.settle(ctx, 0)
}

// submit sends the message of one line and does not wait for the answer.
func (m *importer) submit(ctx context.Context, n int, text []byte) error {
	line, err := lines.Parse(text)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	if m.flags.keepExpiry {
		alive, err := line.KeepExpiry(m.now)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		if !alive {
			m.expired++
			return nil
		}
	}
	if err := line.Schedule(); err != nil {
		return exit.With(exit.Usage, err)
	}
	payload, err := line.Encode()
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	if m.out == nil {
		m.done++
		return nil
	}
	wrapped, err := wrap(payload, m.batch)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	receipt, err := submit(ctx, m.w, m.out, wrapped)
	if err != nil {
		m.unknown = append(m.unknown, n)
		return err
	}
	m.open = append(m.open, importing{n, receipt})
	return nil
}

// formatBatch is the message format of a batch, whose data sections are encoded messages.
const formatBatch = 0x80013700

// batchOverhead is what a batch has beside its only message.
const batchOverhead = 8

// wrap makes a message for the sender. The library would encode the message anew: it has not all types of AMQP, and gives
// a map an order of its own. A batch of one message carries it as it is. A larger message goes as the
// library encodes it, if that says the same.
func wrap(payload []byte, batch uint64) (*amqp.Message, error) {
	if uint64(len(payload)+batchOverhead) <= batch {
		return &amqp.Message{Format: formatBatch, Data: [][]byte{payload}}, nil
	}
	m := &amqp.Message{}
	if err := m.UnmarshalBinary(payload); err != nil {
		return nil, tooLarge(payload, batch, err)
	}
	again, err := m.MarshalBinary()
	if err != nil {
		return nil, tooLarge(payload, batch, err)
	}
	same, err := lines.SameButForOrder(payload, again)
	if err == nil && !same {
		err = fmt.Errorf("it has values that the sending library would change")
	}
	if err != nil {
		return nil, tooLarge(payload, batch, err)
	}
	return m, nil
}

func tooLarge(payload []byte, batch uint64, err error) error {
	return fmt.Errorf("the message has %d bytes, and a batch carries messages of at most %d; outside of a batch it cannot be sent: %w",
		len(payload), max(batch, batchOverhead)-batchOverhead, err)
}

// settle waits for answers until no more than down lines are open. A failure makes it wait for all of them.
func (m *importer) settle(ctx context.Context, down int) (first error) {
	for len(m.open) > down {
		o := m.open[0]
		m.open = m.open[1:]
		err := awaitReceipt(ctx, m.w, &o.receipt)
		if err == nil {
			if m.done++; m.bar != nil {
				m.bar.show(uint64(m.done))
			}
			continue
		}
		if dial.Condition(err) != "" && !connectionLost(err) {
			m.refused = append(m.refused, o.line)
		} else {
			m.unknown = append(m.unknown, o.line)
		}
		if first == nil {
			first, down = fmt.Errorf("line %d: %w", o.line, err), 0
		}
		if errors.Is(err, context.DeadlineExceeded) { // the others would not be answered either
			for _, o := range m.open {
				m.unknown = append(m.unknown, o.line)
			}
			m.open = nil
		}
	}
	return first
}

// connectionLost tells whether an error is about more than one message.
func connectionLost(err error) bool {
	var link *amqp.LinkError
	var session *amqp.SessionError
	var conn *amqp.ConnError
	return errors.As(err, &link) || errors.As(err, &session) || errors.As(err, &conn)
}

// left says which lines an import that stopped has not stored.
func (m *importer) left() string {
	if m.out == nil {
		return ""
	}
	var b strings.Builder
	b.WriteString(" (" + wereStored(m.done))
	for _, list := range []struct {
		text  string
		lines []int
	}{{"refused", m.refused}, {"perhaps stored", m.unknown}} {
		if len(list.lines) > 0 {
			slices.Sort(list.lines)
			fmt.Fprintf(&b, "; %s: line %s", list.text, rangesOf(list.lines))
		}
	}
	fmt.Fprintf(&b, "; the rest begins with --from-line %d)", m.next)
	return b.String()
}

// rangesOf writes 1, 2, 3, 7 as 1-3, 7.
func rangesOf(sorted []int) string {
	var out []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if j > i {
			out = append(out, fmt.Sprintf("%d-%d", sorted[i], sorted[j]))
		} else {
			out = append(out, fmt.Sprint(sorted[i]))
		}
		i = j + 1
	}
	return strings.Join(out, ", ")
}
