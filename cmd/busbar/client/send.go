package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

const (
	maxLineBytes  = 100 << 20 // the largest message that a broker may be set to take (RUL-25)
	sendsInFlight = 100       // unanswered messages of one send command
)

type sendFlags struct {
	file, session, partitionKey          string
	messageID, subject, contentType      string
	correlationID, replyTo, replySession string
	to                                   string
	properties                           []string
	count                                int
	ttl, in                              time.Duration
	at                                   string // RFC 3339
	jsonl                                bool
}

// bodies yields what is to be sent.
type bodies = iter.Seq2[[]byte, error]

// NewSendCommand makes busbar send.
func NewSendCommand() *cobra.Command {
	var s sendFlags
	c := &cobra.Command{
		Use:   "send QUEUE [BODY...]",
		Short: "Send messages: one per argument, or one per line of the standard input",
	}
	f := dial.AddFlags(c)
	flags := c.Flags()
	flags.StringVar(&s.file, "file", "", "send the content of this file as one message")
	flags.StringVar(&s.session, "session", "", "session id")
	flags.StringVar(&s.partitionKey, "partition-key", "", "partition key")
	flags.StringVar(&s.messageID, "message-id", "", "message id (default: random)")
	flags.StringVar(&s.subject, "subject", "", "subject, also called label")
	flags.StringVar(&s.contentType, "content-type", "", "content type of the body")
	flags.StringVar(&s.correlationID, "correlation-id", "", "correlation id")
	flags.StringVar(&s.replyTo, "reply-to", "", "where to answer")
	flags.StringVar(&s.replySession, "reply-to-session", "", "session to answer in")
	flags.StringVar(&s.to, "to", "", "address for the application's own use")
	flags.StringArrayVar(&s.properties, "property", nil, "application property NAME=TEXT, or NAME:TYPE=VALUE as in priority:int=5; may be repeated")
	flags.IntVar(&s.count, "count", 1, "send everything this often")
	flags.DurationVar(&s.ttl, "ttl", 0, "time to live")
	flags.DurationVar(&s.in, "in", 0, "schedule the messages for this time from now; their numbers are printed")
	flags.StringVar(&s.at, "at", "", "schedule the messages for this time, such as 2026-01-31T08:00:00Z")
	flags.BoolVar(&s.jsonl, "jsonl", false, "the file or the standard input has messages as lines of JSON, as peek -o jsonl prints them")
	c.MarkFlagsMutuallyExclusive("in", "at")
	c.RunE = func(c *cobra.Command, args []string) error {
		t, err := f.Target()
		if err != nil {
			return err
		}
		if s.jsonl {
			return s.lines(c, f, args)
		}
		at, err := s.due(c, time.Now())
		if err != nil {
			return err
		}
		queue, texts, err := t.Queue(args)
		if err != nil {
			return err
		}
		source, err := s.source(texts, c.InOrStdin())
		if err != nil {
			return err
		}
		if _, err := s.message(c, nil); err != nil {
			return err
		}
		if !at.IsZero() {
			return s.later(c, t, f, queue, source, at)
		}
		n, err := s.run(c, t, f, queue, source)
		if err != nil {
			return fmt.Errorf("%w (%s)", err, wereStored(n))
		}
		return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"sent": n, "queue": queue},
			fmt.Sprintf("sent %d to %s", n, queue))
	}
	return c
}

// lines sends messages that are whole already. No flag can say more of them.
func (s *sendFlags) lines(c *cobra.Command, f *dial.Flags, args []string) (err error) {
	c.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && flag.Name != "jsonl" && flag.Name != "file" {
			err = exit.Usagef("--%s says what a message is, and a line of --jsonl says all of that", flag.Name)
		}
	})
	if err != nil {
		return err
	}
	i := importFlags{file: s.file, fromLine: 1}
	return i.command(c, f, args)
}

// later schedules the messages and prints their numbers.
func (s *sendFlags) later(c *cobra.Command, t *dial.Target, f *dial.Flags, queue string, source bodies, at time.Time) error {
	numbers, err := s.schedule(c, t, f, queue, source, at)
	if err != nil {
		return fmt.Errorf("%w (%d messages were scheduled: %s)", err, len(numbers), numbersText(numbers))
	}
	return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"scheduled": numbers, "queue": queue, "at": at.UTC()},
		fmt.Sprintf("scheduled %s to %s for %s: %s", dial.Plural(len(numbers), "message"), queue,
			at.UTC().Format(time.RFC3339), numbersText(numbers)))
}

// wereStored says how many messages the broker has.
func wereStored(n int) string {
	if n == 1 {
		return "1 message was stored"
	}
	return fmt.Sprintf("%d messages were stored", n)
}

// source yields the bodies to send.
func (s *sendFlags) source(given []string, in io.Reader) (bodies, error) {
	if s.count < 1 {
		return nil, exit.Usagef("--count must be at least 1")
	}
	switch {
	case s.file != "" && len(given) > 0:
		return nil, exit.Usagef("give a file or bodies, not both")
	case s.file != "":
		b, err := os.ReadFile(s.file)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		given = []string{string(b)}
	case len(given) == 0:
		if s.count > 1 {
			return nil, exit.Usagef("--count needs bodies on the command line or a file")
		}
		return textLines(in, maxLineBytes), nil
	}
	return func(yield func([]byte, error) bool) {
		for range s.count {
			for _, b := range given {
				if !yield([]byte(b), nil) {
					return
				}
			}
		}
	}, nil
}

