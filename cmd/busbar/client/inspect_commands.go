package client

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

func queueHistoryCommand(f *dial.Flags) *cobra.Command {
	var l listFlags
	var kind string
	c := &cobra.Command{
		Use: "history NAME", Short: "List what was processed or accepted, or which locks operators took back",
		Long: "A queue keeps the histories of what was processed and accepted when it is told to:\n\n" +
			"  busbar queue options orders --processed-history --accepted-history\n\n" +
			"It always keeps which locks and sessions were released, by whom and when: --kind releases.",
		Example: "  busbar queue history orders\n  busbar queue history orders --kind accepted --max 0 --json",
		RunE: func(c *cobra.Command, args []string) error {
			columns := []column{{"NUMBER", "sequenceNumber"}, {"MESSAGE", "messageId"}, {"SESSION", "sessionId"},
				{"ENQUEUED", "enqueuedAt"}, {"PROCESSED", "at"}, {"DELIVERIES", "deliveries"}, {"BY", "by"}}
			switch kind {
			case "processed":
			case "accepted":
				columns = append(columns[:3:3], column{"ACCEPTED", "at"}, column{"END", "end"}, column{"ENDED", "endedAt"},
					column{"BY", "by"})
			case "releases":
				columns = append(columns[:3:3], column{"RELEASED", "at"}, column{"OPERATOR", "operator"}, column{"HOLDER", "by"})
			default:
				return exit.Usagef("--kind must be processed, accepted or releases, not %q", kind)
			}
			return l.run(c, f, args, "history", "records", url.Values{"kind": {kind}}, columns)
		},
	}
	l.add(c, "records")
	l.addStale(c)
	c.Flags().StringVar(&kind, "kind", "processed", "processed, accepted, or releases: locks and sessions that operators took back")
	return c
}

func queueSessionsCommand(f *dial.Flags) *cobra.Command {
	var l listFlags
	var since string
	c := &cobra.Command{
		Use: "sessions NAME", Short: "List the sessions that have messages or a state",
		Example: "  busbar queue sessions orders --updated-after 2026-01-31T12:00:00Z",
		RunE: func(c *cobra.Command, args []string) error {
			values := url.Values{}
			if since != "" {
				if err := checkTime("--updated-after", since); err != nil {
					return err
				}
				values.Set("updatedAfter", since)
			}
			return l.run(c, f, args, "sessions", "sessions", values, []column{{"SESSION", ""}})
		},
	}
	l.add(c, "sessions")
	c.AddCommand(sessionsReleaseCommand(f))
	l.addStale(c)
	c.Flags().StringVar(&since, "updated-after", "", "only those whose state was set after this time")
	return c
}

func queuePeekCommand(f *dial.Flags) *cobra.Command {
	var l listFlags
	var states, session, filter string
	var from uint64
	c := &cobra.Command{
		Use: "peek NAME", Short: "List messages by state and session, without locking them",
		Example: "  busbar queue peek orders --state scheduled\n  busbar queue peek orders --session s1 --state deferred --json",
		RunE: func(c *cobra.Command, args []string) error {
			values := url.Values{"state": {states}}
			if c.Flags().Changed("session") {
				values.Set("session", session)
			}
			if from > 0 {
				values.Set("from", numberText(from))
			}
			if filter != "" {
				values.Set("filter", filter)
			}
			l.hint = func(i *inspector) error { return topicHint(c, i) }
			return l.run(c, f, args, "messages", "messages", values, []column{{"NUMBER", "sequenceNumber"},
				{"STATE", "state"}, {"ENQUEUED", "enqueuedAt"}, {"SCHEDULED", "scheduledAt"}, {"SESSION", "sessionId"},
				{"COUNT", "deliveryCount"}, {"MESSAGE", "messageId"}, {"REASON", "deadLetterReason"}, {"BODY", "body"}})
		},
	}
	l.add(c, "messages")
	l.addStale(c)
	flags := c.Flags()
	flags.StringVar(&states, "state", "", "active, deferred, scheduled or several of them with commas; all if absent")
	flags.StringVar(&session, "session", "", "only messages of this session")
	flags.StringVar(&filter, "filter", "", filterUsage)
	flags.Uint64Var(&from, "from", 0, "sequence number to begin with")
	return c
}

// topicHint tells on standard error that a topic keeps its messages in its subscriptions, and nothing of other entities.
func topicHint(c *cobra.Command, i *inspector) error {
	var told struct {
		Kind string `json:"kind"`
	}
	if err := i.call(c.Context(), http.MethodGet, "description", nil, nil, &told); err != nil || told.Kind != "topic" {
		return err
	}
	_, err := fmt.Fprintf(c.ErrOrStderr(), "%[1]s is a topic and keeps scheduled messages alone; busbar subscription list %[1]s shows "+
		"where the others are\n", i.path)
	return err
}

// checkTime refuses what is no time before it is sent anywhere.
func checkTime(flag, text string) error {
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		return exit.Usagef("%s must be a time like 2026-01-31T12:00:00Z, not %q", flag, text)
	}
	return nil
}
