package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

// upgradePath is where the operations port tells how far an upgrade is; finalizePath ends it.
const (
	upgradePath  = commandsPath + "upgrade"
	finalizePath = upgradePath + "/finalize"
)

// upgradeStatus is what GET /api/cluster/upgrade answers.
type upgradeStatus struct {
	Version string `json:"version"`
	Knows   string `json:"knows"`
	Next    string `json:"next"`
	Waits   string `json:"waits"`
	Nodes   []struct {
		ID      string `json:"id"`
		Program string `json:"program"`
		Knows   string `json:"knows"`
		Problem string `json:"problem"`
	} `json:"nodes"`
}

func upgradeCommand(f *opsFlags) *cobra.Command {
	c := &cobra.Command{Use: "upgrade", Short: "Look at an upgrade of the nodes, and finalize it", Args: cobra.NoArgs,
		RunE: showHelp}
	status := &cobra.Command{
		Use: "status", Short: "Show the cluster version and the programs of the nodes", Args: exactly(0),
	}
	finalize := &cobra.Command{
		Use: "finalize", Short: "Raise the cluster version to what every node knows", Args: exactly(0),
		Long: "Raise the cluster version to what every node knows.\n\nUntil then each node can go back to the release before. " +
			"From then on none can: nodes refuse to start with a program that does not know the version.",
	}
	status.RunE = f.upgrade(http.MethodGet, upgradePath)
	finalize.RunE = f.upgrade(http.MethodPost, finalizePath)
	c.AddCommand(status, finalize)
	return c
}

// upgrade asks a path for the state of the upgrade and prints it.
func (f *opsFlags) upgrade(method, path string) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		if err := f.CheckOutput(); err != nil {
			return err
		}
		body, err := f.call(c.Context(), method, path)
		if err != nil {
			return err
		}
		if f.Output == "json" {
			_, err := fmt.Fprintln(c.OutOrStdout(), strings.TrimSpace(string(body)))
			return err
		}
		var s upgradeStatus
		if err := json.Unmarshal(body, &s); err != nil {
			return fmt.Errorf("upgrade status: %w", err)
		}
		return printUpgrade(c.OutOrStdout(), &s)
	}
}

func printUpgrade(w io.Writer, s *upgradeStatus) error {
	rows := [][]string{{"NODE", "PROGRAM", "KNOWS"}}
	for _, n := range s.Nodes {
		program, knows := n.Program, n.Knows
		if program == "" {
			program = "unknown"
		}
		if n.Problem != "" {
			knows = "does not answer"
		}
		rows = append(rows, []string{n.ID, program, knows})
	}
	if err := dial.PrintTable(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\ncluster version %s: %s\n", s.Version, s.advice())
	return err
}

// advice says what is to be done.
func (s *upgradeStatus) advice() string {
	switch {
	case s.Waits != "":
		return "it cannot be raised: " + s.Waits
	case s.Next != "":
		return fmt.Sprintf("every node knows %s. Run busbar cluster upgrade finalize to use what is new; until then each node "+
			"can go back to the release before", s.Next)
	}
	return "nothing is to be finalized"
}
