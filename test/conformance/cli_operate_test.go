package conformance

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"strings"
)

// operate uses the verbs that need the operations port.
func operate(s *shell, ops string) {
	drops(s, ops)
}

// shown is what queue show prints as JSON.
type shown struct {
	Counts  struct{ Active, DeadLetter int }
	Options struct{ NoDeadLetter bool }
	Dropped map[string]int
}

func (s *shell) show(queue string) (v shown) {
	s.Helper()
	text := s.do(0, "", "queue", "show", queue, "-o", "json")
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		s.Fatalf("queue show printed %q: %v", text, err)
	}
	return v
}

// drops: S-169. A queue without dead-letter queue counts what it drops, and every door shows it.
func drops(s *shell, ops string) {
	const q = "cli-drops"
	s.do(0, "", "queue", "create", q, "--no-dead-letter", "--max-delivery-count", "1")
	if v := s.show(q); !v.Options.NoDeadLetter || len(v.Dropped) != 0 {
		s.Errorf("a new queue: %+v", v)
	}
	s.do(0, "", "send", q, "one", "two", "three")
	s.bodies("one", s.messages("receive", q, "--abandon"))
	s.do(0, "", "queue", "purge", q, "--yes")
	if v, want := s.show(q), map[string]int{"max-delivery-count": 1, "purged": 2}; !reflect.DeepEqual(v.Dropped, want) {
		s.Errorf("dropped %v, want %v", v.Dropped, want)
	}
	table := strings.Join(strings.Fields(s.do(0, "", "queue", "show", q)), " ")
	if !strings.HasSuffix(table, " no DROPPED MESSAGES max-delivery-count 1 purged 2") {
		s.Errorf("queue show printed %s", table)
	}
	answer, err := http.Get(ops + "/metrics")
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	for _, want := range []string{`reason="max-delivery-count"} 1`, `reason="purged"} 2`} {
		series := `(?m)^busbar_messages_dropped_total\{entity="cli-drops",partition="\d+",` + want + `$`
		if !regexp.MustCompile(series).Match(text) {
			s.Errorf("the metrics have no %s", want)
		}
	}

	// The option is shown and set, is in the export, and a file sets it.
	options := func(flags ...string) bool {
		s.Helper()
		var v struct{ NoDeadLetter bool }
		text := s.do(0, "", append([]string{"queue", "options", q, "-o", "json"}, flags...)...)
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			s.Fatalf("queue options printed %q: %v", text, err)
		}
		return v.NoDeadLetter
	}
	if !options() || options("--no-dead-letter=false") || s.show(q).Options.NoDeadLetter || !options("--no-dead-letter") {
		s.Error("queue options does not show or set whether there is a dead-letter queue")
	}
	exported := s.do(0, "", "entities", "export")
	if _, after, ok := strings.Cut(exported, q); !ok || !strings.Contains(after, "NoDeadLetter: true") {
		s.Errorf("entities export printed %s", exported)
	}
	s.do(0, "", "queue", "delete", q)
}
