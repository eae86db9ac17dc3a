package languages

import (
	"fmt"
	"slices"
	"strings"
)

// Column is one library of the table.
type Column struct {
	Heading string             // language, library and version
	Cells   map[string]Outcome // by scenario
}

const preamble = `# Compatibility

What unmodified client libraries do against Busbar, scenario by scenario. The table is written by
` + "`make compatibility`" + ` and held by ` + "`make conformance`" + `, which fails when a cell changes; the scenarios are
those of ` + "`test/conformance/scenarios.txt`" + `. **yes**: passes; a number: the library has nothing like
it, for the reason below; blank: not written for this library.

Beside them ` + "`make conformance`" + ` runs what others wrote for the original, as it is: 87 live tests of the Go
SDK ` + "`azservicebus`" + `, 28 conformance cases of ` + "`gocloud.dev`" + `, applications of Celery (its transport
` + "`azureservicebus`" + `), Apache Camel (` + "`azure-servicebus`" + `) and Spring (JMS over Qpid), and KEDA's scaler
` + "`azure-servicebus`" + `, which reads the lengths of queues and subscriptions. They are in ` + "`test/suites`" + `; 17
integration tests of ` + "`go-amqp`" + ` are in ` + "`transport`" + `.
`

// Render writes the table: scenarios by library, what passes, and the reasons for what does not
// apply. The same results give the same text.
func Render(scenarios []Scenario, columns []Column) string {
	var b strings.Builder
	b.WriteString(preamble)
	var reasons []string
	group := ""
	for _, s := range scenarios {
		if !told(columns, s.ID) {
			continue
		}
		if s.Group != group {
			group = s.Group
			heading(&b, group, columns)
		}
		fmt.Fprintf(&b, "| %s <!-- %s --> |", s.Title, s.ID)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", cell(c.Cells[s.ID], &reasons))
		}
		b.WriteByte('\n')
	}
	b.WriteString("\n## In all\n\n| library | pass | does not apply |\n| --- | --- | --- |\n")
	for _, c := range columns {
		pass, skip := 0, 0
		for _, o := range c.Cells {
			if o.State == "pass" {
				pass++
			} else {
				skip++
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d |\n", c.Heading, pass, skip)
	}
	if len(reasons) > 0 {
		b.WriteString("\n## Reasons\n\n")
		for i, r := range reasons {
			fmt.Fprintf(&b, "%d. %s\n", i+1, r)
		}
	}
	return b.String()
}

func told(columns []Column, id string) bool {
	return slices.ContainsFunc(columns, func(c Column) bool {
		_, ok := c.Cells[id]
		return ok
	})
}

func heading(b *strings.Builder, group string, columns []Column) {
	fmt.Fprintf(b, "\n## %s\n\n| scenario |", group)
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.Heading)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(columns)) + "\n")
}

// cell is what stands in the table for one outcome; a new reason is added to reasons.
func cell(o Outcome, reasons *[]string) string {
	switch o.State {
	case "":
		return ""
	case "pass":
		return "yes"
	case "skip":
		i := slices.Index(*reasons, o.Text)
		if i < 0 {
			i = len(*reasons)
			*reasons = append(*reasons, o.Text)
		}
		return fmt.Sprint(i + 1)
	}
	return "no"
}
