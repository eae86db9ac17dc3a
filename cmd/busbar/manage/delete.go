package manage

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

func (v *verbs) delete() *cobra.Command {
	c := &cobra.Command{Use: "delete " + v.usage(), Short: "Delete a " + v.name() + " and all its messages"}
	yes := c.Flags().Bool("yes", false, "delete it although it holds messages or subscriptions")
	c.RunE = func(c *cobra.Command, args []string) error {
		m, d, err := v.one(c, args, false)
		if err != nil {
			return err
		}
		if held := holds(d); held != "" && !*yes {
			return exit.Usagef("%s holds %s; add --yes to delete it with them", d.Path, held)
		}
		if err := m.Delete(c.Context(), d.Path); err != nil {
			return err
		}
		return dial.PrintDone(c.OutOrStdout(), v.f, map[string]any{"deleted": d.Path}, "deleted "+d.Path)
	}
	return c
}

// holds says what an entity would take with it, "" for nothing.
func holds(d *entities.Description) string {
	var parts []string
	for _, what := range [...]struct{ counter, one, many string }{
		{"ActiveMessageCount", "message", "messages"}, {"DeadLetterMessageCount", "dead letter", "dead letters"},
		{"ScheduledMessageCount", "scheduled message", "scheduled messages"},
		{"TransferMessageCount", "message in transfer", "messages in transfer"},
		{"TransferDeadLetterMessageCount", "transfer dead letter", "transfer dead letters"},
	} {
		switch n, known := d.Count(what.counter); {
		case !known:
			return "an unknown number of messages, because not all partitions answer"
		case n == 1:
			parts = append(parts, "1 "+what.one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, what.many))
		}
	}
	if n, err := strconv.Atoi(d.Value("SubscriptionCount")); err == nil && n > 0 {
		parts = append(parts, fmt.Sprintf("%d subscriptions", n))
	}
	return strings.Join(parts, ", ")
}
