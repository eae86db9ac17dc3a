package client

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// lockToken is the token of the lock under which a message was received, "" if it has none. The tag of a delivery has its
// first three numbers the other way round.
func lockToken(m *amqp.Message) string {
	if len(m.DeliveryTag) != len(uuid.UUID{}) {
		return ""
	}
	token := uuid.UUID(m.DeliveryTag)
	binary.BigEndian.PutUint32(token[0:], binary.LittleEndian.Uint32(m.DeliveryTag[0:]))
	binary.BigEndian.PutUint16(token[4:], binary.LittleEndian.Uint16(m.DeliveryTag[4:]))
	binary.BigEndian.PutUint16(token[6:], binary.LittleEndian.Uint16(m.DeliveryTag[6:]))
	return token.String()
}

// tokensOf reads a queue and tokens of locks.
func tokensOf(c *cobra.Command, args []string, dead bool) (queue string, tokens []amqp.UUID, err error) {
	if len(args) < 2 {
		return "", nil, exit.Usagef("%s takes a queue and at least one token, as busbar receive --keep-locks prints them", c.CommandPath())
	}
	for _, text := range args[1:] {
		token, err := uuid.Parse(text)
		if err != nil {
			return "", nil, exit.Usagef("%q is no token of a lock: %v", text, err)
		}
		tokens = append(tokens, amqp.UUID(token))
	}
	if queue = args[0]; dead {
		queue += "/$DeadLetterQueue"
	}
	return queue, tokens, nil
}

// byToken opens what answers requests of the queue that args name, and reads the tokens behind it. done ends the connection.
func byToken(c *cobra.Command, f *dial.Flags, args []string, dead bool) (queue string, tokens []amqp.UUID, w *dial.Wire, r *dial.Requests,
	done func(), err error) {
	if queue, tokens, err = tokensOf(c, args, dead); err != nil {
		return "", nil, nil, nil, nil, err
	}
	t, err := f.Target()
	if err != nil {
		return "", nil, nil, nil, nil, err
	}
	w, r, done, err = openManagement(c.Context(), t, f.Timeout, queue)
	return queue, tokens, w, r, done, err
}

// NewRenewCommand makes busbar renew.
func NewRenewCommand() *cobra.Command {
	var dead bool
	c := &cobra.Command{
		Use: "renew QUEUE TOKEN...", Short: "Renew locks of messages by their tokens",
		Long: "Renews locks by the tokens that busbar receive --keep-locks has printed. Each lock runs for the lock duration of the " +
			"queue again. All locks are renewed, or none.",
		Example: "  busbar receive orders --keep-locks -o json\n  busbar renew orders 3f6a7b1c-0d2e-4f5a-8b9c-1d2e3f4a5b6c",
	}
	f := dial.AddFlags(c)
	c.Flags().BoolVar(&dead, "dlq", false, "the messages are dead letters")
	c.RunE = func(c *cobra.Command, args []string) error {
		_, tokens, w, r, done, err := byToken(c, f, args, dead)
		if err != nil {
			return err
		}
		defer done()
		answer, err := ask(c.Context(), w, r, "renew-lock", map[string]any{"lock-tokens": tokens})
		if err != nil {
			return dial.Failure("renew", err)
		}
		top, _ := answer.Value.(map[string]any)
		ends, _ := top["expirations"].([]time.Time)
		if len(ends) != len(tokens) {
			return fmt.Errorf("renew: the answer names %d of %d locks", len(ends), len(tokens))
		}
		rows := [][]string{{"TOKEN", "LOCKED UNTIL"}}
		shown := []map[string]any{}
		for n, token := range tokens {
			id := uuid.UUID(token).String()
			rows = append(rows, []string{id, ends[n].UTC().Format(time.RFC3339)})
			shown = append(shown, map[string]any{"lockToken": id, "lockedUntil": ends[n].UTC()})
		}
		if f.Output == "json" {
			return dial.PrintJSON(c.OutOrStdout(), shown)
		}
		return dial.PrintTable(c.OutOrStdout(), rows)
	}
	return c
}

// NewSettleCommand makes busbar settle.
func NewSettleCommand() *cobra.Command {
	r := receiveFlags{complete: true}
	var dead bool
	c := &cobra.Command{
		Use: "settle QUEUE TOKEN...", Short: "Complete, abandon, defer or dead-letter messages by the tokens of their locks",
		Long:    "Settles messages by the tokens that busbar receive --keep-locks has printed. Without a flag they are completed.",
		Example: "  busbar settle orders 3f6a7b1c-0d2e-4f5a-8b9c-1d2e3f4a5b6c --abandon",
	}
	f := dial.AddFlags(c)
	flags := c.Flags()
	flags.BoolVar(&dead, "dlq", false, "the messages are dead letters")
	flags.BoolVar(&r.abandon, "abandon", false, "give them back")
	flags.BoolVar(&r.hold, "defer", false, "put them aside")
	flags.BoolVar(&r.deadLet, "deadletter", false, "move them to the dead-letter queue")
	flags.StringVar(&r.reason, "reason", "", "reason, with --deadletter")
	flags.StringVar(&r.description, "description", "", "error description, with --deadletter")
	c.MarkFlagsMutuallyExclusive("abandon", "defer", "deadletter")
	c.RunE = func(c *cobra.Command, args []string) error {
		queue, tokens, w, requests, done, err := byToken(c, f, args, dead)
		if err != nil {
			return err
		}
		defer done()
		if err := r.disposition(c.Context(), w, requests, tokens, nil); err != nil {
			return err
		}
		verb := "completed"
		switch {
		case r.abandon:
			verb = "abandoned"
		case r.hold:
			verb = "deferred"
		case r.deadLet:
			verb = "dead-lettered"
		}
		return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"settled": len(tokens), "queue": queue, "as": verb},
			fmt.Sprintf("%s %s of %s", verb, dial.Plural(len(tokens), "message"), strings.TrimSuffix(queue, "/")))
	}
	return c
}
