// Package replica is one partition on one node: a raft group's log, its state machine, and the proposals of its leader.
//
// A [Replica] takes requests while it leads, packs them into entries, and answers when an entry is applied. It decides
// nothing about messages: package fsm does. It decides nothing about other replicas: package partition chooses leaders
// and repairs what failed. A replica asks its [Node] what it must know of the node that it is on. Outside of
// package partition raft's terms and indexes are numbers that are compared.
//
// Start with replica.go, and follow one proposal through proposer.go.
//
// Where things are:
//
//	the replica      replica.go, config.go, ports.go, health.go, status.go, watch.go
//	proposals        proposer.go, call.go, round.go, lead.go, tick.go, stamp.go, hooks.go
//	waiting          parking.go, receives.go, waiters.go
//	reads            reads.go
//	the machine      machine.go, snapshots.go, drops.go, peak.go
//	the stores       guard.go, logcache.go, room.go, shortage.go
//	raft             raftside.go, founding.go, behind.go, election.go, members.go, stuck.go
//	is it right?     digest.go, audit.go, auditstores.go
//
// A request becomes a call (call.go). The call is parked (parking.go) or rides in an entry (round.go). The entry is
// stamped (stamp.go) and given to raft (lead.go). The call is answered when machine.go has applied the entry.
package replica
