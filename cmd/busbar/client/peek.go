package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/cmd/busbar/lines"
)

// peekPage is how many messages one request asks for.
const peekPage = 100

// peekFlags are the flags of commands that look at messages.
type peekFlags struct {
	from           int64
	max            int
	session        string
	filter, format string
	dead           bool
}

// filterUsage describes the flag --filter.
const filterUsage = "only messages that a SQL filter selects, as in rules: \"region = 'eu' AND sys.DeliveryCount > 1\""

// NewPeekCommand makes busbar peek.
func NewPeekCommand() *cobra.Command {
	var p peekFlags
	c := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Print messages without locking or removing them",
		Long: "Print messages without locking or removing them. A subscription is named by TOPIC/Subscriptions/NAME.\n\n" +
			"With -o jsonl each line holds all that AMQP says of a message; busbar send --jsonl sends such lines again.",
		Example: "  busbar peek orders --filter \"region = 'eu'\" --max 5\n  busbar peek orders --dlq -f '%n %r %v\\n'\n" +
			"  busbar peek orders --max 0 -o jsonl > orders.jsonl",
	}
	f := dial.AddFlags(c)
	flags := c.Flags()
	flags.Int64Var(&p.from, "from", 0, "sequence number to begin with")
	flags.IntVar(&p.max, "max", 10, "messages to print at most, 0 for all")
	flags.StringVar(&p.session, "session", "", "only messages of this session")
	flags.StringVar(&p.filter, "filter", "", filterUsage)
	flags.StringVarP(&p.format, "format", "f", "", formatUsage)
	flags.BoolVar(&p.dead, "dlq", false, "look into the dead-letter queue")
	c.RunE = func(c *cobra.Command, args []string) error {
		t, err := f.Target()
		if err != nil {
			return err
		}
		queue, rest, err := t.Queue(args)
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			return exit.Usagef("peek takes one queue")
		}
		if p.max < 0 || p.from < 0 {
			return exit.Usagef("--max and --from must not be negative")
		}
		return p.run(c, t, f, queue)
	}
	return c
}

func (p *peekFlags) run(c *cobra.Command, t *dial.Target, f *dial.Flags, queue string) error {
	if p.dead {
		queue += "/$DeadLetterQueue"
	}
	out, err := newMessagePrinter(c.OutOrStdout(), f, p.format)
	if err != nil {
		return err
	}
	w, r, done, err := openManagement(c.Context(), t, f.Timeout, queue)
	if err != nil {
		return err
	}
	defer done()
	ask, any := p.request(c), false
	for m, err := range ask.all(c.Context(), w, r, p.max) {
		if err != nil {
			return err
		}
		any = true
		if err := out.printEncoded(m.payload, m.Message); err != nil {
			return err
		}
	}
	if !any && f.Output == "table" && p.format == "" { // a program sees that there is nothing
		fmt.Fprintf(c.ErrOrStderr(), "%s has no such message; those of a topic are in its subscriptions, TOPIC/Subscriptions/NAME\n", printable(queue))
	}
	return nil
}

// request is the first request of the flags.
func (p *peekFlags) request(c *cobra.Command) peekRequest {
	ask := peekRequest{from: p.from, filter: p.filter}
	if c.Flags().Changed("session") {
		ask.session = &p.session
	}
	return ask
}

// peekRequest asks for a page of messages.
type peekRequest struct {
	from     int64   // sequence number
	count    int     // messages at most
	session  *string // nil for messages of all sessions and of none
	filter   string  // "" for none
	bodiless bool    // bodies are left out
	lines    bool    // messages are wanted as lines, which hold types that the library does not know
}

// peeked is a message that a peek has shown.
type peeked struct {
	*amqp.Message
	payload []byte // as the broker has encoded it
	number  int64
	line    *lines.Message // in the place of Message, when lines are wanted
}

// read decodes the payload, as a line or with the library.
func (m *peeked) read(asLine bool) (err error) {
	if asLine {
		if m.line, err = lines.FromBroker(m.payload); err == nil && m.line.SequenceNumber != nil {
			m.number = *m.line.SequenceNumber
		}
		return err
	}
	m.Message = &amqp.Message{}
	if err := m.UnmarshalBinary(m.payload); err != nil {
		return err
	}
	m.number, _ = m.Annotations["x-opt-sequence-number"].(int64)
	return nil
}

// all yields the messages from a number on, as many as most, 0 for all. It asks for page after page.
func (p *peekRequest) all(ctx context.Context, w *dial.Wire, r *dial.Requests, most int) iter.Seq2[peeked, error] {
	return func(yield func(peeked, error) bool) {
		page := *p
		for left := most; most == 0 || left > 0; {
			page.count = peekPage
			if most > 0 {
				page.count = min(left, peekPage)
			}
			shown, next, err := page.send(ctx, w, r)
			if err != nil {
				yield(peeked{}, err)
				return
			}
			for _, m := range shown {
				if !yield(m, nil) {
					return
				}
			}
			if left -= len(shown); next == 0 {
				return
			}
			page.from = next
		}
	}
}

// send returns a page of messages, and the number to go on with, 0 at the end.
func (p *peekRequest) send(ctx context.Context, w *dial.Wire, r *dial.Requests) (page []peeked, next int64, err error) {
	body := map[string]any{"from-sequence-number": p.from, "message-count": int32(p.count)}
	if p.session != nil {
		body["session-id"] = *p.session
	}
	if p.filter != "" {
		body["sql-filter"] = p.filter
	}
	if p.bodiless {
		body["omit-message-body"] = true
	}
	answer, err := ask(ctx, w, r, "peek-message", body)
	if err != nil {
		return nil, 0, dial.Failure("peek", err)
	}
	top, _ := answer.Value.(map[string]any)
	entries, _ := top["messages"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		var m peeked
		var ok bool
		if m.payload, ok = entry["message"].([]byte); !ok {
			return nil, 0, fmt.Errorf("peek: the answer holds no message")
		}
		if err := m.read(p.lines); err != nil {
			return nil, 0, fmt.Errorf("peek: the message behind number %d: %w", max(p.from, next)-1, err)
		}
		if m.number < max(p.from, next) {
			return nil, 0, fmt.Errorf("peek: number %d came after %d", m.number, max(p.from, next)-1)
		}
		page, next = append(page, m), m.number+1
	}
	if p.filter != "" { // the broker alone knows how far it looked
		if next, _ = top["next-sequence-number"].(int64); next != 0 && next <= p.from {
			return nil, 0, fmt.Errorf("peek: the broker goes on at %d behind %d", next, p.from)
		}
	}
	return page, next, nil
}
