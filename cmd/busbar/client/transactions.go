package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

func queueTransactionsCommand(f *dial.Flags) *cobra.Command {
	var ops opsFlags
	var ended bool
	c := &cobra.Command{
		Use: "transactions NAME", Short: "List the transactions that use a queue and are not committed",
		Long: "An open transaction lives in the node that its client is connected to, so every node is asked. With\n" +
			"--ended those are listed, too, that ended in the last ten minutes, with what became of them.",
		Example: "  busbar queue transactions orders\n  busbar queue transactions orders --ended --json",
		RunE: func(c *cobra.Command, args []string) error {
			i, err := inspect(f, &ops, args, false)
			if err != nil {
				return err
			}
			all, silent, err := i.transactions(c.Context(), ended)
			if err != nil {
				return err
			}
			if len(silent) > 0 {
				fmt.Fprintf(c.ErrOrStderr(), "these nodes do not answer, their transactions are missing: %s\n",
					strings.Join(silent, ", "))
			}
			return printTransactions(c, f, all)
		},
	}
	addOpsFlag(c, &ops)
	c.Flags().BoolVar(&ended, "ended", false, "list those that ended in the last ten minutes, too")
	return c
}

// transactions asks every node; silent are those that do not answer.
func (i *inspector) transactions(ctx context.Context, ended bool) (all []json.RawMessage, silent []string, err error) {
	values := url.Values{"ended": {fmt.Sprint(ended)}}
	silent, err = i.everyNode(ctx, func(at *inspector) error {
		var answer struct{ Transactions []json.RawMessage }
		err := at.call(ctx, http.MethodGet, "transactions", values, nil, &answer)
		all = append(all, answer.Transactions...)
		return err
	})
	return all, silent, err
}

// everyNode asks every node that tells where its operations port is, or the one that is known if none
// can be asked; silent are those that do not answer. All have TLS on that port, or none.
func (i *inspector) everyNode(ctx context.Context, ask func(*inspector) error) (silent []string, err error) {
	body, err := i.ops.call(ctx, http.MethodGet, "/api/cluster")
	if err != nil {
		return nil, err
	}
	var s struct {
		Nodes []struct{ ID, Operations string }
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("cluster status: %w", err)
	}
	base, err := i.ops.address()
	if err != nil {
		return nil, err
	}
	scheme, _, _ := strings.Cut(base, "://")
	asked := 0
	for _, n := range s.Nodes {
		if n.Operations == "" {
			continue
		}
		ops := *i.ops
		ops.base = scheme + "://" + n.Operations
		if err := ask(&inspector{ops: &ops, t: i.t, path: i.path}); err != nil {
			silent = append(silent, fmt.Sprintf("%s (%v)", n.ID, err))
			continue
		}
		asked++
	}
	if asked == 0 {
		return silent, ask(i)
	}
	return silent, nil
}

func printTransactions(c *cobra.Command, f *dial.Flags, all []json.RawMessage) error {
	return printRows(c, f, all, []column{{"ID", "id"}, {"STATE", "state"}, {"SINCE", "since"}, {"SENDS", "sends"},
		{"SETTLEMENTS", "settlements"}, {"CLIENT", "client"}, {"ENTITIES", "entities"}, {"CAUSE", "cause"}})
}

// printRows prints what has been listed: JSON lines, or a table of the columns.
func printRows(c *cobra.Command, f *dial.Flags, all []json.RawMessage, columns []column) error {
	rows := [][]string{nil}
	for _, col := range columns {
		rows[0] = append(rows[0], col.head)
	}
	for _, raw := range all {
		if f.Output == "json" {
			if _, err := fmt.Fprintf(c.OutOrStdout(), "%s\n", raw); err != nil {
				return err
			}
			continue
		}
		row, err := rowOf(raw, columns)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if f.Output == "json" {
		return nil
	}
	return dial.PrintTable(c.OutOrStdout(), rows)
}
