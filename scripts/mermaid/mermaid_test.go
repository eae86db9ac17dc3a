package main

import (
	"strings"
	"testing"
)

func TestDiagrams(t *testing.T) {
	const who = "sequenceDiagram\nparticipant A as one\nparticipant B as two\n"
	cases := []struct{ name, text, want string }{
		{"messages", who + "A->>B: asks\nB-->>A: answers\nB--xA: is lost\nA-xA: too", ""},
		{"notes", who + "Note over A: waits\nNote over A,B: both\nNote left of B: x", ""},
		{"blocks", who + "alt yes\nA->>B: x\nelse no\nopt now\nB->>A: y\nend\nend", ""},
		{"a text with a colon", who + "A->>B: Lock: token", ""},
		{"a participant that was not declared", who + "A->>C: x", ":5: no participant C"},
		{"a note over nobody", who + "Note over C: x", "no participant C"},
		{"a participant twice", who + "participant A as three", "A is declared twice"},
		{"a block without its end", who + "opt x\nA->>B: y", "opt does not end"},
		{"an end too many", who + "end", "end without a block"},
		{"else in opt", who + "opt x\nelse y\nend", "else without alt"},
		{"a message without a text", who + "A->>B", "is no line of a sequence diagram"},
		{"an arrow that there is not", who + "A=>B: x", "is no line of a sequence diagram"},
		{"a semicolon", who + "A->>B: x; y", `";" breaks a text`},
		{"the word end", who + "A->>B: the end of it", `"end" breaks a text`},
		{"the ending is no end", who + "A->>B: the ending", ""},
		{"states", "stateDiagram-v2\n[*] --> A: x\nA --> B\nB --> [*]: y", ""},
		{"a state that nothing leads to", "stateDiagram-v2\n[*] --> A: x\nB --> A: y", ":4: B cannot be reached"},
		{"states that lead to each other only", "stateDiagram-v2\n[*] --> A\nB --> C\nC --> B", "C cannot be reached"},
		{"a transition with a wrong arrow", "stateDiagram-v2\n[*] -> A", "is no transition"},
		{"a transition with two colons", "stateDiagram-v2\n[*] --> A: x: y", "a second colon"},
		{"boxes and arrows", "flowchart TD\na[\"one\"]\nb[\"two/three\"]\na --> b\nb -.-> a", ""},
		{"a box that was not declared", "flowchart TD\na[\"one\"]\na --> b", ":4: no box b"},
		{"a box twice", "flowchart TD\na[\"one\"]\na[\"two\"]", "a is declared twice"},
		{"an arrow twice", "flowchart TD\na[\"one\"]\nb[\"two\"]\na --> b\na --> b", "a second arrow from a to b"},
		{"a box without a text", "flowchart TD\na", "is no line of a flowchart"},
		{"a box whose name ends a block", "flowchart TD\nend[\"one\"]", `"end" breaks a text`},
		{"an arrow of another kind", "flowchart TD\na[\"one\"]\na --- a", "is no line of a flowchart"},
		{"another kind", "pie\nA --> B", "is no kind of diagram"},
		{"nothing", "", "is no kind of diagram"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n, faults := Check("page.md", "```mermaid\n"+c.text+"\n```\n")
			got := strings.Join(faults, "\n")
			if n != 1 || c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%d diagrams, got %q, want %q", n, got, c.want)
			}
		})
	}
}

func TestFences(t *testing.T) {
	if n, faults := Check("p", "```go\nflowchart\n```\n"); n != 0 || len(faults) > 0 {
		t.Errorf("code is taken for a diagram: %d, %q", n, faults)
	}
	if _, faults := Check("p", "x\n```mermaid\nstateDiagram-v2\n"); len(faults) != 1 || faults[0] != "p:2: the diagram does not end" {
		t.Errorf("got %q", faults)
	}
}
