// Package partition hosts Raft groups, one per partition, and routes commands to them.
//
// A [Host] opens a [Replica] per group that the catalog places on this node. A [Router] turns a key
// into a share, a share into a partition and a partition into a leader, here or on another node. It
// retries until the caller's time is up. Raft words (term, index) do not leave this room. It decides
// nothing about messages: that is package fsm.
//
// Start with replica.go and the path of one proposal in proposer.go.
package partition
