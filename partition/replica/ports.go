package replica

import (
	"io"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// Machine is a replicated state machine: fsm.State for data, catalog.State for group 0. All calls
// are made under one lock of machine.go.
type Machine interface {
	Apply(index uint64, e *fsm.Entry) fsm.Result
	Query(q fsm.QueryRequest) fsm.Answer
	// Capture returns an image of the state as it is now, quickly; it is written later, on another
	// goroutine, while Apply goes on (A8).
	Capture() io.WriterTo
	// Restore replaces the state by an image. It reads exactly the image's bytes from r and no more.
	Restore(r io.Reader) error
	// Clocks returns the stamped clocks (S-285).
	Clocks() (wall fsm.Wall, lease fsm.Lease)
	// NextDeadline returns when a Tick is due next, by each clock; 0 means never.
	NextDeadline() (wall fsm.Wall, lease fsm.Lease)
}

// Stores is everything one replica keeps on disk. Any error of theirs fails the replica (A15).
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	Bodies    Bodies
	Close     func() error
	// Rejoins says that an earlier replica here was given up. This one waits until its group takes it in, whatever
	// Open is told, and never founds the group (R8).
	Rejoins bool
}

// Span is one body in an entry: Length bytes at Offset.
type Span = struct{ Offset, Length uint32 }

// Bodies keeps the bytes of log entries that messages of the state refer to (A9).
type Bodies interface {
	// Put keeps the bodies of the entry with that index: bodies says where they are in it, at least
	// one, ascending, none empty. All of them live until they are freed. An index may be put again
	// after a restart, when the log is replayed; nothing is retained.
	Put(index uint64, entry []byte, bodies []Span) error
	// Read returns length bytes at offset of the entry, from within one body, in memory of the
	// caller's own. The error wraps fs.ErrNotExist if the body was freed; any other fails the replica.
	Read(index uint64, offset, length uint32) ([]byte, error)
	// Free says that the body of length bytes at offset of the entry is referred to no more.
	Free(index uint64, offset, length uint32)
	// Pin freezes what is kept now for a snapshot; writing it appends the names of the segments to
	// the snapshot after the image. Inline writes the bodies themselves. Segments live until Close.
	Pin() pin
	// Restore makes the kept bytes those of a snapshot; r is the reader that raft gave to
	// FSM.Restore, with the image already read from it.
	Restore(r io.Reader) error
}

// Knower is a Machine that lists what it knows of the catalog; fsm.State is one.
type Knower interface{ Known() []fsm.KnownEntity }

// Deliverer is a Machine that can tell what a lock would find; fsm.State is one.
type Deliverer interface {
	Deliverable(k fsm.WaitKey) bool
}

// Answerer is a Machine that can tell whether a request has had an answer, and whether that would be given again;
// fsm.State is one.
type Answerer interface {
	Answered(id fsm.RequestID) (answered, holds bool)
}

// Viewer is a Machine whose whole state is one value that never changes; catalog.State is one. A reader of that value
// waits for no entry that is being applied, and for no snapshot that is being restored.
type Viewer interface{ View() *catalog.View }

// Descender is a Machine that knows the topics of its subscriptions; fsm.State is one.
type Descender interface {
	Parent(id fsm.EntityID) fsm.EntityID
}

// Node is what a replica asks of the node that it is on, and what it tells it. Many goroutines call the methods; none
// but Defers may block.
type Node interface {
	// Allowed reports whether a node is a member of the cluster.
	Allowed(fsm.NodeID) bool
	// Lost reports whether a node was reported lost, and nothing was heard of it since.
	Lost(fsm.NodeID) bool
	// ClusterVersion returns the version that every node of the cluster knows, as this node has heard.
	ClusterVersion() fsm.Version
	// WrongClock reports whether the date of this node is wrong.
	WrongClock() bool
	// Defers reports whether a replica leaves an election to others because of that.
	Defers(*Replica) bool
	// Changed is told that the leader known to a replica, its term or its health changed.
	Changed(*Replica)
	// Applied is told that the replica of a partition has applied entries.
	Applied(fsm.PartitionID)
}
