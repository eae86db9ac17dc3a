package fsm

import "errors"

// Reading says what a read that may be stale was answered from (S-305): the state behind one entry of a
// partition's log. The same index is the same state on every replica.
type Reading struct {
	Partition PartitionID
	Index     uint64 // of the last entry applied
	Age       Millis // the state held everything that was acknowledged until so long ago
}

// Why a replica does not answer such a read. Both may be retried: behind another node, or later.
var (
	// ErrNoReplica: the node has no replica of the partition.
	ErrNoReplica = errors.New("no replica of the partition here")
	// ErrBehind: the replica has not applied yet what the caller has seen already.
	ErrBehind = errors.New("the replica here is behind what was read before")
)
