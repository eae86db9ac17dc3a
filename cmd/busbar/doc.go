// Command busbar is the broker and its command line: serve starts a node, every other subcommand is a
// client of one. It is the only place that knows all rooms; it opens them in order, hands each what
// it needs, and closes them in reverse.
//
// Start with node.go.
package main
