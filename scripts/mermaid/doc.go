// Command mermaid checks the diagrams in Markdown files: go run ./scripts/mermaid README.md docs test/README.md.
//
// It knows the part of Mermaid that the pages use: sequence diagrams with participants, messages, notes, alt, opt and
// loop. It knows state diagrams with transitions, and flowcharts with boxes and arrows. Anything else is an error, so
// that a page shows what its author meant in every viewer. A participant and a box must be declared, a block must end,
// and a state must be reachable.
//
// # Where things are
//
//   - main.go: the command line, sequences and states
//   - flow.go: flowcharts
package main
