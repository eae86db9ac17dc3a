// Package conformance runs the unmodified official Go SDK against real broker processes: one node
// and a cluster of three, in plain text and over TLS.
//
// It imports nothing of the broker but the wire format and the tokens, for raw frames.
// Package test/cluster starts the processes; package smoke holds longer scenarios; package failover kills
// leaders; package languages runs versions of every SDK, each from a folder of its own. Build
// bin/busbar first (make build). Start with cases_test.go.
package conformance