// textLines yields the lines of a text, of which none may be longer than limit.
func textLines(in io.Reader, limit int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		scan := bufio.NewScanner(in)
		scan.Buffer(nil, limit)
		for scan.Scan() {
			if !yield(slices.Clone(scan.Bytes()), nil) {
				return
			}
		}
		if err := scan.Err(); err != nil {
			yield(nil, fmt.Errorf("read the input: %w", err))
		}
	}
}

// message makes one message as the flags say.
func (s *sendFlags) message(c *cobra.Command, body []byte) (*amqp.Message, error) {
	text := func(name, v string) *string {
		if !c.Flags().Changed(name) {
			return nil
		}
		return &v
	}
	p := &amqp.MessageProperties{
		MessageID: uuid.NewString(), GroupID: text("session", s.session), To: text("to", s.to),
		Subject: text("subject", s.subject), ContentType: text("content-type", s.contentType),
		ReplyTo: text("reply-to", s.replyTo), ReplyToGroupID: text("reply-to-session", s.replySession),
	}
	if s.messageID != "" {
		p.MessageID = s.messageID
	}
	if s.correlationID != "" {
		p.CorrelationID = s.correlationID
	}
	m := &amqp.Message{Properties: p, Data: [][]byte{body}, Header: &amqp.MessageHeader{Durable: true, TTL: s.ttl, Priority: 4}}
	if s.partitionKey != "" {
		m.Annotations = amqp.Annotations{"x-opt-partition-key": s.partitionKey}
	}
	for _, kv := range s.properties {
		name, value, err := readProperty(kv)
		if err != nil {
			return nil, err
		}
		if m.ApplicationProperties == nil {
			m.ApplicationProperties = map[string]any{}
		}
		m.ApplicationProperties[name] = value
	}
	return m, nil
}

// run sends with many messages in flight and returns how many the broker has taken.
func (s *sendFlags) run(c *cobra.Command, t *dial.Target, f *dial.Flags, queue string, source bodies) (sent int, err error) {
	w, err := dial.Connect(c.Context(), t, queue, f.Timeout)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	out, err := openSender(c.Context(), w, queue)
	if err != nil {
		return 0, err
	}
	var open []amqp.SendReceipt
	settle := func(down int) (first error) {
		for len(open) > down {
			switch err := awaitReceipt(c.Context(), w, &open[0]); {
			case err == nil:
				sent++
			case first == nil:
				first, down = err, 0 // those behind are under way and may be stored
			}
			if open = open[1:]; errors.Is(first, context.DeadlineExceeded) {
				return first // the others would not be answered either
			}
		}
		return first
	}
	for body, err := range source {
		var m *amqp.Message
		if err == nil {
			m, err = s.message(c, body)
		}
		var receipt amqp.SendReceipt
		if err == nil {
			receipt, err = submit(c.Context(), w, out, m)
		}
		if err != nil {
			err = errors.Join(err, settle(0))
			return sent, err
		}
		open = append(open, receipt)
		if err := settle(sendsInFlight - 1); err != nil {
			return sent, err
		}
	}
	err = settle(0)
	return sent, err
}

func openSender(ctx context.Context, w *dial.Wire, queue string) (*amqp.Sender, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	s, err := w.Session.NewSender(ctx, queue, &amqp.SenderOptions{
		SettlementMode: amqp.SenderSettleModeUnsettled.Ptr()})
	return s, dial.Failure("open "+queue, err)
}

func submit(ctx context.Context, w *dial.Wire, s *amqp.Sender, m *amqp.Message) (amqp.SendReceipt, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	r, err := s.SendWithReceipt(ctx, m, nil)
	return r, dial.Failure("send", err)
}

func awaitReceipt(ctx context.Context, w *dial.Wire, r *amqp.SendReceipt) error {
	ctx, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	state, err := r.Wait(ctx)
	if err != nil {
		return dial.Failure("send", err)
	}
	switch s := state.(type) {
	case *amqp.StateAccepted:
		return nil
	case *amqp.StateRejected:
		if s.Error != nil {
			return dial.Failure("send", s.Error)
		}
	}
	return dial.Failure("send", fmt.Errorf("the broker answered %v", state))
}

// propertyTypes are the types of values that a command line can write, as rules name them.
var propertyTypes = map[string]func(text string) (any, error){
	"string":   func(text string) (any, error) { return text, nil },
	"int":      func(text string) (any, error) { n, err := strconv.ParseInt(text, 10, 32); return int32(n), err },
	"long":     func(text string) (any, error) { return strconv.ParseInt(text, 10, 64) },
	"double":   func(text string) (any, error) { return strconv.ParseFloat(text, 64) },
	"boolean":  func(text string) (any, error) { return strconv.ParseBool(text) },
	"dateTime": func(text string) (any, error) { return time.Parse(time.RFC3339, text) },
}

// readProperty reads NAME=TEXT or NAME:TYPE=VALUE. A name may have a colon if no type stands behind it.
func readProperty(text string) (name string, value any, err error) {
	name, of, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return "", nil, exit.Usagef("property %q is neither NAME=TEXT nor NAME:TYPE=VALUE", text)
	}
	if colon := strings.LastIndex(name, ":"); colon > 0 {
		if kind := entities.ValueType(name[colon+1:]); kind != "" {
			read := propertyTypes[kind]
			if read == nil {
				return "", nil, exit.Usagef("property %q: send writes no %s; send --jsonl takes every type", text, kind)
			}
			if value, err = read(of); err != nil {
				return "", nil, exit.Usagef("property %q: %q is not of the type %s", text, of, kind)
			}
			return name[:colon], value, nil
		}
	}
	return name, of, nil
}
