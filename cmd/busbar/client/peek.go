package client

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// peekPage is how many messages one request asks for.
const peekPage = 100

type peekFlags struct {
	from    int64
	max     int
	session string
	dead    bool
}

// NewPeekCommand makes busbar peek.
func NewPeekCommand() *cobra.Command {
	var p peekFlags
	c := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Print messages without locking or removing them",
	}
	f := dial.AddFlags(c)
	flags := c.Flags()
	flags.Int64Var(&p.from, "from", 0, "sequence number to begin with")
	flags.IntVar(&p.max, "max", 10, "messages to print at most")
	flags.StringVar(&p.session, "session", "", "only messages of this session")
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
		if p.max < 1 || p.from < 0 {
			return exit.Usagef("--max must be at least 1 and --from not negative")
		}
		return p.run(c, t, f, queue)
	}
	return c
}

func (p *peekFlags) run(c *cobra.Command, t *dial.Target, f *dial.Flags, queue string) error {
	if p.dead {
		queue += "/$DeadLetterQueue"
	}
	ctx := c.Context()
	w, r, done, err := openManagement(ctx, t, f.Timeout, queue)
	if err != nil {
		return err
	}
	defer done()
	out := &messagePrinter{w: c.OutOrStdout(), json: f.Output == "json"}
	for from, left := p.from, p.max; left > 0; {
		page, err := p.page(ctx, w, r, from, min(left, peekPage), c.Flags().Changed("session"))
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		for _, m := range page {
			s := describe(m, false)
			if err := out.print(s); err != nil {
				return err
			}
			if s.SequenceNumber < from {
				return fmt.Errorf("peek: number %d came after %d", s.SequenceNumber, from)
			}
			from = s.SequenceNumber + 1
		}
		left -= len(page)
	}
	return nil
}

// page asks for up to count messages from a number on.
func (p *peekFlags) page(ctx context.Context, w *dial.Wire, r *dial.Requests, from int64, count int, inSession bool) ([]*amqp.Message, error) {
	ask := peekRequest{from: from, count: count}
	if inSession {
		ask.session = &p.session
	}
	encoded, err := ask.send(ctx, w, r)
	if err != nil {
		return nil, err
	}
	var page []*amqp.Message
	for _, payload := range encoded {
		m := &amqp.Message{}
		if err := m.UnmarshalBinary(payload); err != nil {
			return nil, fmt.Errorf("peek: %w", err)
		}
		page = append(page, m)
	}
	return page, nil
}

// peekRequest asks for a page of messages.
type peekRequest struct {
	from    int64   // sequence number
	count   int     // messages at most
	session *string // nil for messages of all sessions and of none
}

// send returns the messages as the broker has encoded them.
func (p *peekRequest) send(ctx context.Context, w *dial.Wire, r *dial.Requests) ([][]byte, error) {
	body := map[string]any{"from-sequence-number": p.from, "message-count": int32(p.count)}
	if p.session != nil {
		body["session-id"] = *p.session
	}
	answer, err := ask(ctx, w, r, "peek-message", body)
	if err != nil {
		return nil, dial.Failure("peek", err)
	}
	top, _ := answer.Value.(map[string]any)
	entries, _ := top["messages"].([]any)
	var page [][]byte
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		encoded, ok := entry["message"].([]byte)
		if !ok {
			return nil, fmt.Errorf("peek: the answer holds no message")
		}
		page = append(page, encoded)
	}
	return page, nil
}
