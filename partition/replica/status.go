package replica

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// Status is a replica's state as operators see it.
type Status struct {
	Partition fsm.PartitionID `json:"partition"`
	Node      fsm.NodeID      `json:"node"`
	// Name is what the node is called by people, once the catalog knows it under that name; empty if nobody named it.
	Name      string     `json:"name,omitempty"`
	Leader    fsm.NodeID `json:"leader,omitempty"`
	Leading   bool       `json:"leading"`
	Term      uint64     `json:"term"`
	Last      uint64     `json:"last"`      // last log index
	LastTerm  uint64     `json:"last_term"` // its term
	Committed uint64     `json:"committed"`
	Applied   uint64     `json:"applied"`
	// Received is how many bytes of snapshots came since the replica was opened: a replica whose
	// Applied stands still advances while this grows.
	Received uint64 `json:"received,omitempty"`
	// Sending are the snapshots that the replica sends to others now.
	Sending   []raftnet.Sending `json:"sending,omitempty"`
	Voters    []fsm.NodeID      `json:"voters"`
	Nonvoters []fsm.NodeID      `json:"nonvoters,omitempty"`
	// Configured is the index of the last committed configuration, 0 if there is none. Changing says that Voters and
	// Nonvoters are of a later one.
	Configured uint64 `json:"configured,omitempty"`
	Changing   bool   `json:"changing,omitempty"`
	// CatalogLevel is the newest cluster version that the node's program knows, Program the version of the program. Both are
	// told with the replica of the catalog.
	CatalogLevel fsm.Version `json:"catalog_level,omitempty"`
	Program      string      `json:"program,omitempty"`
	// WriteMean is how long the disk of the node took for a write of a log, in the worst ten seconds of two
	// minutes. It is 0 if too little was written to say, and told with the replica of the catalog.
	WriteMean time.Duration `json:"write_mean_ns,omitempty"`
	// Partitions is how many data partitions the node wants the cluster to have, 0 if its operator did not say. It is told
	// with the replica of the catalog.
	Partitions int `json:"partitions,omitempty"`
	// ServesClients says that the node has clients, or would take some. ClientsLeft is the time of the wish because of
	// which all of them were sent away. Programs of cluster versions up to 102 tell neither. Both are told with the replica
	// of the catalog.
	ServesClients bool     `json:"serves_clients,omitempty"`
	ClientsLeft   fsm.Wall `json:"clients_left,omitempty"`
	// Asked counts the requests that the leader has answered, by the lives of the nodes that they came through. It is empty
	// while the replica does not lead. Programs of before decision 0104 do not tell it.
	Asked []Asked `json:"asked,omitempty"`
	// Digests are the newest of the state, behind entries that the leader marked.
	Digests []Digest `json:"digests,omitempty"`
	// Failure is why the replica does not serve; Broken says that it will not do so by itself any
	// more: it must be rebuilt.
	Failure string `json:"failure,omitempty"`
	Broken  bool   `json:"broken,omitempty"`
	// Full says that the node's disk has no room for more messages.
	Full bool `json:"full,omitempty"`
	// WrongClock says that the node's date differs from the median of all by more than five seconds.
	WrongClock bool `json:"wrong_clock,omitempty"`
	// Stuck counts how often the replica was found stuck since the process started.
	Stuck uint64 `json:"wedges,omitempty"`
	// ApplyPeak is how long the state machine took for one batch of entries at most since it was opened.
	// SnapshotPause is how long the beginning of a snapshot kept it from applying.
	ApplyPeak     time.Duration `json:"apply_peak_ns,omitempty"`
	SnapshotPause time.Duration `json:"snapshot_pause_ns,omitempty"`
	// About is what the node says of itself, in the first status of its answer to a question for that. It is JSON, and
	// nobody but the operations port reads it.
	About json.RawMessage `json:"about,omitempty"`
}

// Status returns the replica's state.
func (r *Replica) Status() Status {
	s := Status{Partition: r.id, Node: r.cfg.Node, Leading: r.Leading()}
	s.Leader, s.Term = r.Leader()
	s.Committed, s.Applied = r.raft.CommitIndex(), r.machine.index()
	s.Received, s.Sending, s.Digests = r.net.Received(), r.net.Sending(), r.machine.digests.list()
	s.Last, s.LastTerm = r.raft.LastIndex(), r.last.of(r.raft)
	servers := r.Servers()
	committed, index := r.Configuration()
	s.Configured, s.Changing = index, !slices.Equal(committed.Servers, servers)
	for _, v := range servers {
		if v.Suffrage == raft.Voter {
			s.Voters = append(s.Voters, fsm.NodeID(v.ID))
		} else {
			s.Nonvoters = append(s.Nonvoters, fsm.NodeID(v.ID))
		}
	}
	if err := r.Err(); err != nil {
		s.Failure = err.Error()
	}
	s.Broken = r.failure.Load() != nil || r.Stranded()
	s.Asked = r.prop.asked()
	s.Full = r.room.Level() >= RoomForSettling
	s.WrongClock = r.node.WrongClock()
	s.ApplyPeak, s.SnapshotPause = r.machine.longest.longest(), r.machine.paused.longest()
	return s
}
