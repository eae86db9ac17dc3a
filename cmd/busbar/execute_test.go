package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// execute runs a command line and returns what it printed and its exit code.
func execute(t *testing.T, c *cobra.Command, stdin string, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetIn(strings.NewReader(stdin))
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.With(exit.Usage, err) })
	err := c.ExecuteContext(t.Context())
	if err != nil {
		out.WriteString(err.Error())
	}
	return out.String(), exit.Code(err)
}

// Flags that exclude each other are told in words of the command line.
func TestFlagsThatExcludeEachOther(t *testing.T) {
	root := newRoot()
	reached := watchRuns(root)
	_, code := execute(t, root, "", "receive", "orders", "--complete=false", "--keep-locks")
	if code == 0 || *reached {
		t.Fatalf("the command ran: %d", code)
	}
	root.SetArgs([]string{"send", "orders", "x", "--in", "1h", "--at", "2026-01-31T08:00:00Z"})
	if got := commandLineError(root.Execute()).Error(); got != "--at and --in exclude each other: take one" {
		t.Error(got)
	}
	if err := errors.New("another"); commandLineError(err) != err { //nolint:errorlint // the same error comes back
		t.Error("another error was changed")
	}
}
