// Package raftnet carries the raft calls of one group between nodes: it is a raft.Transport over the calls of a mesh.
//
// A [Transport] decides nothing about messages and nothing about who leads. It asks its [Replica] whether to speak at all,
// and refuses from hostile peers what would make raft panic.
//
// Where things are:
//
//	transport.go  what raft asks of other nodes
//	serve.go      what other nodes ask of raft here
//	codec.go      the bytes of calls and answers (docs/formats/raft.md)
//	sending.go    snapshots that are on their way, and how far they are
//	rate.go       what a node sends to new replicas in a second
//	gate.go       snapshots that the replica does not need are kept from raft
//	heard.go      how old the state here may be (S-305)
//	beat.go       what two nodes tell each other of all their groups
//	pulse.go      when a node was heard last
//	rest.go       groups without work need no calls
//	calm.go       groups whose replicas all say the same
//	log.go        what of raft's log lines is passed on
package raftnet
