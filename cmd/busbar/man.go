package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// exitCodes are what every page says of the codes that commands end with.
var exitCodes = [][2]string{
	{"0", "done"}, {"1", "failed at run time"}, {"2", "the command line, the configuration or a value is wrong"}, {"3", "not found"},
	{"4", "conflict: it exists already, another holds it, or a lock was lost"}, {"5", "unauthorised"},
	{"6", "a node ended before its stop was over"}, {"10", "cluster health or cluster doctor found something wrong"},
}

// documented lists the commands that people are told of, the root first.
func documented(root *cobra.Command) (all []*cobra.Command) {
	if root.Hidden || root.Name() == "help" || root.Name() == "completion" {
		return nil
	}
	all = append(all, root)
	for _, below := range root.Commands() {
		all = append(all, documented(below)...)
	}
	return all
}

func newManCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "man", Short: "Write a manual page for each command", Args: cobra.NoArgs,
		Long:    "Write a manual page of section 1 for each command into a directory.",
		Example: "  busbar man --dir /usr/local/share/man/man1\n  man busbar-queue-purge",
	}
	c.Flags().StringVar(&dir, "dir", "", "directory for the pages, which is made if need be")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if dir == "" {
			return exit.Usagef("name a directory by --dir")
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return exit.With(exit.Usage, err)
		}
		all := documented(c.Root())
		for _, one := range all {
			if err := os.WriteFile(filepath.Join(dir, manName(one)+".1"), []byte(manPage(one)), 0o644); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "wrote %d pages to %s\n", len(all), dir)
		return err
	}
	return c
}

// manName is the name of the page of a command.
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is the page of a command, in the macros of man(7). The same program writes the same page.
func manPage(c *cobra.Command) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`.TH "%s" "1" "" "busbar %s" "Busbar"`, strings.ToUpper(roff(manName(c))), roff(release))
	line(".SH NAME\n%s \\- %s", roff(manName(c)), roff(c.Short))
	line(".SH SYNOPSIS\n.B %s", roff(c.UseLine()))
	line(".SH DESCRIPTION")
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	b.WriteString(roffText(long))
	if c.Example != "" {
		line(".SH EXAMPLES")
		b.WriteString(roffBlock(strings.Split(strings.TrimRight(c.Example, "\n"), "\n")))
	}
	options := false
	flags := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if !options {
			options = true
			line(".SH OPTIONS")
		}
		name := `\fB\-\-` + roff(f.Name) + `\fR`
		if f.Shorthand != "" {
			name = `\fB\-` + f.Shorthand + `\fR, ` + name
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			name += ` \fI` + roff(value) + `\fR`
		}
		if d := f.DefValue; d != "" && d != "false" && d != "[]" && d != "0" && d != "0s" {
			usage += " (default " + d + ")"
		}
		line(".TP\n%s\n%s", name, roffLine(usage))
	}
	c.LocalFlags().VisitAll(flags)
	c.InheritedFlags().VisitAll(flags)
	line(".SH EXIT STATUS")
	for _, code := range exitCodes {
		line(".TP\n%s\n%s", code[0], roffLine(code[1]))
	}
	var also []string
	if c.HasParent() {
		also = append(also, manName(c.Parent()))
	}
	for _, below := range c.Commands() {
		if len(documented(below)) > 0 {
			also = append(also, manName(below))
		}
	}
	if len(also) > 0 {
		line(".SH SEE ALSO")
		for i, name := range also {
			comma := ","
			if i == len(also)-1 {
				comma = ""
			}
			line(`.BR %s (1)%s`, roff(name), comma)
		}
	}
	return b.String()
}

// roff writes a text so that no letter of it steers the formatter.
func roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "\n", " ").Replace(text)
}

// roffLine is roff for a text that may begin with a dot.
func roffLine(text string) string {
	if strings.HasPrefix(text, ".") {
		return `\&` + roff(text)
	}
	return roff(text)
}

// roffText writes paragraphs. Lines that begin with blanks stay as they are.
func roffText(text string) string {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		lines := strings.Split(strings.Trim(paragraph, "\n"), "\n")
		if strings.HasPrefix(lines[0], "  ") {
			b.WriteString(roffBlock(lines))
			continue
		}
		b.WriteString(".PP\n" + roffLine(strings.Join(lines, " ")) + "\n")
	}
	return b.String()
}

// roffBlock writes lines as they are.
func roffBlock(lines []string) string {
	var b strings.Builder
	b.WriteString(".PP\n.RS 4\n.nf\n")
	for _, line := range lines {
		b.WriteString(roffLine(strings.TrimPrefix(line, "  ")) + "\n")
	}
	b.WriteString(".fi\n.RE\n")
	return b.String()
}
