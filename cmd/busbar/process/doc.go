// Package process has what the broker asks of the Go runtime and of the operating system. These are how often memory is
// collected, how the runtime's threads sleep, how large TCP segments are, and how many files may be open. It knows
// nothing of messages or nodes. Where a system cannot do one of these things, the broker runs as well, and slower.
//
// Start with heap.go.
package process
