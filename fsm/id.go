package fsm

import (
	"encoding/hex"
	"fmt"
)

// PartitionID numbers a Raft group. Group 0 is the catalog; data partitions count from 1 and stay
// below 32768, so a sequence number that carries one is never negative (A1, S-93, RUL-21).
type PartitionID uint16

// CatalogPartition is the Raft group that holds entities, placement and nodes (A2).
const CatalogPartition PartitionID = 0

// NodeID is the random UUID of a node's data directory. A wiped node gets a new one (A15, R8).
// It also serves as the node's logical address: it never changes with the node's IP.
type NodeID string

// Incarnation is a random number drawn at every start of a broker process. It tells the commands,
// sessions and parked requests of one life of a node from those of the next (RUL-19).
type Incarnation uint64

// EntityID names one incarnation of a queue, topic or subscription. The catalog hands out each number once. So a
// re-created name has a new id, and commands for the old one find nothing (S-259, I21).
type EntityID uint64

// Millis is a duration in milliseconds.
type Millis int64

// Wall is a point of the wall clock, in milliseconds from the Unix epoch. Zero stands for none where a time is optional.
type Wall int64

// Lease is a point of a partition's lease clock, in milliseconds from the partition's beginning. The clock stands still
// while nobody leads (S-285). Zero stands for none where a time is optional.
type Lease int64

// instant is a point of either clock. The two never mix: no expression has both (S-285).
type instant interface{ Wall | Lease }

// After returns t + d, or the largest time if that does not fit.
func (t Wall) After(d Millis) Wall { return after(t, d) }

// Since returns how long after u the time t is.
func (t Wall) Since(u Wall) Millis { return Millis(t - u) }

// After returns t + d, or the largest time if that does not fit.
func (t Lease) After(d Millis) Lease { return after(t, d) }

// Since returns how long after u the time t is.
func (t Lease) Since(u Lease) Millis { return Millis(t - u) }

func after[T instant](t T, d Millis) T {
	if sum := t + T(d); d < 0 || sum >= t {
		return sum
	}
	return 1<<63 - 1
}

// SequenceNumber is the broker's number of a message, unique in its entity (S-89). On a partitioned
// entity the top 16 bits are the partition id and the low 48 bits the share's counter; otherwise the
// whole non-negative int64 range is the counter (S-92, S-94).
type SequenceNumber uint64

// LockToken proves a message or session lock. The first two bytes, big endian, are the share's
// prefix (0 on an unpartitioned entity), the other 14 are random (S-17, S-317). The zero token is
// never issued.
type LockToken [16]byte

// Prefix returns the partition id that the token carries, 0 if its entity is not partitioned.
func (t LockToken) Prefix() PartitionID { return PartitionID(t[0])<<8 | PartitionID(t[1]) }

// IsZero reports whether t is no token at all.
func (t LockToken) IsZero() bool { return t == LockToken{} }

// String returns t as 32 hexadecimal digits.
func (t LockToken) String() string { return hex.EncodeToString(t[:]) }

// Prefix returns the partition id that the number carries on a partitioned entity.
func (n SequenceNumber) Prefix() PartitionID { return PartitionID(n >> 48) }

// RequestID names one command of one pump for ever. A pump has one request outstanding, so a new
// counter acknowledges the result of the last one (A6, S-307).
type RequestID struct {
	Node    Incarnation
	Pump    uint64 // unique within the incarnation
	Counter uint64 // grows by one per request of the pump; a retry repeats it
}

// IsZero reports whether the id is absent: the command is then not remembered and must not be
// retried after an unknown ending.
func (r RequestID) IsZero() bool { return r == RequestID{} }

// String returns the id as node/pump/counter.
func (r RequestID) String() string { return fmt.Sprintf("%x/%d/%d", uint64(r.Node), r.Pump, r.Counter) }

// SubQueue tells the main queue of an entity from its two dead-letter queues and its transfer queue.
type SubQueue uint8

// The subqueues of a receivable entity (S-168).
const (
	Main SubQueue = iota
	DeadLetter
	TransferDeadLetter
	// TransferQueue holds what is to be sent to other entities. Nobody but the forwarder looks into it:
	// only Forward and Moving name it (S-236).
	TransferQueue
)

// String returns the path suffix of the subqueue.
func (s SubQueue) String() string {
	switch s {
	case Main:
		return ""
	case DeadLetter:
		return "$DeadLetterQueue"
	case TransferDeadLetter:
		return "$Transfer/$DeadLetterQueue"
	case TransferQueue:
		return "$Transfer"
	}
	return fmt.Sprintf("SubQueue(%d)", uint8(s))
}

// RouteBy says how a [Key] finds its share.
type RouteBy uint8

// The ways to find a share.
const (
	ByAny   RouteBy = iota // any share: round robin (S-314); the only share if there is one
	ByText                 // the share that the hash of Text selects (S-313)
	ByShare                // the share with index Share in Descriptor.Partitions
)

// Key says where a command, a wait or a query belongs. The router turns it into a partition; an
// entity with one share ignores By.
type Key struct {
	Entity EntityID
	Sub    SubQueue
	By     RouteBy
	Share  uint16 // index into Descriptor.Partitions, with ByShare
	Text   string // session id, partition key or message id, with ByText
}

// BodyRef says where a message's bytes are: at Offset of the log entry with that raft index. It is
// equal on every replica; each replica knows where it keeps the entry's bytes (A9).
type BodyRef struct {
	Index  uint64
	Offset uint32
	Length uint32
}
