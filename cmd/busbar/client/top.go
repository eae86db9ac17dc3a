package client

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// topRow is one entity, with how fast its counters change.
type topRow struct {
	Name          string  `json:"name"`
	Kind          string  `json:"kind"`
	Active        int64   `json:"active"`
	ActiveRate    float64 `json:"activePerSecond"`
	Dead          int64   `json:"deadLetter"`
	DeadRate      float64 `json:"deadLetterPerSecond"`
	Scheduled     int64   `json:"scheduled"`
	ScheduledRate float64 `json:"scheduledPerSecond"`
	Bytes         int64   `json:"bytes"`
}

// speed orders entities: that which changes most is first.
func (r *topRow) speed() float64 {
	return max(r.ActiveRate, -r.ActiveRate) + max(r.DeadRate, -r.DeadRate) + max(r.ScheduledRate, -r.ScheduledRate)
}

// NewTopCommand makes busbar top.
func NewTopCommand() *cobra.Command {
	var every time.Duration
	var most int
	var once bool
	c := &cobra.Command{
		Use: "top", Short: "Show live which queues and subscriptions grow and shrink", Args: exactly(0),
		Long: "Show live which queues and subscriptions grow and shrink: those that change most are first, and then those that " +
			"hold most.\n\nThe rates are those of the counts. A queue into which as much comes as is taken out of it has a rate of 0; " +
			"the metrics of entities count both ways.",
		Example: "  busbar top\n  busbar top --every 10s --max 5\n  busbar top --once -o json",
	}
	f := dial.AddFlags(c)
	c.Flags().DurationVar(&every, "every", 2*time.Second, "the time over which changes are counted, and the pause between two looks")
	c.Flags().IntVar(&most, "max", 20, "entities to show at most, 0 for all")
	c.Flags().BoolVar(&once, "once", false, "show it once and end")
	c.RunE = func(c *cobra.Command, _ []string) error {
		t, err := f.Target()
		if err != nil {
			return err
		}
		if every < 100*time.Millisecond || most < 0 {
			return exit.Usagef("--every must be at least 100ms, and --max not negative")
		}
		m := dial.NewManagement(t, f.Timeout)
		before, err := countAll(c, m)
		if err != nil {
			return err
		}
		select {
		case <-time.After(every):
		case <-c.Context().Done():
			return c.Context().Err()
		}
		show := func() error {
			now, err := countAll(c, m)
			if err != nil {
				return err
			}
			rows := now.since(before)
			before = now
			if most > 0 {
				rows = rows[:min(len(rows), most)]
			}
			return printTop(c, f, rows)
		}
		if once {
			return show()
		}
		return dial.Again(c, every, show)
	}
	return c
}

// topCounts are the counts of all entities at one moment.
type topCounts struct {
	at  time.Time
	all map[string]topRow
}

func countAll(c *cobra.Command, m *dial.Management) (*topCounts, error) {
	all, err := entities.ListAll(c.Context(), m)
	if err != nil {
		return nil, err
	}
	counts := &topCounts{at: time.Now(), all: map[string]topRow{}}
	for _, d := range all {
		row := topRow{Name: d.Path, Kind: d.Kind}
		row.Active, _ = d.Count("ActiveMessageCount")
		row.Dead, _ = d.Count("DeadLetterMessageCount")
		row.Scheduled, _ = d.Count("ScheduledMessageCount")
		row.Bytes, _ = strconv.ParseInt(d.Value("SizeInBytes"), 10, 64)
		counts.all[d.Path] = row
	}
	return counts, nil
}

// since returns the entities with their rates, in the order of speed and then of size. A new entity has no rate.
func (now *topCounts) since(before *topCounts) []topRow {
	seconds := max(now.at.Sub(before.at).Seconds(), 0.001)
	rows := []topRow{}
	for name, row := range now.all {
		if was, known := before.all[name]; known {
			rate := func(a, b int64) float64 { return float64(a-b) / seconds }
			row.ActiveRate, row.DeadRate = rate(row.Active, was.Active), rate(row.Dead, was.Dead)
			row.ScheduledRate = rate(row.Scheduled, was.Scheduled)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b topRow) int {
		return cmp.Or(cmp.Compare(b.speed(), a.speed()), cmp.Compare(b.Active+b.Dead, a.Active+a.Dead), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

func printTop(c *cobra.Command, f *dial.Flags, rows []topRow) error {
	if f.Output == "json" {
		return dial.PrintJSON(c.OutOrStdout(), rows)
	}
	table := [][]string{{"ENTITY", "KIND", "ACTIVE", "+/- PER S", "DEAD", "+/- PER S", "SCHEDULED", "BYTES"}}
	rate := func(x float64) string {
		if x == 0 {
			return "-"
		}
		return fmt.Sprintf("%+.1f", x)
	}
	for _, r := range rows {
		table = append(table, []string{printable(r.Name), r.Kind, strconv.FormatInt(r.Active, 10), rate(r.ActiveRate), strconv.FormatInt(r.Dead, 10),
			rate(r.DeadRate), strconv.FormatInt(r.Scheduled, 10), strconv.FormatInt(r.Bytes, 10)})
	}
	return dial.PrintTable(c.OutOrStdout(), table)
}
