package client

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/entities"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/cmd/busbar/manage"
)

// NewEntitiesCommand makes busbar entities: apply and export files of entities.
func NewEntitiesCommand() *cobra.Command {
	c := &cobra.Command{Use: "entities", Short: "List, write down and make queues, topics, subscriptions and rules",
		Args: cobra.NoArgs, RunE: showHelp}
	f := dial.AddFlags(c)
	c.AddCommand(dial.AddWatch(entitiesListCommand(f), f), entitiesApplyCommand(f), entitiesExportCommand(f))
	return c
}

func entitiesListCommand(f *dial.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List all queues, topics and subscriptions with their counts", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := f.Target()
			if err != nil {
				return err
			}
			all, err := entities.ListAll(c.Context(), dial.NewManagement(t, f.Timeout))
			if err != nil {
				return err
			}
			return manage.PrintList(c.OutOrStdout(), f, all)
		},
	}
}

func entitiesApplyCommand(f *dial.Flags) *cobra.Command {
	apply := &cobra.Command{
		Use:   "apply FILE",
		Short: "Create what the file has and the broker has not; tell or change what differs",
		Long: "The file is the official emulator's Config.json, or YAML of the same shape. The broker judges all of it before\n" +
			"anything is made. What is there already is not changed: a difference is told, and the exit code is 4. With\n" +
			"--update it is changed. With --prune what the file does not have is deleted, which needs --yes or --dry-run.",
		Args: cobra.ExactArgs(1),
	}
	flags := apply.Flags()
	dry := flags.Bool("dry-run", false, "say what would be done, and do nothing")
	update := flags.Bool("update", false, "change properties and rules that differ from the file")
	prune := flags.Bool("prune", false, "delete entities and rules that the file does not have, with their messages")
	yes := flags.Bool("yes", false, "delete what --prune finds")
	apply.RunE = func(cmd *cobra.Command, args []string) error {
		if *prune && !*yes && !*dry {
			return exit.Usagef("--prune deletes entities with their messages; look at it with --dry-run, then add --yes")
		}
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
		a := &entities.Applier{API: dial.NewManagement(t, f.Timeout), DryRun: *dry, Update: *update, Prune: *prune, Say: say}
		if err := a.Apply(cmd.Context(), all); err != nil {
			return err
		}
		say("%s", a.Summary())
		if a.Drifted > 0 {
			return exit.With(exit.Conflict, fmt.Errorf("%s", dial.Plural(a.Drifted, "difference")))
		}
		return nil
	}
	return apply
}

func entitiesExportCommand(f *dial.Flags) *cobra.Command {
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
	return export
}
