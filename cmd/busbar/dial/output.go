package dial

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// AddOutputFlag adds the choice between a table and JSON.
func AddOutputFlag(c *cobra.Command, f *Flags) {
	f.command = c
	c.PersistentFlags().StringVarP(&f.Output, "output", "o", "table", "table or json")
	c.PersistentFlags().BoolVar(&f.json, "json", false, "the same as -o json")
}

// AddRowOutput lets the output be a row of a Markdown table as well.
func (f *Flags) AddRowOutput(c *cobra.Command) {
	c.PersistentFlags().Lookup("output").Usage = "table, json, or row: of a Markdown table"
	f.rows = true
}

// CheckOutput reads --json as -o json and refuses another form.
func (f *Flags) CheckOutput() error {
	if f.json {
		f.Output = "json"
	}
	if f.Output != "table" && f.Output != "json" && !(f.rows && f.Output == "row") {
		return exit.Usagef("output %q is neither table nor json", f.Output)
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
