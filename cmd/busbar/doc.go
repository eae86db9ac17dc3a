// Command busbar is the broker and its command line: serve starts a node, every other subcommand is a
// client of one. It is the only place that knows all rooms; it opens them in order, hands each what
// it needs, and closes them in reverse.
//
// # Where things are
//
//   - main.go, serve.go, node.go, doors.go: the program, one node, its listeners
//   - config.go, addresses.go, limits.go, policies.go, issuers.go, devca.go: the configuration, keys and certificates
//   - status.go, status_members.go, metrics.go, operator.go, audit.go, audit_stopped.go, messages.go, reset.go,
//     profiles.go, ops_*.go: the operations port
//   - hosts.go: what keeps web pages away from a node
//   - mend.go, roots.go: advice to people beside an error, and authorities for an image that has none
//   - heap.go, quiet.go, segment_*.go, descriptors.go: what the process asks of the operating system
//   - entities_start.go: what the file of entities asks for, made at the start
//   - client, bench, entities, dial, exit: packages of their own, with doors that test/arch holds
//
// Start with node.go.
package main
