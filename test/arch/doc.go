// Package arch holds the walls of the house: which room may import which, and what the pure part may use. It bounds
// files and functions, and says where package comments stand and what may stand at the top of the repository. The files
// of a large package stand in an order, and few of them use what is above them. The rules hold for the broker and, but
// where a rule says why not, for tests and scripts.
//
// It reads source text only, and uses nothing but the standard library and the go command. Every rule
// takes the root of a tree, so the tests can plant a sin in a temporary tree and see it caught.
//
// Start with arch_test.go; the law itself is the table in doors.go, and that of tests in testrooms.go.
package arch
