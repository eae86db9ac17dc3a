package client

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// NewEntitiesCommand makes busbar entities: apply and export files of entities.
func NewEntitiesCommand() *cobra.Command {
	c := &cobra.Command{Use: "entities", Short: "Write down and make queues, topics, subscriptions and rules"}
	f := dial.AddFlags(c)
	apply := &cobra.Command{
		Use:   "apply FILE",
		Short: "Create what the file has and the broker has not; tell what differs",
		Long: "The file is the official emulator's Config.json, or YAML of the same shape. What is there " +
			"already is not changed: a difference is told, and the exit code is 4.",
		Args: cobra.ExactArgs(1),
	}
	dry := apply.Flags().Bool("dry-run", false, "say what would be created, and create nothing")
	apply.RunE = func(cmd *cobra.Command, args []string) error {
		all, notes, err := entities.Read(args[0])
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		t, err := f.Target()
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
		for _, note := range notes {
			say("%s", note)
		}
		a := &entities.Applier{API: dial.NewManagement(t, f.Timeout), DryRun: *dry, Say: say}
		if err := a.Apply(cmd.Context(), all); err != nil {
			return err
		}
		say("%d created, %d differ", a.Created, a.Drifted)
		if a.Drifted > 0 {
			return exit.With(exit.Conflict, fmt.Errorf("%d differences", a.Drifted))
		}
		return nil
	}
	export := &cobra.Command{
		Use:   "export",
		Short: "Write all entities as a file that apply reads",
		Args:  cobra.NoArgs,
	}
	export.RunE = func(cmd *cobra.Command, _ []string) error {
		t, err := f.Target()
		if err != nil {
			return err
		}
		a := &entities.Applier{API: dial.NewManagement(t, f.Timeout)}
		exported, withheld, err := a.Export(cmd.Context())
		if err != nil {
			return err
		}
		for _, path := range withheld {
			fmt.Fprintf(cmd.ErrOrStderr(), "not exported: the authorization rules of %s, because they hold keys\n",
				path)
		}
		return entities.Write(cmd.OutOrStdout(), exported, f.Output == "json")
	}
	c.AddCommand(apply, export)
	return c
}
