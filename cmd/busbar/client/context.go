package client

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// NewContextCommand makes busbar context: names for brokers, so that nobody exports keys.
func NewContextCommand() *cobra.Command {
	c := &cobra.Command{Use: "context", Short: "Name brokers, and choose which one commands speak to",
		Long: "A context is a name for a broker: its connection string, its operations port and its authority. The file of contexts " +
			"is busbar/contexts.yaml in the user's configuration directory, or where BUSBAR_CONTEXTS says; only its owner may read it.\n\n" +
			"A command speaks to the broker of --connection-string, else of --context, of BUSBAR_CONTEXT, of " +
			"SERVICEBUS_CONNECTION_STRING, of the context in use, and else to the development broker of this machine.",
		Args: cobra.NoArgs, RunE: showHelp}
	f := &dial.Flags{}
	dial.AddOutputFlag(c, f)
	c.AddCommand(contextListCommand(f), contextAddCommand(f), contextUseCommand(f), contextShowCommand(f), contextRemoveCommand(f))
	return c
}

// contextView is a context without its key.
type contextView struct {
	Name       string `json:"name"`
	Current    bool   `json:"current"`
	Connection string `json:"connectionString"`
	Ops        string `json:"ops,omitempty"`
	CAFile     string `json:"caFile,omitempty"`
}

func viewContext(all *dial.Contexts, name string) contextView {
	one := all.All[name]
	return contextView{Name: name, Current: name == all.Current, Connection: one.Redacted(), Ops: one.Ops, CAFile: one.CAFile}
}

func contextListCommand(f *dial.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the contexts; a star marks the one in use", Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			all, err := dial.ReadContexts()
			if err != nil {
				return err
			}
			views := []contextView{}
			rows := [][]string{{"", "NAME", "CONNECTION STRING", "OPS"}}
			for _, name := range all.Names() {
				v := viewContext(all, name)
				views = append(views, v)
				mark := ""
				if v.Current {
					mark = "*"
				}
				rows = append(rows, []string{mark, name, printable(v.Connection), textCell(v.Ops)})
			}
			if f.Output == "json" {
				return dial.PrintJSON(c.OutOrStdout(), views)
			}
			return dial.PrintTable(c.OutOrStdout(), rows)
		},
	}
}

func contextAddCommand(f *dial.Flags) *cobra.Command {
	var one dial.Context
	var use bool
	c := &cobra.Command{
		Use: "add NAME", Short: "Name a broker, or change what a name means", Args: exactly(1),
		Long: "Names a broker. Without --connection-string the connection string is read from the standard input, so that no key " +
			"stands in the history of a shell. The first context is used at once.",
		Example: "  busbar context add prod --ops https://busbar.example.net:5300 < connection-string.txt\n" +
			"  busbar context add dev --connection-string \"$DEV\" --use",
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			all, err := dial.ReadContexts()
			if err != nil {
				return err
			}
			if one.Connection == "" {
				if dial.IsTerminal(c.ErrOrStderr()) {
					fmt.Fprint(c.ErrOrStderr(), "connection string: ")
				}
				line, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n') // what cannot be read is no connection string
				one.Connection = strings.TrimSpace(line)
			}
			if err := all.Put(args[0], one); err != nil {
				return err
			}
			if use || len(all.All) == 1 {
				all.Current = args[0]
			}
			if err := all.Write(); err != nil {
				return err
			}
			text := "context " + args[0] + " is known"
			if all.Current == args[0] {
				text += " and in use"
			}
			return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"context": args[0], "current": all.Current == args[0]}, text)
		},
	}
	flags := c.Flags()
	flags.StringVar(&one.Connection, "connection-string", "", "connection string of the broker (default: the standard input)")
	flags.StringVar(&one.Ops, "ops", "", "operations port of any of its nodes, such as https://busbar.example.net:5300")
	flags.StringVar(&one.CAFile, "ca-file", "", "further certificate authority to trust, PEM")
	flags.BoolVar(&use, "use", false, "use it from now on")
	return c
}

// changeContexts changes the file of contexts, which has one of that name.
func changeContexts(f *dial.Flags, name string, change func(*dial.Contexts)) error {
	if err := f.CheckOutput(); err != nil {
		return err
	}
	all, err := dial.ReadContexts()
	if err != nil {
		return err
	}
	if _, err := all.Get(name); err != nil {
		return err
	}
	change(all)
	return all.Write()
}

func contextUseCommand(f *dial.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "use CONTEXT", Short: "Have commands speak to this context when nothing else is said", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := changeContexts(f, args[0], func(all *dial.Contexts) { all.Current = args[0] }); err != nil {
				return err
			}
			return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"context": args[0], "current": true}, "context "+args[0]+" is in use")
		},
	}
}

func contextShowCommand(f *dial.Flags) *cobra.Command {
	var key bool
	c := &cobra.Command{
		Use: "show [CONTEXT]", Short: "Show a context, or the one in use", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.CheckOutput(); err != nil {
				return err
			}
			all, err := dial.ReadContexts()
			if err != nil {
				return err
			}
			name := all.Current
			if len(args) > 0 {
				name = args[0]
			}
			if name == "" {
				return exit.With(exit.NotFound, fmt.Errorf("no context is in use; busbar context use takes one"))
			}
			one, err := all.Get(name)
			if err != nil {
				return err
			}
			v := viewContext(all, name)
			if key {
				v.Connection = one.Connection
			}
			if f.Output == "json" {
				return dial.PrintJSON(c.OutOrStdout(), v)
			}
			return dial.PrintTable(c.OutOrStdout(), [][]string{{"NAME", "CONNECTION STRING", "OPS", "CA FILE"},
				{name, printable(v.Connection), textCell(v.Ops), textCell(v.CAFile)}})
		},
	}
	c.Flags().BoolVar(&key, "show-key", false, "show the key, too")
	return c
}

func contextRemoveCommand(f *dial.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "remove CONTEXT", Short: "Forget a context", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := changeContexts(f, args[0], func(all *dial.Contexts) {
				delete(all.All, args[0])
				if all.Current == args[0] {
					all.Current = ""
				}
			}); err != nil {
				return err
			}
			return dial.PrintDone(c.OutOrStdout(), f, map[string]any{"context": args[0], "removed": true}, "removed context "+args[0])
		},
	}
}
