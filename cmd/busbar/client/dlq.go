package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// NewDeadLetterCommand makes busbar dlq: what an operator does with dead letters.
func NewDeadLetterCommand() *cobra.Command {
	c := &cobra.Command{Use: "dlq", Short: "Work on dead-letter queues", Args: cobra.NoArgs, RunE: showHelp}
	f := dial.AddFlags(c)
	c.AddCommand(dial.AddWatch(deadListCommand(f), f), dial.AddWatch(deadStatsCommand(f), f), deadShowCommand(f), redriveCommand(f), deadEditCommand(f), deadDeleteCommand(f))
	return c
}

// deadRow is an entity with dead letters.
type deadRow struct {
	Name               string `json:"name"`
	Kind               string `json:"kind"`
	DeadLetter         int64  `json:"deadLetter"`
	TransferDeadLetter int64  `json:"transferDeadLetter"`
}

func deadListCommand(f *dial.Flags) *cobra.Command {
	var l listFlags
	var filter, reason string
	c := &cobra.Command{
		Use: "list [QUEUE]", Short: "List the entities that have dead letters, or the dead letters of one",
		Long: "Without a queue the command lists the queues and subscriptions that have dead letters, and how many. With one it " +
			"lists its dead letters.",
		Example: "  busbar dlq list\n  busbar dlq list orders --reason MaxDeliveryCountExceeded\n" +
			"  busbar dlq list trade/Subscriptions/eu --filter \"sys.DeliveryCount > 3\" -o json",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listDeadEntities(c, f)
			}
			l.dead = true
			values := url.Values{}
			if reason != "" {
				if filter != "" {
					filter = "(" + filter + ") AND "
				}
				filter += "DeadLetterReason = " + sqlText(reason)
			}
			if filter != "" {
				values.Set("filter", filter)
			}
			return l.run(c, f, args, "messages", "messages", values, []column{{"NUMBER", "sequenceNumber"}, {"ENQUEUED", "enqueuedAt"},
				{"COUNT", "deliveryCount"}, {"MESSAGE", "messageId"}, {"REASON", "deadLetterReason"},
				{"DESCRIPTION", "deadLetterErrorDescription"}, {"BODY", "body"}})
		},
	}
	addOpsFlag(c, &l.ops)
	c.Flags().IntVar(&l.max, "max", 100, "dead letters to print at most, 0 for all")
	c.Flags().StringVar(&filter, "filter", "", filterUsage)
	c.Flags().StringVar(&reason, "reason", "", "only messages that died for this reason")
	return c
}

// sqlText is a text in the language of rules.
func sqlText(s string) string {
	quoted := "'"
	for _, r := range s {
		if quoted += string(r); r == '\'' {
			quoted += "'"
		}
	}
	return quoted + "'"
}

func listDeadEntities(c *cobra.Command, f *dial.Flags) error {
	t, err := f.Target()
	if err != nil {
		return err
	}
	all, err := entities.ListAll(c.Context(), dial.NewManagement(t, f.Timeout))
	if err != nil {
		return err
	}
	found := []deadRow{}
	for _, d := range all {
		row := deadRow{Name: d.Path, Kind: d.Kind}
		row.DeadLetter, _ = d.Count("DeadLetterMessageCount")
		row.TransferDeadLetter, _ = d.Count("TransferDeadLetterMessageCount")
		if row.DeadLetter+row.TransferDeadLetter > 0 {
			found = append(found, row)
		}
	}
	slices.SortStableFunc(found, func(a, b deadRow) int { return cmp.Compare(b.DeadLetter, a.DeadLetter) })
	if f.Output == "json" {
		return dial.PrintJSON(c.OutOrStdout(), found)
	}
	rows := [][]string{{"ENTITY", "KIND", "DEAD", "OF TRANSFER"}}
	for _, row := range found {
		rows = append(rows, []string{row.Name, row.Kind, strconv.FormatInt(row.DeadLetter, 10), strconv.FormatInt(row.TransferDeadLetter, 10)})
	}
	return dial.PrintTable(c.OutOrStdout(), rows)
}

// deadReason counts the dead letters of a reason.
type deadReason struct {
	Reason  string     `json:"reason"`
	Count   uint64     `json:"count"`
	Oldest  *time.Time `json:"oldest,omitempty"`
	Newest  *time.Time `json:"newest,omitempty"`
	Example string     `json:"example"`
}

