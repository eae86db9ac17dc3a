package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// Modes of a request for messages by their sequence numbers (amqp-protocol.md 7.4).
const (
	takeAway uint32 = 0 // receive and delete
	takeLock uint32 = 1 // peek and lock
)

// Values of the annotation x-opt-message-state.
const (
	deferredState  = int32(1)
	scheduledState = int32(2)
)

// byNumber receives deferred messages: those with the numbers of the command line, or the first ones that a peek finds.
func (r *receiveFlags) byNumber(c *cobra.Command, t *dial.Target, f *dial.Flags, path string) error {
	ctx := c.Context()
	out, err := r.printer(c, f)
	if err != nil {
		return err
	}
	w, requests, done, err := openManagement(ctx, t, f.Timeout, path)
	if err != nil {
		return err
	}
	defer done()
	if c.Flags().Changed("session") { // its deferred messages are those of its holder
		held, err := holdSession(ctx, w, path, r.session)
		if err != nil {
			return err
		}
		defer held()
	}
	numbers := r.numbers
	if r.deferred {
		if numbers, err = r.findDeferred(c, w, requests); err != nil {
			return err
		}
		if len(numbers) == 0 {
			fmt.Fprintf(c.ErrOrStderr(), "%s has no deferred message\n", path)
			return nil
		}
	}
	for page := range slices.Chunk(numbers, peekPage) {
		if err := r.takeNumbers(ctx, w, requests, page, r.sessionID(c), out); err != nil {
			return err
		}
	}
	return nil
}

// findDeferred peeks until it has the numbers of enough deferred messages.
func (r *receiveFlags) findDeferred(c *cobra.Command, w *dial.Wire, requests *dial.Requests) (numbers []int64, err error) {
	p := peekRequest{session: r.sessionID(c)}
	for m, err := range p.all(c.Context(), w, requests, 0) {
		if err != nil || len(numbers) == r.max {
			return numbers, err
		}
		if state, _ := m.Annotations["x-opt-message-state"].(int32); state == deferredState {
			numbers = append(numbers, m.number)
		}
	}
	return numbers, nil
}

// sessionID is the session that the command line names, nil if it names none. The empty id names one, too.
func (r *receiveFlags) sessionID(c *cobra.Command) *string {
	if !c.Flags().Changed("session") {
		return nil
	}
	return &r.session
}

// takeNumbers receives the messages with some numbers, prints and settles them.
func (r *receiveFlags) takeNumbers(ctx context.Context, w *dial.Wire, requests *dial.Requests, numbers []int64, session *string,
	out *messagePrinter) error {
	mode := takeLock
	if r.remove {
		mode = takeAway
	}
	body := map[string]any{"sequence-numbers": numbers, "receiver-settle-mode": mode}
	if session != nil {
		body["session-id"] = *session
	}
	answer, err := ask(ctx, w, requests, "receive-by-sequence-number", body)
	if err != nil {
		return dial.Failure("receive by number", err)
	}
	top, _ := answer.Value.(map[string]any)
	entries, _ := top["messages"].([]any)
	if len(entries) != len(numbers) {
		return fmt.Errorf("receive by number: the answer has %d messages of %d", len(entries), len(numbers))
	}
	var tokens []amqp.UUID
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		encoded, ok := entry["message"].([]byte)
		if !ok {
			return errors.New("receive by number: the answer holds no message")
		}
		m := &amqp.Message{}
		if err := m.UnmarshalBinary(encoded); err != nil {
			return fmt.Errorf("receive by number: %w", err)
		}
		if err := out.print(describe(m, true)); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if token, ok := entry["lock-token"].(amqp.UUID); ok {
			tokens = append(tokens, token)
		}
	}
	if r.remove {
		return nil
	}
	if err := r.disposition(ctx, w, requests, tokens, session); err != nil {
		return fmt.Errorf("%w; the messages are deferred again when their locks end", err)
	}
	return nil
}

// disposition settles messages by their lock tokens. A message that is given back stays deferred.
func (r *receiveFlags) disposition(ctx context.Context, w *dial.Wire, requests *dial.Requests, tokens []amqp.UUID, session *string) error {
	body := map[string]any{"lock-tokens": tokens, "disposition-status": "completed"}
	switch {
	case r.deadLet:
		body["disposition-status"] = "suspended"
		if r.reason != "" {
			body["deadletter-reason"] = r.reason
		}
		if r.description != "" {
			body["deadletter-description"] = r.description
		}
	case r.abandon, !r.complete:
		body["disposition-status"] = "abandoned"
	case r.hold:
		body["disposition-status"] = "defered"
	}
	if session != nil {
		body["session-id"] = *session
	}
	_, err := ask(ctx, w, requests, "update-disposition", body)
	return dial.Failure("settle", err)
}

// holdSession locks a session on a connection, until the returned function is called.
func holdSession(ctx context.Context, w *dial.Wire, path, session string) (release func(), err error) {
	limited, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	in, err := w.Session.NewReceiver(limited, path, &amqp.ReceiverOptions{Credit: -1,
		Filters: []amqp.LinkFilter{amqp.NewLinkFilter(dial.SessionFilter, dial.SessionFilterCode, session)}})
	if err != nil {
		return nil, dial.Failure("open session "+session+" of "+path, err)
	}
	return func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.Limit)
		defer cancel()
		_ = in.Close(closing) // the connection ends next, and the session with it
	}, nil
}

// checkNumbers refuses flags that do not go together.
func (r *receiveFlags) checkNumbers() error {
	switch {
	case len(r.numbers) == 0 && !r.deferred:
		return nil
	case r.nextSession:
		return exit.Usagef("--next-session takes what waits; name the session of deferred messages by --session")
	case slices.ContainsFunc(r.numbers, func(n int64) bool { return n < 1 }):
		return exit.Usagef("a sequence number is at least 1")
	}
	return nil
}
