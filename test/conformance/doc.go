// Package conformance runs the unmodified official Go SDK against real broker processes: one node
// and a cluster of three, in plain text and over TLS.
//
// It is a module of its own, so that the clients' libraries never become dependencies of the broker.
// Package node starts the processes; package smoke holds longer scenarios; package failover kills
// leaders; package languages runs versions of every SDK, each from a folder of its own. Build
// bin/busbar first (make build). Start with cases_test.go.
package conformance
