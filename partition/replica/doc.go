// Package replica is one partition on one node: a raft group's log, its state machine, and the proposals of its leader.
//
// A [Replica] takes requests while it leads, packs them into entries, and answers when an entry is applied. It decides
// nothing about messages: package fsm does. It decides nothing about other replicas: package partition chooses leaders
// and repairs what failed. A replica asks its [Node] what it must know of the node that it is on. Outside of
// package partition raft's terms and indexes are numbers that are compared.
//
// # Where things are
//
// From the top down: a file uses what stands below it, with few exceptions.
//
//   - reads.go, status.go: what clients and operators ask of a replica, answered outside the log
//   - capture.go: the image of a replica, for a backup
//   - recover.go, auditstores.go, audit.go: a lost majority; do the stores hold what the state machine holds?
//   - election.go, lastterm.go, beat.go, calm.go, members.go, raftside.go, behind.go: the group's leader and members, and raft's calls from peers
//   - watch.go, stuck.go, snapshots.go, health.go, shortage.go: the replica watches itself, and ends when it cannot go on
//   - replica.go, founding.go: it opens, takes proposals and closes
//   - lead.go, round.go, linger.go, begun.go, proposer.go, receives.go, tick.go: a leader's proposals
//   - stamp.go, hooks.go, parking.go, waiters.go, call.go, traffic.go, backpressure.go: the parts of a proposal: its time, who hears of it, how it waits
//   - machine.go, digest.go, drops.go, tallies.go, peak.go: entries are applied, and what is noted about them
//   - guard.go, room.go, pace.go, logcache.go: the stores of the log and the votes, with errors kept away from raft
//   - config.go, ports.go, toonew.go: settings, what a replica is given, and what it must not take yet
//
// A request becomes a call (call.go). The call is parked (parking.go) or rides in an entry (round.go). The entry is
// stamped (stamp.go) and given to raft (lead.go). The call is answered when machine.go has applied the entry.
//
// Start with replica.go, and follow one proposal through proposer.go.
package replica
