// Command prose counts sentences that docs/STYLE.md forbids: those of more than 25 words, and those that begin with
// a word that names nobody. It reads pages and the comments of Go files that are no tests:
// go run ./scripts/prose [-list] [-write].
//
// The file allowed.txt beside it has the highest count of each room. A count above it is an error.
package main
