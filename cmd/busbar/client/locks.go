package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

func queueLocksCommand(f *dial.Flags) *cobra.Command {
	var l listFlags
	c := &cobra.Command{
		Use: "locks NAME", Short: "List the locked messages and who holds them",
		Long: "A lock is kept with the number of the link that took it. What that link and its client are called is\n" +
			"known to the node that they are connected to, for ten minutes after their end, so every node is asked.",
		Example: "  busbar queue locks orders\n  busbar queue locks orders --dlq --json",
		RunE: func(c *cobra.Command, args []string) error {
			if l.max < 0 {
				return exit.Usagef("--max must not be negative")
			}
			i, err := inspect(f, &l.ops, args, l.dead)
			if err != nil {
				return err
			}
			all, silent, err := i.locks(c.Context(), l.max)
			if err != nil {
				return err
			}
			if len(silent) > 0 {
				fmt.Fprintf(c.ErrOrStderr(), "these nodes do not answer, the names of their clients are missing: %s\n",
					strings.Join(silent, ", "))
			}
			return printRows(c, f, all, []column{{"NUMBER", "sequenceNumber"}, {"TOKEN", "token"}, {"TAKEN", "takenAt"},
				{"UNTIL", "lockedUntil"}, {"STATE", "state"}, {"SESSION", "sessionId"}, {"MODE", "sessionMode"}, {"CLIENT", "client"},
				{"LINK", "link"}, {"REMOTE", "remote"}, {"BY", "takenBy"}})
		},
	}
	l.add(c, "locks")
	c.AddCommand(locksReleaseCommand(f))
	return c
}

// locks lists the locks of the known node, each as the node tells it that knows who took it (S-272).
func (i *inspector) locks(ctx context.Context, most int) (all []json.RawMessage, silent []string, err error) {
	type lock struct {
		SequenceNumber json.Number
		Token, Client  string
	}
	list := func(at *inspector, each func(lock, json.RawMessage)) error {
		return at.list(ctx, "locks", "locks", url.Values{}, most, func(raw json.RawMessage) error {
			var k lock
			if err := json.Unmarshal(raw, &k); err != nil {
				return fmt.Errorf("locks of %s: %w", i.path, err)
			}
			each(k, raw)
			return nil
		})
	}
	nameless := map[lock]int{} // places in all
	err = list(i, func(k lock, raw json.RawMessage) {
		if k.Client == "" {
			nameless[k] = len(all)
		}
		all = append(all, raw)
	})
	if err != nil || len(nameless) == 0 {
		return all, nil, err
	}
	silent, err = i.everyNode(ctx, func(at *inspector) error {
		return list(at, func(k lock, raw json.RawMessage) {
			named := k.Client != ""
			k.Client = ""
			if place, ok := nameless[k]; ok && named {
				all[place] = raw
			}
		})
	})
	return all, silent, err
}
