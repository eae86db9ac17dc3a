package client

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// scheduleAtOnce is how many messages one request schedules: a request is one frame of the log.
const scheduleAtOnce = 100

// due is the time that --in and --at name; the zero time if neither is given.
func (s *sendFlags) due(c *cobra.Command, now time.Time) (time.Time, error) {
	switch {
	case c.Flags().Changed("in"):
		if s.in < 0 {
			return time.Time{}, exit.Usagef("--in is %v, want a duration from 0", s.in)
		}
		return now.Add(s.in), nil
	case s.at != "":
		at, err := time.Parse(time.RFC3339, s.at)
		if err != nil {
			return time.Time{}, exit.Usagef("--at %q is no time such as 2026-01-31T08:00:00Z", s.at)
		}
		return at, nil
	}
	return time.Time{}, nil
}

// schedule gives messages to the broker for a later time and returns their numbers, by which cancel finds them.
func (s *sendFlags) schedule(c *cobra.Command, t *dial.Target, f *dial.Flags, queue string, source bodies, at time.Time) (numbers []int64, err error) {
	ctx := c.Context()
	w, r, done, err := openManagement(ctx, t, f.Timeout, queue)
	if err != nil {
		return nil, err
	}
	defer done()
	var page []any
	flush := func() error {
		if len(page) == 0 {
			return nil
		}
		got, err := scheduleMessages(ctx, w, r, page)
		numbers, page = append(numbers, got...), nil
		return err
	}
	for body, err := range source {
		var m *amqp.Message
		if err == nil {
			m, err = s.message(c, body)
		}
		var entry map[string]any
		if err == nil {
			entry, err = scheduled(m, at)
		}
		if err != nil {
			return numbers, err
		}
		if page = append(page, entry); len(page) == scheduleAtOnce {
			if err := flush(); err != nil {
				return numbers, err
			}
		}
	}
	return numbers, flush()
}

// openManagement connects to the node of an entity that answers requests; done ends the connection.
func openManagement(ctx context.Context, t *dial.Target, limit time.Duration, queue string) (w *dial.Wire, r *dial.Requests, done func(), err error) {
	if w, err = dial.Connect(ctx, t, queue, limit); err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if r, err = w.OpenRequests(ctx, queue+"/$management"); err != nil {
		w.Close()
		return nil, nil, nil, err
	}
	return w, r, func() { r.Close(); w.Close() }, nil
}

// ask sends one request to the node of an entity.
func ask(ctx context.Context, w *dial.Wire, r *dial.Requests, operation string, body map[string]any) (*amqp.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	return r.Call(ctx, &amqp.Message{
		ApplicationProperties: map[string]any{"operation": "com.microsoft:" + operation},
		Value:                 body,
	})
}

// scheduled is one message of a request, as the service reads it.
func scheduled(m *amqp.Message, at time.Time) (map[string]any, error) {
	if m.Annotations == nil {
		m.Annotations = amqp.Annotations{}
	}
	m.Annotations["x-opt-scheduled-enqueue-time"] = at.UTC()
	encoded, err := m.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("encode the message: %w", err)
	}
	entry := map[string]any{"message-id": fmt.Sprint(m.Properties.MessageID), "message": encoded}
	if m.Properties.GroupID != nil {
		entry["session-id"] = *m.Properties.GroupID
	}
	if key, ok := m.Annotations["x-opt-partition-key"].(string); ok {
		entry["partition-key"] = key
	}
	return entry, nil
}

func scheduleMessages(ctx context.Context, w *dial.Wire, r *dial.Requests, messages []any) ([]int64, error) {
	answer, err := ask(ctx, w, r, "schedule-message", map[string]any{"messages": messages})
	if err != nil {
		return nil, dial.Failure("schedule", err)
	}
	top, _ := answer.Value.(map[string]any)
	numbers, ok := top["sequence-numbers"].([]int64)
	if !ok || len(numbers) != len(messages) {
		return nil, fmt.Errorf("schedule: the answer names %d of %d messages", len(numbers), len(messages))
	}
	return numbers, nil
}

// NewCancelCommand makes busbar cancel.
func NewCancelCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "cancel QUEUE NUMBER...", Short: "Cancel scheduled messages by their sequence numbers",
		Long:    "busbar send --in and --at print the numbers; busbar queue peek QUEUE --state scheduled lists them.",
		Example: "  busbar send orders hello --in 1h\n  busbar cancel orders 4711",
	}
	f := dial.AddFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		t, err := f.Target()
		if err != nil {
			return err
		}
		if len(args) < 2 {
			return exit.Usagef("%s takes a queue or topic and at least one number", c.CommandPath())
		}
		queue := args[0]
		numbers := make([]int64, len(args)-1)
		for i, text := range args[1:] {
			if numbers[i], err = strconv.ParseInt(text, 10, 64); err != nil {
				return exit.Usagef("%q is no sequence number", text)
			}
		}
		if err := cancelScheduled(c.Context(), t, f.Timeout, queue, numbers); err != nil {
			return err
		}
		return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"cancelled": numbers, "queue": queue},
			fmt.Sprintf("cancelled %s of %s", dial.Plural(len(numbers), "message"), queue))
	}
	return c
}

func cancelScheduled(ctx context.Context, t *dial.Target, limit time.Duration, queue string, numbers []int64) error {
	w, r, done, err := openManagement(ctx, t, limit, queue)
	if err != nil {
		return err
	}
	defer done()
	_, err = ask(ctx, w, r, "cancel-scheduled-message", map[string]any{"sequence-numbers": numbers})
	return dial.Failure("cancel", err)
}

// numbersText lists numbers for a person.
func numbersText(numbers []int64) string {
	parts := make([]string, len(numbers))
	for i, n := range numbers {
		parts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(parts, " ")
}
