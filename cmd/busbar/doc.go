// Command busbar is the broker and its command line: serve starts a node, every other subcommand is a
// client of one. It is the only place that knows all rooms; it opens them in order, hands each what
// it needs, and closes them in reverse.
//
// # Where things are
//
// From the top down: a file uses what stands below it, with few exceptions.
//
//   - main.go, man.go, complete.go, emulator.go, dev.go, serve.go: the program and its command lines, their pages, and what shells complete
//   - signals.go: what ends a process
//   - open.go, entities_start.go: a node opens the rooms in order, and makes the entities of its file
//   - console_ops.go: the web console in front of the operations port
//   - ops_token.go, ops_sockets.go, hosts.go: who may use the operations port, and what keeps web pages away from it
//   - events.go, connections.go, health.go, about.go: what changes; who is connected to any node; what is wrong with the
//     cluster, and what a node says of itself for that
//   - metrics.go, metrics_entities.go, messages.go: what a collector of metrics reads, and operators of messages
//   - audit_log.go, backup.go, restore.go, status_rehome.go, status_moves.go, status.go, status_upgrade.go, status_nodes.go,
//     status_members.go, operator.go, reset.go, audit.go, profiles.go:
//     what the operations port answers
//   - audit_stopped.go, recover.go: an audit of data directories whose nodes are stopped, and their recovery
//   - reload_http.go, reload.go, reload_access.go, reload_watch.go, reload_settings.go, service.go: a running node reads its
//     configuration again; what systemd is told
//   - issuers_signin.go, issuers.go, policies.go, roots.go: where people sign in, whose tokens are good, and authorities for an image that has none
//   - traces.go: where the spans of messages go
//   - greeting.go, ephemeral.go: what a developer is told, and nodes that keep nothing
//   - log_lines.go: the form of the lines of the log
//   - doors.go, certificates_node.go, certificates.go, devca.go: the listeners, and what the node shows to others
//   - node.go, version.go, alarms.go, mend.go: the node itself, its version, its alarms, and advice to people beside an error
//   - timings.go, histogram.go: how long the stations of a message take
//   - schema.go, config.go, config_faults.go, placement.go, limits.go, bounds.go, addresses.go, gossip_keys.go, config_values.go: the configuration
//
// The packages console, client, doctor, lines, backup, bench, entities, dial, exit, notify, process, sink and tracing have doors that test/arch holds.
//
// Start with open.go.
package main