func deadStatsCommand(f *dial.Flags) *cobra.Command {
	var ops opsFlags
	c := &cobra.Command{
		Use: "stats QUEUE", Short: "Count dead letters by their reasons",
		RunE: func(c *cobra.Command, args []string) error {
			i, err := inspect(f, &ops, args, true)
			if err != nil {
				return err
			}
			found := []*deadReason{}
			err = i.list(c.Context(), "reasons", "reasons", url.Values{}, 0, func(raw json.RawMessage) error {
				r := &deadReason{}
				if err := json.Unmarshal(raw, r); err != nil {
					return err
				}
				n := slices.IndexFunc(found, func(x *deadReason) bool { return x.Reason == r.Reason })
				if n < 0 {
					found = append(found, r)
					return nil
				}
				found[n].add(r)
				return nil
			})
			if err != nil {
				return err
			}
			slices.SortStableFunc(found, func(a, b *deadReason) int { return cmp.Compare(b.Count, a.Count) })
			if f.Output == "json" {
				return dial.PrintJSON(c.OutOrStdout(), found)
			}
			rows := [][]string{{"REASON", "MESSAGES", "OLDEST", "NEWEST", "DESCRIPTION OF ONE"}}
			for _, r := range found {
				rows = append(rows, []string{textCell(r.Reason), numberText(r.Count), dateCell(r.Oldest), dateCell(r.Newest), textCell(r.Example)})
			}
			return dial.PrintTable(c.OutOrStdout(), rows)
		},
	}
	addOpsFlag(c, &ops)
	return c
}

// add adds what another page has counted.
func (r *deadReason) add(o *deadReason) {
	r.Count += o.Count
	if o.Oldest != nil && (r.Oldest == nil || o.Oldest.Before(*r.Oldest)) {
		r.Oldest = o.Oldest
	}
	if o.Newest != nil && (r.Newest == nil || o.Newest.After(*r.Newest)) {
		r.Newest, r.Example = o.Newest, o.Example
	}
}

func dateCell(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

func deadShowCommand(f *dial.Flags) *cobra.Command {
	var ops opsFlags
	c := &cobra.Command{
		Use: "show QUEUE NUMBER", Short: "Show one dead letter with all that is known of it",
		RunE: func(c *cobra.Command, args []string) error {
			if err := exactly(2)(c, args); err != nil {
				return err
			}
			number, err := strconv.ParseUint(args[1], 10, 63)
			if err != nil || number == 0 {
				return exit.Usagef("%q is no sequence number; busbar dlq list %s prints them", args[1], args[0])
			}
			i, err := inspect(f, &ops, args[:1], true)
			if err != nil {
				return err
			}
			raw, err := i.message(c, number)
			if err != nil {
				return err
			}
			if f.Output == "json" {
				_, err := fmt.Fprintf(c.OutOrStdout(), "%s\n", raw)
				return err
			}
			text, err := dial.YAML(raw)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
	addOpsFlag(c, &ops)
	return c
}

// message asks for the message with a number.
func (i *inspector) message(c *cobra.Command, number uint64) (json.RawMessage, error) {
	var answer struct {
		Messages []json.RawMessage `json:"messages"`
	}
	values := url.Values{"from": {numberText(number)}, "max": {"1"}}
	for {
		var next struct {
			Next string `json:"next"`
		}
		var raw json.RawMessage
		if err := i.call(c.Context(), http.MethodGet, "messages", values, nil, &raw); err != nil {
			return nil, err
		}
		if err := cmp.Or(json.Unmarshal(raw, &answer), json.Unmarshal(raw, &next)); err != nil {
			return nil, err
		}
		if len(answer.Messages) > 0 || next.Next == "" {
			break
		}
		values.Set("cursor", next.Next) // a share of a partitioned entity without such numbers
	}
	if len(answer.Messages) > 0 {
		var m struct{ SequenceNumber uint64 }
		if err := json.Unmarshal(answer.Messages[0], &m); err != nil {
			return nil, err
		}
		if m.SequenceNumber == number {
			return answer.Messages[0], nil
		}
	}
	return nil, exit.With(exit.NotFound, fmt.Errorf("%s has no message %d", i.path, number))
}

func deadDeleteCommand(f *dial.Flags) *cobra.Command {
	n := numberedFlags{dead: true}
	c := &cobra.Command{
		Use: "delete QUEUE NUMBER...", Short: "Delete dead letters by their numbers, or by a filter",
		Example: "  busbar dlq delete orders 4711\n  busbar dlq delete orders --filter \"DeadLetterReason = 'Poison'\" --yes",
		RunE:    func(c *cobra.Command, args []string) error { return n.run(c, f, deletes, args) },
	}
	n.addDelete(c)
	return c
}
