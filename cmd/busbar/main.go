package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/bench"
	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/cmd/busbar/manage"
)

func main() { os.Exit(run(os.Args[1:])) }

// run executes one command line and returns the exit code: 0 done, 1 failed at run time, 2 usage or
// configuration, 3 not found, 4 conflict, 5 unauthorised, 6 a stop that was cut off.
func run(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	reached := watchRuns(root)
	err := root.Execute()
	if err != nil && !*reached {
		err = exit.With(exit.Usage, commandLineError(err)) // cobra refused the command line
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "busbar:", err)
	}
	return exit.Code(err)
}

// newRoot returns the command line with all commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "busbar",
		Short:         "A replicated message broker for Azure Service Bus clients",
		Version:       programVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			return c.Help()
		},
	}
	root.AddCommand(newServeCommand(), newDevCommand(), newEmulatorCommand(), newConfigCommand(),
		client.NewClusterCommand(), client.NewQueueCommand(), manage.NewTopicCommand(), manage.NewSubscriptionCommand(),
		manage.NewRuleCommand(), client.NewEntitiesCommand(), client.NewDeadLetterCommand(),
		client.NewSendCommand(), client.NewCancelCommand(), client.NewReceiveCommand(), client.NewSettleCommand(), client.NewRenewCommand(), client.NewPeekCommand(), client.NewTailCommand(), client.NewSessionCommand(), client.NewResetCommand(), client.NewTokenCommand(),
		client.NewMessagesCommand(), client.NewConnectionsCommand(), client.NewContextCommand(), client.NewTopCommand(), client.NewEventsCommand(),
		client.NewDebugCommand(auditDirs, recoverDirs), client.NewHealthCheckCommand(), client.NewBackupCommand(),
		bench.NewCommand(), bench.NewFrontendCommand())
	root.AddCommand(newVersionCommand(), newManCommand())
	completeNames(root)
	return root
}

// watchRuns notes whether a command came to its own code. An error before that is one of the command line: an unknown
// command or flag, arguments that do not fit, flags that exclude each other.
func watchRuns(c *cobra.Command) *bool {
	reached := new(bool)
	var watch func(c *cobra.Command)
	watch = func(c *cobra.Command) {
		if run := c.RunE; run != nil {
			c.RunE = func(c *cobra.Command, args []string) error {
				*reached = true
				return run(c, args)
			}
		}
		for _, below := range c.Commands() {
			watch(below)
		}
	}
	watch(c)
	return reached
}

// groupError is what cobra says of flags that exclude each other.
var groupError = regexp.MustCompile(`none of the others can be; \[(.+)\] were all set$`)

// commandLineError says in words of the command line what cobra says in its own.
func commandLineError(err error) error {
	if set := groupError.FindStringSubmatch(err.Error()); set != nil {
		return fmt.Errorf("--%s exclude each other: take one", strings.Join(strings.Fields(set[1]), " and --"))
	}
	return err
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "busbar %s %s %s/%s\n", programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
