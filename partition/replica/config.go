package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// Config is everything that can be set about a replica. Start from Defaults.
type Config struct {
	// Node is the identity of this node, its raft server id and address in one (A15, R8).
	Node fsm.NodeID
	// Clock tells the date of the host's clock, which may be set to anything, and the passing of time, of which only
	// differences count. Nil is the process's own clock; simulations give every node one that steps and drifts.
	Clock func() (wall, passing time.Time)

	// HeartbeatTimeout is how long a follower waits for its leader before it stands for election.
	// It is long on purpose: without the heartbeat fast path (R2) heartbeats queue behind disk
	// work. Failure detection is not its job (A17).
	HeartbeatTimeout time.Duration
	// ElectionTimeout is how long a candidate waits for votes; also the deadline of a transfer.
	ElectionTimeout time.Duration
	// LeaderLease is how long a leader serves without hearing from a majority. Nothing reads by it.
	LeaderLease time.Duration
	// CommitTimeout is how often an idle leader tells followers its commit index. It is the dominant idle cost of a
	// group, and the lag of followers when traffic stops.
	CommitTimeout time.Duration
	// RPCTimeout bounds one raft call to a peer.
	RPCTimeout time.Duration

	// MaxEntryBytes closes an entry: what does not fit waits for the next. A larger single command
	// travels alone (A4).
	MaxEntryBytes int
	// MaxAppendBytes bounds the entries of one AppendEntries call; one entry always fits.
	MaxAppendBytes int
	// MaxAppendEntries bounds their number. Raft reads that many from the log before the bytes are counted, and reads
	// again what did not fit. So it is not far above MaxAppendBytes/MaxEntryBytes. It matters to a follower that
	// catches up only: in between, one entry is in flight.
	MaxAppendEntries int
	// MaxCommandBytes bounds one command; RUL-9's 16 MiB and room for its frame.
	MaxCommandBytes int
	// LogCacheBytes bounds the entries kept in memory for followers, per group.
	LogCacheBytes int
	// MaxPendingRequests and MaxPendingBytes bound what waits in front of the log, per group;
	// beyond them a proposal ends with fsm.ErrBusy.
	MaxPendingRequests int
	MaxPendingBytes    int
	// ReservedRequests and ReservedBytes are on top, for settlements, renewals, forwards and the broker's own
	// bookkeeping (A21). Clients ask again as soon as a place is free; a forwarder among them would wait by chance.
	ReservedRequests int
	ReservedBytes    int
	// MaxParked bounds parked requests and waits, per group (A18).
	MaxParked int
	// MaxReceives bounds the receives and accepts of one entity that are under way; one more ends with
	// fsm.ErrCrowded. Each share of a partitioned entity judges by itself, and knows of them all (S-229).
	MaxReceives int
	// RoundLinger is how long a leader lets a request wait for a second message, so that both ride in one entry. It does so where
	// clients lose nothing by it (decision 0108). 0 is for no wait.
	RoundLinger time.Duration
	// FloodFrom is a rate of one entity, in messages a second. Senders that store fewer are never held for the sake of
	// receivers (decision 0106).
	FloodFrom int
	// SnapshotBytes is how many bytes of log cause a snapshot; SnapshotEntries how many entries.
	SnapshotBytes   int64
	SnapshotEntries uint64
	// TrailingLogs are the entries kept behind a snapshot so that a follower briefly away needs no snapshot. With
	// entries of MaxEntryBytes it bounds the log's bytes too. It must be well above the few entries that a deposed
	// leader can have to itself, one in flight per leadership. Then a follower that needs a snapshot has no
	// conflicting entries beyond it (R7).
	TrailingLogs uint64

	// StuckAfter is how long a group that is asked to advance, and could, may stand still. Then the replica that is
	// in the way is opened anew (R5, R7, R10).
	StuckAfter time.Duration
	// CheckpointEvery is how often the replicas of a group that changes compare digests of their
	// states; 0 means never.
	CheckpointEvery time.Duration
	// CloseTimeout bounds the wait for a replica's goroutines; a disk that hangs for ever would
	// hang Close otherwise.
	CloseTimeout time.Duration

	// OnCommit is called with the time from the proposal of an entry until it is applied. OnSync gets that of a write of
	// log entries to the disk, and OnApply that of applying what raft gives at once. OnHold gets the time for which a request
	// of a sender was held back. Each is nil for nobody, and must not block.
	OnCommit, OnSync, OnApply, OnHold func(time.Duration)
}

