package partition

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Deps are the rooms below, as the host needs them.
type Deps struct {
	Caller  Caller
	Locator Locator
	// Open opens the stores of a partition's replica here, creating them if need be.
	Open func(fsm.PartitionID) (replica.Stores, error)
	// Held returns the partitions that have stores here; nil if that cannot be told.
	Held func() ([]fsm.PartitionID, error)
	// Rebuild deletes the stores of a partition, which are closed or cannot be opened; the next Open
	// makes empty ones that rejoin. removed is the index of a committed configuration of the group
	// without this replica; one that was used before is an error. nil: nothing is ever rebuilt.
	Rebuild func(p fsm.PartitionID, removed uint64) error
	// Quarantine notes durably that a partition's stores must not be used, and why: Open refuses them
	// until they are rebuilt. nil: a new start forgets it.
	Quarantine func(p fsm.PartitionID, reason string) error
	// KeepVersion has the data directory refuse, from now on, programs that do not know a cluster version. nil: nobody
	// refuses them.
	KeepVersion func(fsm.Version) error
	// Lives tells old copies of the data from the data; nil if that cannot be told.
	Lives Lives
	// Disk tells how full the disk is; nil if nobody looks.
	Disk Disk
	// Machine returns an empty state machine for a partition.
	Machine func(fsm.PartitionID) replica.Machine
	// Member reports whether a node belongs to the cluster; nil means that the mesh's
	// authentication decides alone.
	Member func(fsm.NodeID) bool
	// About returns what the node says of itself to operators, as JSON; nil if it says nothing.
	About func(context.Context) json.RawMessage
	// OnFatal is told, at most once, that the process must end: a store call does not return.
	OnFatal func(error)
	Log     hclog.Logger
}

// Lives remembers durably which lives of which nodes were heard of. So an old copy of a data directory is not taken
// for the node (docs/decisions/0026-old-copies.md).
type Lives interface {
	// Life counts the starts of this node.
	Life() uint64
	// Witness remembers that a life of another node was heard of and returns what was remembered
	// before; of two lives with one number the first stays.
	Witness(node fsm.NodeID, life uint64, i fsm.Incarnation) (uint64, fsm.Incarnation, error)
	// Distrust marks everything here as an old copy that must be rebuilt. It continues the count of lives above one
	// that this directory does not know of.
	Distrust(reason string, life uint64) error
}

// Disk is the disk that the stores of this node are on.
type Disk interface {
	// Space returns the bytes that this process may still write, and all bytes of the disk.
	Space() (free, total uint64, err error)
	// Ballast takes some of the space, or gives it back. Raft needs it to elect, to take snapshots and to cut logs
	// when nothing else is left.
	Ballast(hold bool) error
}

// Caller sends bytes to other nodes and gets bytes back; cluster.Mesh implements it. A call to the
// own node is allowed and short-circuited. An error wraps fsm.ErrUnavailable if the request was
// surely not delivered, else fsm.ErrUnknown.
type Caller interface {
	raftnet.Caller
	// Handle registers the handler of a kind, before the mesh serves. It owns request. The handler's context ends when
	// the caller cancels or its connection is lost. An error travels as text.
	Handle(kind uint8, h func(ctx context.Context, from fsm.NodeID, request []byte) ([]byte, error))
	// Begin is Call without a goroutine that waits. It is false if nothing was begun; then Call does it. Otherwise done is called
	// once, with what Call would return. It must be short and call nothing of the caller. cancel does not wait, and ends the call with
	// an error that wraps fsm.ErrUnknown and its cause.
	Begin(to fsm.NodeID, kind uint8, request []byte, done func(answer []byte, err error)) (cancel func(cause error), ok bool)
	// HandleBegun registers a second handler of a kind, which is asked first and does not wait. If it is false, the other one is
	// asked. Otherwise it calls done once, with the function that makes the answer. cancel is called when the caller cancels or its connection
	// is lost.
	HandleBegun(kind uint8, h func(from fsm.NodeID, request []byte, done func(answer func() ([]byte, error))) (cancel func(), ok bool))
	// HandleStream registers the handler of a kind with a body.
	HandleStream(kind uint8, h func(ctx context.Context, from fsm.NodeID, header []byte, body io.Reader) ([]byte, error))
}

// Kinds of calls that this room serves; cluster uses kinds from 64 on.
const (
	KindRaft           = raftnet.KindRaft
	KindSnapshot       = raftnet.KindSnapshot
	KindPropose  uint8 = 3
	KindQuery    uint8 = 4
	KindAwait    uint8 = 5
	KindUnpark   uint8 = 6
	KindStatus   uint8 = 7
	// KindReadIndex asks the leader for an index behind which a replica's state is as of now.
	KindReadIndex uint8 = 8
	// KindRebuild tells a failed replica that its group goes on without it: it may start empty.
	KindRebuild uint8 = 9
	// KindStaleness tells which life of a node has begun.
	KindStaleness uint8 = 10
	// KindReopen tells a follower that its leader sees it standing still.
	KindReopen uint8 = 11
	// KindTransfer asks a leader to hand its leadership over.
	KindTransfer uint8 = 12
	// KindQuarantine tells a follower that its state differs from that of a majority.
	KindQuarantine uint8 = 13
	// KindCheckpoint has a leader mark an entry behind which all replicas compute a digest, KindAudit
	// has a replica recount itself.
	KindCheckpoint uint8 = 14
	KindAudit      uint8 = 15
	// KindStepDown tells followers that a leader gave up.
	KindStepDown uint8 = 16
	// KindClock asks a node for its date (S-289).
	KindClock uint8 = 17
	// KindCatalog asks a node to answer when its catalog is as new as told.
	KindCatalog uint8 = 18
	// KindReleased tells a node that an operator took a session from its holder (S-54).
	KindReleased uint8 = 19
	// KindVersion has a node tell its data directory a cluster version that is about to be reached.
	KindVersion uint8 = 20
	// KindCapture has a node capture the image of a partition for a backup. KindReadImage reads the next chunk of it, and
	// KindDropImages gives all images of a backup up.
	KindCapture    uint8 = 21
	KindReadImage  uint8 = 22
	KindDropImages uint8 = 23
	// KindShare reads the image of a share that moves to another partition.
	KindShare uint8 = 24
	// KindBeat exchanges what two nodes tell each other of all their groups. A program that does not know it says so, and
	// has heartbeats of each group instead.
	KindBeat uint8 = 25
)

// Locator knows who is believed to lead a partition; cluster.View implements it. It is a hint.
type Locator interface {
	Leader(p fsm.PartitionID) (node fsm.NodeID, ok bool)
	// Announce tells the other nodes what a replica here has seen; the newest term wins.
	Announce(p fsm.PartitionID, leader fsm.NodeID, term uint64)
}

// Forwarded is one message about which the destination of a forward has decided (S-206).
type Forwarded struct {
	From, To fsm.EntityID // To is 0 if the destination has no entity
	Sub      fsm.SubQueue // of From
	Number   uint64       // of the move, in its source
	Body     []byte       // stored form, of a large message its head; only valid during the call
	Refusal  fsm.Refusal  // None if the destination took it
	Taken    time.Time    // when this node took the message out of its source
}
