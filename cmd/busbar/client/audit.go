package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/storage"
)

// AuditPath is where the operations port audits one partition.
const AuditPath = "/api/debug/audit"

// StoppedAudit audits the data directories of stopped nodes, which have one log store, and compares them.
// The number "only" is the partition to audit, or -1 for all.
type StoppedAudit func(ctx context.Context, dirs []string, store string, only int) ([]partition.GroupAudit, error)

// NewDebugCommand makes busbar debug, whose commands audit and recover the directories of stopped nodes.
func NewDebugCommand(offline StoppedAudit, recover StoppedRecovery) *cobra.Command {
	c := &cobra.Command{Use: "debug", Short: "Look for what is wrong inside", Args: cobra.NoArgs,
		RunE: showHelp}
	c.AddCommand(auditCommand(offline), recoverCommand(recover))
	return c
}

// auditFlags are those of busbar debug audit.
type auditFlags struct {
	opsFlags
	partition int
	dirs      []string
	store     string
}

func auditCommand(offline StoppedAudit) *cobra.Command {
	f := &auditFlags{}
	c := &cobra.Command{
		Use: "audit", Args: exactly(0),
		Short: "Recount every replica, read every body, and compare the replicas with one another",
		Long: "Recounts every replica of a running cluster: invariants, counters, bodies with their\n" +
			"checksums, and digests of the state behind one entry, which all replicas must share.\n" +
			"With --data-dir it does so with the directories of stopped nodes; given several, it\n" +
			"compares them. It takes the memory of a second state per partition, and reads all\n" +
			"messages. It changes nothing that is stored. The exit code is 1 if something is wrong.",
		Example: "  busbar debug audit --ops http://a.example.net:5300 --connection-string \"$CS\"\n" +
			"  busbar debug audit --data-dir /var/lib/busbar\n" +
			"  busbar debug audit --data-dir n1 --data-dir n2 --data-dir n3 --partition 4",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			var groups []partition.GroupAudit
			var err error
			if len(f.dirs) > 0 {
				groups, err = offline(c.Context(), f.dirs, f.store, f.partition)
			} else {
				groups, err = f.online(c.Context())
			}
			if err != nil {
				return err
			}
			return f.print(c, groups)
		},
	}
	dial.AddOutputFlag(c, &f.Flags)
	flags := c.Flags()
	flags.StringVar(&f.base, "ops", "", opsUsage)
	f.AddReach(c, managesUsage)
	flags.DurationVar(&f.Timeout, "timeout", time.Hour, "limit of the audit of one partition")
	flags.IntVar(&f.partition, "partition", -1, "audit this partition only; 0 is the catalog")
	flags.StringArrayVar(&f.dirs, "data-dir", nil, "data directory of a stopped node; may be repeated")
	flags.StringVar(&f.store, "log-store", storage.LogWAL, "log store of these directories: wal or boltdb")
	return c
}

// online has the cluster audit itself, partition by partition.
func (f *auditFlags) online(ctx context.Context) ([]partition.GroupAudit, error) {
	ids := []int{f.partition}
	if f.partition < 0 {
		body, err := f.call(ctx, http.MethodGet, "/api/cluster")
		if err != nil {
			return nil, err
		}
		var s clusterStatus
		if err := json.Unmarshal(body, &s); err != nil {
			return nil, fmt.Errorf("cluster status: %w", err)
		}
		ids = nil
		for _, p := range s.Partitions {
			ids = append(ids, p.ID)
		}
	}
	var out []partition.GroupAudit
	for _, id := range ids {
		body, err := f.call(ctx, http.MethodPost, AuditPath+"?partition="+strconv.Itoa(id))
		if err != nil {
			return nil, err
		}
		var g partition.GroupAudit
		if err := json.Unmarshal(body, &g); err != nil {
			return nil, fmt.Errorf("audit of partition %d: %w", id, err)
		}
		out = append(out, g)
	}
	return out, nil
}

func (f *auditFlags) print(c *cobra.Command, groups []partition.GroupAudit) error {
	well := true
	rows := [][]string{{"PARTITION", "NODE", "INDEX", "ENTITIES", "MESSAGES", "BODIES", "BYTES", "DIGEST", "STATE"}}
	var problems []string
	for _, g := range groups {
		well = well && g.Well()
		name := strconv.Itoa(int(g.Partition))
		if g.Partition == fsm.CatalogPartition {
			name = "catalog"
		}
		for _, a := range g.Replicas {
			state := "well"
			if len(a.Problems) > 0 {
				state = strconv.Itoa(len(a.Problems)) + " problems"
			}
			rows = append(rows, []string{name, shortID(string(a.Node)), strconv.FormatUint(a.Index, 10),
				strconv.Itoa(a.Entities), strconv.FormatUint(a.Messages, 10),
				strconv.FormatUint(a.Bodies, 10), strconv.FormatUint(a.BodyBytes, 10),
				a.Digest.Sum[:min(8, len(a.Digest.Sum))], state})
			for _, p := range a.Problems {
				problems = append(problems, fmt.Sprintf("partition %s on %s: %s", name, a.Node, p))
			}
		}
		for _, p := range g.Problems {
			problems = append(problems, fmt.Sprintf("partition %s: %s", name, p))
		}
	}
	if f.Output == "json" {
		text, err := json.Marshal(groups)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(c.OutOrStdout(), string(text)); err != nil {
			return err
		}
	} else if err := dial.PrintTable(c.OutOrStdout(), rows); err != nil {
		return err
	}
	if !well {
		return fmt.Errorf("the audit found problems:\n%s", strings.Join(problems, "\n"))
	}
	return nil
}
