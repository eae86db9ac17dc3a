package client

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// showHelp makes a command that only groups others say so and fail.
func showHelp(c *cobra.Command, _ []string) error {
	_ = c.Help()
	return exit.Usagef("%s needs a subcommand", c.Name())
}

// exactly is cobra.ExactArgs with the exit code of a wrong command line.
func exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return exit.Usagef("%s takes %d arguments, got %d", c.CommandPath(), n, len(args))
		}
		return nil
	}
}

// numberText writes a number in decimal.
func numberText(n uint64) string { return strconv.FormatUint(n, 10) }
