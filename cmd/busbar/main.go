package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/bench"
	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// version is set by the linker.
var version = "development"

func main() { os.Exit(run(os.Args[1:])) }

// run executes one command line and returns the exit code: 0 done, 1 failed at run time, 2 usage or
// configuration, 3 not found, 4 conflict, 5 unauthorised, 6 a stop that was cut off.
func run(args []string) int {
	root := &cobra.Command{
		Use:           "busbar",
		Short:         "A replicated message broker for Azure Service Bus clients",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			return c.Help()
		},
	}
	root.AddCommand(newServeCommand(), newConfigCommand(),
		client.NewClusterCommand(), client.NewQueueCommand(), client.NewEntitiesCommand(), client.NewDeadLetterCommand(),
		client.NewSendCommand(), client.NewReceiveCommand(), client.NewPeekCommand(), client.NewMessagesCommand(),
		client.NewDebugCommand(auditDirs, recoverDirs), client.NewHealthCheckCommand(),
		bench.NewCommand(), bench.NewFrontendCommand())
	root.SetArgs(args)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.With(exit.Usage, err) })
	err := root.Execute()
	if err != nil {
		fmt.Fprintln(os.Stderr, "busbar:", err)
	}
	return exit.Code(err)
}
