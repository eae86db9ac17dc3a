// Package partition hosts Raft groups, one per partition, and routes commands to them.
//
// A [Host] opens a [replica.Replica] per group that the catalog places on this node. A [Router] turns a key
// into a share, a share into a partition and a partition into a leader, here or on another node. It
// retries until the caller's time is up. Elections, votes and members of a group are decided in this package and those
// below it; elsewhere raft's terms and indexes are numbers that are compared. It decides nothing about messages: that is
// package fsm.
//
// Start with router.go and sender.go, or with one proposal in replica/proposer.go.
//
// Where things are:
//
//	one replica           replica/, and raftnet/ for its calls to its peers
//	whole groups          control/, and supervise.go, which gives it this node
//	the replicas here     host.go, nodeside.go, ports.go, config.go, reopen.go, rebuild.go, ready.go, dropped.go
//	routing               router.go, sender.go, away.go, large.go, peek.go, unanswered.go, life.go
//	other nodes           remote.go, remotecodec.go, serve.go, wire/
//	entities              directory.go, directory_rules.go, publish.go, released.go, audit.go
//	forwarding            forwarders.go, forward.go
//	who leads             failover.go, stepdown.go, lost.go, transfer.go
//	is this node well?    disk.go, dates.go, staleness.go, quarantine.go, stuck.go
package partition
