// Package examples runs the programs of docs/examples as their pages say, and compares what they print with the pages.
// The commands of other pages, and the first programs of README.md, are run, too.
//
// Three nodes serve the programs of one language, and the languages run side by side. The clients connect to one of
// these nodes. The others are killed and started again meanwhile, the one that leads most partitions first. With -short
// one node serves them, and nobody is killed.
//
//	go test ./conformance/examples -parallel 8
//	go test ./conformance/examples -short -run 'TestPrograms/Go/fifo'
//
// # Where things are
//
//   - programs_test.go: the nodes, their killer and the programs
//   - languages_test.go: how programs of each language are run
//   - page_test.go: the output that a page shows
//   - commands_test.go: the commands that other pages tell to type
//   - readme_test.go: the first programs of README.md
//   - minutes_test.go: the path of a newcomer, from the start to a dead letter
package examples
