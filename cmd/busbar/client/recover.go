package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/storage"
)

// Verdicts about a group of which replicas are at hand.
const (
	VerdictWhole   = "whole"   // a majority of its voters is at hand: it needs no recovery
	VerdictRecover = "recover" // one replica becomes the only voter
	VerdictLost    = "lost"    // no replica is at hand
)

// RecoveredGroup is what is known of one group of stopped nodes, and what is to be done about it.
type RecoveredGroup struct {
	Partition fsm.PartitionID `json:"partition"`
	Verdict   string          `json:"verdict"`
	Node      fsm.NodeID      `json:"node,omitempty"`    // that has most of the log
	DataDir   string          `json:"dataDir,omitempty"` // of that node
	Last      uint64          `json:"last,omitempty"`    // entry there
	Written   *time.Time      `json:"written,omitempty"` // when that entry was written, nil if only a snapshot knows
	Voters    []fsm.NodeID    `json:"voters,omitempty"`  // of the group, as that node knows
	Missing   []fsm.NodeID    `json:"missing,omitempty"` // voters that are not at hand
	Rebuilt   []string        `json:"rebuilt,omitempty"` // directories of other replicas, which begin anew
	Entities  []string        `json:"entities,omitempty"`
}

// StoppedRecovery looks at the data directories of stopped nodes. With apply it makes one replica of each group that has
// lost its majority the only voter.
type StoppedRecovery func(ctx context.Context, dirs []string, store string, apply bool) ([]RecoveredGroup, error)

type recoverFlags struct {
	dial.Flags
	dirs      []string
	store     string
	yes, lose bool
}

func recoverCommand(recover StoppedRecovery) *cobra.Command {
	f := &recoverFlags{}
	c := &cobra.Command{
		Use: "recover", Args: exactly(0),
		Short: "Go on without a majority that is lost for good; messages may be lost",
		Long: "A cluster whose majority is only away for a while needs nothing but its nodes: start them.\n\n" +
			"This is for disks that are gone for good. Of each partition that has no majority among the given\n" +
			"directories, the replica with most of the log becomes the only voter. THIS MAY LOSE MESSAGES:\n" +
			"  - what a majority without this replica has acknowledged is gone: sends, settlements, session states\n" +
			"  - so a message that was completed may come again, and a message that was accepted may be missing\n" +
			"  - a send or settlement that nobody was told about may count\n" +
			"The nodes that are not given must never start again with their old data: delete their directories.\n\n" +
			"Without --yes the command changes nothing and says what it would do. Stop all nodes before.",
		Example: "  busbar debug recover --data-dir /var/lib/busbar\n" +
			"  busbar debug recover --data-dir /var/lib/busbar --yes\n" +
			"  busbar debug recover --data-dir n1 --data-dir n2 --yes      several survivors, on one machine",
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c, recover) },
	}
	dial.AddOutputFlag(c, &f.Flags)
	flags := c.Flags()
	flags.StringArrayVar(&f.dirs, "data-dir", nil, "data directory of a node that survived and is stopped; give all of them")
	flags.StringVar(&f.store, "log-store", storage.LogWAL, "log store of these directories: wal or boltdb")
	flags.BoolVar(&f.yes, "yes", false, "do it; without it the command only says what it would do")
	flags.BoolVar(&f.lose, "lose-partitions", false, "go on although a partition has no replica in these directories")
	return c
}

func (f *recoverFlags) run(c *cobra.Command, recover StoppedRecovery) error {
	if err := f.CheckOutput(); err != nil {
		return err
	}
	if len(f.dirs) == 0 {
		return exit.Usagef("name the data directory of each node that survived with --data-dir")
	}
	groups, err := recover(c.Context(), f.dirs, f.store, false)
	if err != nil {
		return err
	}
	if err := f.print(c, groups); err != nil {
		return err
	}
	todo, lost := countVerdicts(groups)
	switch {
	case todo == 0 && lost == 0:
		return exit.Usagef("every partition has a majority in these directories: start the nodes, there is nothing to recover")
	case lost > 0 && !f.lose:
		return exit.Usagef("%d partitions have no replica in these directories: give those of all nodes that survived. "+
			"If there are no more, --lose-partitions leaves these partitions without a leader for ever", lost)
	case !f.yes:
		return exit.Usagef("nothing was changed: add --yes to recover %d partitions; what is written after the times above may be lost", todo)
	}
	if _, err := recover(c.Context(), f.dirs, f.store, true); err != nil {
		return fmt.Errorf("%w (what was recovered stays so; the command may be repeated)", err)
	}
	fmt.Fprintf(c.ErrOrStderr(), "recovered %d partitions. Start the nodes of these directories, then empty nodes in the place of "+
		"the lost ones.\nNEVER start a lost node with its old data.\n", todo)
	return nil
}

func countVerdicts(groups []RecoveredGroup) (todo, lost int) {
	for i := range groups {
		switch groups[i].Verdict {
		case VerdictRecover:
			todo++
		case VerdictLost:
			lost++
		}
	}
	return todo, lost
}

func (f *recoverFlags) print(c *cobra.Command, groups []RecoveredGroup) error {
	if f.Output == "json" {
		return dial.PrintJSON(c.OutOrStdout(), groups)
	}
	rows := [][]string{{"PARTITION", "VERDICT", "NODE", "LAST", "WRITTEN", "VOTERS", "MISSING", "ENTITIES"}}
	for i := range groups {
		g := &groups[i]
		name := strconv.Itoa(int(g.Partition))
		if g.Partition == fsm.CatalogPartition {
			name = "catalog"
		}
		written := "-"
		if g.Written != nil {
			written = g.Written.Format(time.RFC3339)
		}
		short := func(ids []fsm.NodeID) string {
			var out []string
			for _, id := range ids {
				out = append(out, shortID(string(id)))
			}
			return orDash(strings.Join(out, ","))
		}
		rows = append(rows, []string{name, g.Verdict, orDash(shortID(string(g.Node))), strconv.FormatUint(g.Last, 10), written,
			short(g.Voters), short(g.Missing), orDash(someOf(g.Entities))})
	}
	return dial.PrintTable(c.OutOrStdout(), rows)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// someNames bounds the names in one row.
const someNames = 5

// someOf lists names, and how many more there are.
func someOf(names []string) string {
	names = slices.Clone(names)
	if more := len(names) - someNames; more > 0 {
		names = append(names[:someNames], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
