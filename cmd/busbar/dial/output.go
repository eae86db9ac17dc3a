package dial

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// outputs are the forms in which every command prints.
var outputs = []string{"table", "wide", "json", "jsonl", "yaml"}

// AddOutputFlag adds the choice between a table and forms for programs.
func AddOutputFlag(c *cobra.Command, f *Flags) {
	f.command = c
	c.PersistentFlags().StringVarP(&f.Output, "output", "o", "table", "table, wide, json, jsonl or yaml")
	c.PersistentFlags().BoolVar(&f.json, "json", false, "the same as -o json")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// AddRowOutput lets the output be a row of a Markdown table as well.
func (f *Flags) AddRowOutput(c *cobra.Command) {
	c.PersistentFlags().Lookup("output").Usage = "table, json, or row: of a Markdown table"
	f.rows = true
}

// CheckOutput refuses a form that is none. A command looks at two afterwards: Output is "table" or "json". The JSON that it
// prints is turned into other forms behind it, and Wide asks for more columns of a table.
func (f *Flags) CheckOutput() error {
	if f.json {
		f.Output = "json"
	}
	switch {
	case f.Output == "table", f.Output == "json", f.rows && f.Output == "row":
	case f.Output == "wide":
		f.Output, f.Wide = "table", true
	case slices.Contains(outputs, f.Output):
		f.Form, f.Output = f.Output, "json"
		if f.command != nil {
			f.command.SetOut(&reformer{to: f.command.OutOrStdout(), form: f.Form})
		}
	default:
		return exit.Usagef("output %q is none of %s", f.Output, strings.Join(outputs, ", "))
	}
	return nil
}

// PrintJSON writes one value on one line; characters of HTML stay as they are.
func PrintJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return out.Encode(v)
}

// PrintTable writes rows in columns; the first row is the heading.
func PrintTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// PrintDone reports a command whose success is all there is to say.
func PrintDone(w io.Writer, f *Flags, v map[string]any, text string) error {
	if f.Output == "json" {
		return PrintJSON(w, v)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// Plural writes a number of things: "1 message", "2 messages".
func Plural[N int | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
