// Package partition hosts Raft groups, one per partition, and routes commands to them.
//
// A [Host] opens a [replica.Replica] per group that the catalog places on this node. A [Router] turns a key
// into a share, a share into a partition and a partition into a leader, here or on another node. It
// retries until the caller's time is up. Elections, votes and members of a group are decided in this package and those
// below it; elsewhere raft's terms and indexes are numbers that are compared. It decides nothing about messages: that is
// package fsm.
//
// # Where things are
//
// From the top down: a file uses what stands below it, with few exceptions. The packages below are replica with raftnet
// and wire, and control, which decides what happens to whole groups.
//
//   - supervise.go, retire.go, serve.go, audit.go, rebuild.go, nodeside.go, ready.go, dropped.go, levels.go: what package
//     control, other nodes, the replicas here and operators ask of this node
//   - rehome.go, shareimages.go: shares move to other partitions
//   - restore.go, fill.go, backup.go, captures.go, checkimage.go: backups are taken, checked and restored
//   - forwarders.go, forward.go, destination.go, forwarded.go: messages move to other entities
//   - peek.go, released.go, begin.go, router.go, large.go: routing of commands and queries; large bodies
//   - directory_nodes.go, directory_rules.go, directory.go, publish.go: nodes and entities, as the catalog has them
//   - sender.go, unanswered.go, life.go: one request, tried until it has an answer
//   - stepdown.go, dates.go, beat.go, failover.go, transfer.go: who leads
//   - staleness.go, quarantine.go, reopen.go, stuck.go, disk.go, away.go, version.go: is this node well, are its peers
//     there, and do they know what it sends?
//   - host.go: the replicas here, and the loops that watch them
//   - clients.go: whether this node has clients
//   - lost.go, remote.go, begin_remote.go, remotecodec.go: other nodes, and the bytes of calls to them
//   - config.go, ports.go: settings, and what a host is given
//
// Start with router.go and sender.go, or with one proposal in replica/proposer.go.
package partition
