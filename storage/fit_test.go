package storage

import (
	"io"

	"github.com/hashicorp/raft"
)

// What the partitions ask of a group, word for word; cmd wires the two.
var (
	_ raft.LogStore          = (*Log)(nil)
	_ raft.MonotonicLogStore = (*Log)(nil)
	_ raft.StableStore       = (*Stable)(nil)
	_ raft.SnapshotStore     = (*Snapshots)(nil)
	_ interface {
		Put(index uint64, entry []byte, spans []struct{ Offset, Length uint32 }) error
		Read(index uint64, offset, length uint32) ([]byte, error)
		Free(index uint64, offset, length uint32)
		Pin() interface {
			io.WriterTo
			Inline(io.Writer) (int64, error)
			io.Closer
		}
		Restore(r io.Reader) error
	} = (*Bodies)(nil)
)
