// Package wire writes and reads the fields of calls between nodes.
//
// Integers are big endian or varints; a byte string has its length before it as a varint. The formats themselves are
// described in docs/formats/raft.md, and each stands beside the call that it belongs to.
package wire
