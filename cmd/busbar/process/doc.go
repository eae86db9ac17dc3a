// Package process has what the broker asks of the Go runtime and of the operating system. The package decides how often
// memory is collected, what of the program stays in memory, and how the runtime's threads sleep. It decides how many
// processors they use. It sets how large TCP
// segments are, and how many files may be open. It knows nothing of messages or nodes. Where a system cannot do one of
// these things, the broker runs as well, and slower.
//
// Start with heap.go.
package process