// Defaults returns the configuration that the project is tested with.
func Defaults() Config {
	return Config{
		HeartbeatTimeout:   2 * time.Second,
		ElectionTimeout:    2 * time.Second,
		LeaderLease:        time.Second,
		CommitTimeout:      250 * time.Millisecond,
		RPCTimeout:         10 * time.Second,
		MaxEntryBytes:      256 << 10,
		MaxAppendBytes:     4 << 20,
		MaxAppendEntries:   32,
		MaxCommandBytes:    17 << 20,
		LogCacheBytes:      4 << 20,
		MaxPendingRequests: 8192,
		MaxPendingBytes:    32 << 20,
		ReservedRequests:   4096,
		ReservedBytes:      8 << 20,
		MaxParked:          65536,
		MaxReceives:        5000,
		RoundLinger:        time.Millisecond,
		FloodFrom:          5000,
		SnapshotBytes:      64 << 20,
		SnapshotEntries:    200_000,
		TrailingLogs:       1024,
		StuckAfter:         30 * time.Second,
		CheckpointEvery:    5 * time.Minute,
		CloseTimeout:       10 * time.Second,
	}
}

// Validate reports every problem of c.
func (c *Config) Validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(c.Node != "", "node id is empty")
	need(c.HeartbeatTimeout >= 5*time.Millisecond, "heartbeat timeout %v is too short",
		c.HeartbeatTimeout)
	need(c.ElectionTimeout >= c.HeartbeatTimeout,
		"election timeout %v is shorter than the heartbeat timeout", c.ElectionTimeout)
	need(c.LeaderLease >= 5*time.Millisecond && c.LeaderLease <= c.HeartbeatTimeout,
		"leader lease %v is not between 5ms and the heartbeat timeout", c.LeaderLease)
	need(c.CommitTimeout >= time.Millisecond, "commit timeout %v is too short", c.CommitTimeout)
	need(c.RPCTimeout > 0, "rpc timeout %v is not positive", c.RPCTimeout)
	need(c.MaxEntryBytes > 0, "max entry bytes %d is not positive", c.MaxEntryBytes)
	need(c.MaxAppendBytes > 0, "max append bytes %d is not positive", c.MaxAppendBytes)
	need(c.MaxAppendEntries > 0 && c.MaxAppendEntries <= raftnet.MaxAppendEntries,
		"max append entries %d are not 1 to %d", c.MaxAppendEntries, raftnet.MaxAppendEntries)
	need(c.MaxCommandBytes >= c.MaxEntryBytes,
		"max command bytes %d is below max entry bytes", c.MaxCommandBytes)
	need(c.LogCacheBytes >= 0, "log cache bytes %d is negative", c.LogCacheBytes)
	need(c.MaxPendingRequests > 0 && c.MaxPendingBytes >= c.MaxCommandBytes,
		"pending bounds %d requests, %d bytes do not hold one command",
		c.MaxPendingRequests, c.MaxPendingBytes)
	need(c.ReservedRequests >= 0 && c.ReservedBytes >= 0, "reserved bounds are negative")
	need(c.MaxParked > 0, "max parked %d is not positive", c.MaxParked)
	need(c.MaxReceives > 0 && c.MaxReceives <= c.MaxParked, "max receives %d are not 1 to %d",
		c.MaxReceives, c.MaxParked)
	need(c.RoundLinger >= 0 && c.RoundLinger <= time.Second, "linger of rounds %v is not 0 to 1s", c.RoundLinger)
	need(c.FloodFrom > 0, "flood from %d messages a second is not positive", c.FloodFrom)
	need(c.SnapshotBytes > 0 && c.SnapshotEntries > 0, "snapshot bounds are not positive")
	need(c.TrailingLogs >= 64, "trailing logs %d is below 64", c.TrailingLogs)
	need(c.CloseTimeout > 0, "close timeout %v is not positive", c.CloseTimeout)
	return errors.Join(errs...)
}
