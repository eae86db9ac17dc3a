package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

// docs/cli.md has every command with its flags, as the program tells them.
func TestTheReferenceOfTheCommandLineIsTrue(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "cli.md")
	var text strings.Builder
	text.WriteString("# Command line\n\nThe program writes this page: `scripts/golden.sh` after a change. " +
		"[operating.md](operating.md#the-command-line-as-a-client) has\nexamples and exit codes.\n\n")
	root := newRoot()
	all := documented(root)[1:]
	text.WriteString("| command | what it does |\n| --- | --- |\n")
	for _, c := range all {
		if c.Short == "" || !c.HasSubCommands() && !c.Runnable() {
			t.Errorf("%s says nothing of itself", c.CommandPath())
		}
		if !c.HasSubCommands() {
			fmt.Fprintf(&text, "| [`%s`](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), cell(c.Short))
		}
	}
	for _, c := range all {
		if !c.HasSubCommands() {
			reference(&text, c)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != text.String() {
		t.Error("docs/cli.md is not what the program tells of its commands; scripts/golden.sh writes it anew")
	}
}

// reference writes the section of a command.
func reference(out *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(out, "\n## %s\n\n", c.CommandPath())
	long := c.Long
	if long == "" {
		long = c.Short
	}
	fmt.Fprintf(out, "%s.\n\n", strings.TrimSuffix(strings.TrimSpace(long), "."))
	fmt.Fprintf(out, "    %s\n", c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n\n")
		for line := range strings.Lines(c.Example) {
			out.WriteString("    " + strings.TrimPrefix(strings.TrimRight(line, "\n"), "  ") + "\n")
		}
	}
	var rows []string
	add := func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name += ", `-" + f.Shorthand + "`"
		}
		usage := f.Usage
		if d := f.DefValue; d != "" && d != "false" && d != "[]" && d != "0" && d != "0s" {
			usage += " (default `" + d + "`)"
		}
		rows = append(rows, fmt.Sprintf("| %s | %s |\n", name, cell(usage)))
	}
	c.LocalFlags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	if len(rows) > 0 {
		out.WriteString("\n| flag | meaning |\n| --- | --- |\n" + strings.Join(rows, ""))
	}
}

// cell is a text in a table.
func cell(text string) string {
	text = strings.ReplaceAll(text, "\n", " ")
	text = strings.ReplaceAll(text, "<", "&lt;")
	return strings.ReplaceAll(text, "|", "\\|")
}
