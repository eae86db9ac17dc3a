package languages

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Outcome is how one scenario ended.
type Outcome struct {
	State string // pass, fail or skip
	Took  time.Duration
	Text  string // why it failed, or why the library has nothing like it
}

// Report is what one runner said.
type Report struct {
	Library, Version string
	Outcomes         map[string]Outcome // by scenario
	Notes            []string           // what else it had to say
	Ended            bool               // it came to its end
}

// maxLine bounds a line of a runner; a failure comes with its stack.
const maxLine = 1 << 20

// ReadReport reads what a runner prints, fields separated by tabs:
//
//	sdk       library  version
//	scenario  id       pass|fail|skip  milliseconds  text
//	note      text
//	end       number of scenarios
//
// Other lines are what the library itself prints, and are notes. An error means that a line of
// these kinds is not well-formed or that a scenario was told twice.
func ReadReport(r io.Reader) (*Report, error) {
	rep := &Report{Outcomes: map[string]Outcome{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if err := rep.line(lines.Text()); err != nil {
			return rep, err
		}
	}
	return rep, lines.Err()
}

func (rep *Report) line(text string) error {
	f := strings.Split(text, "\t")
	switch {
	case f[0] == "sdk" && len(f) == 3:
		rep.Library, rep.Version = f[1], f[2]
	case f[0] == "scenario" && len(f) == 5:
		return rep.outcome(f[1:])
	case f[0] == "end" && len(f) == 2:
		if f[1] != strconv.Itoa(len(rep.Outcomes)) {
			return fmt.Errorf("the runner counts %s scenarios and told of %d", f[1], len(rep.Outcomes))
		}
		rep.Ended = true
	case f[0] == "sdk" || f[0] == "scenario" || f[0] == "end":
		return fmt.Errorf("a line with %d fields: %q", len(f), text)
	default:
		rep.Notes = append(rep.Notes, strings.TrimPrefix(text, "note\t"))
	}
	return nil
}

func (rep *Report) outcome(f []string) error {
	id, state := f[0], f[1]
	if _, twice := rep.Outcomes[id]; twice {
		return fmt.Errorf("scenario %s twice", id)
	}
	ms, err := strconv.Atoi(f[2])
	if err != nil || ms < 0 {
		return fmt.Errorf("scenario %s: %q is no time in milliseconds", id, f[2])
	}
	switch state {
	case "pass":
	case "fail", "skip":
		if f[3] == "" {
			return fmt.Errorf("scenario %s: %s without a reason", id, state)
		}
	default:
		return fmt.Errorf("scenario %s: %q is neither pass, fail nor skip", id, state)
	}
	rep.Outcomes[id] = Outcome{State: state, Took: time.Duration(ms) * time.Millisecond, Text: f[3]}
	return nil
}
