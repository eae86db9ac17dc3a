package languages

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Elsewhere is one line of elsewhere.txt: what ran against Busbar and is no part of make conformance.
type Elsewhere struct {
	What, On  string
	Day       string // as 2026-11-21
	Cases     int
	Passed    int
	NotOurs   int // left out by its authors, or not the broker's
	TheBroker int // what the broker did wrong
}

// ReadElsewhere reads elsewhere.txt, whose comment has its form. It refuses a line whose numbers do not
// add up.
func ReadElsewhere(file string) ([]Elsewhere, error) {
	var all []Elsewhere
	err := eachLine(file, 7, func(f []string) error {
		e := Elsewhere{What: f[0], On: f[1], Day: f[2]}
		if _, err := time.Parse(time.DateOnly, e.Day); err != nil {
			return err
		}
		for i, n := range []*int{&e.Cases, &e.Passed, &e.NotOurs, &e.TheBroker} {
			var err error
			if *n, err = strconv.Atoi(f[3+i]); err != nil {
				return err
			}
		}
		if e.Passed+e.NotOurs+e.TheBroker != e.Cases {
			return fmt.Errorf("%d, %d and %d do not add up to %d cases", e.Passed, e.NotOurs, e.TheBroker, e.Cases)
		}
		all = append(all, e)
		return nil
	})
	return all, err
}

const elsewhereText = `
## Not run in ` + "`make conformance`" + `

.NET needs an SDK that the project's machines do not have. ` + "`test/conformance/dotnet`" + ` has the scenarios for the
official library, ` + "`test/conformance/amqpnetlite`" + ` those of plain AMQP for AMQPNetLite. ` + "`make conformance`" + ` runs them
where the command ` + "`dotnet`" + ` is on the path, says that it skipped them elsewhere, and gives them no column above; the
workflow ` + "`dotnet.yml`" + ` runs them. The table below is what ran on the day that it names, and is not measured again.

| what ran | on | day | cases | passed | left out, or not the broker's | the broker's |
| --- | --- | --- | --- | --- | --- | --- |
`

func renderElsewhere(b *strings.Builder, all []Elsewhere) {
	if len(all) == 0 {
		return
	}
	b.WriteString(elsewhereText)
	for _, e := range all {
		fmt.Fprintf(b, "| %s | %s | %s | %d | %d | %d | %d |\n",
			e.What, e.On, e.Day, e.Cases, e.Passed, e.NotOurs, e.TheBroker)
	}
}
