package rest

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/busbar-mq/busbar/fsm"
)

// ClusterStatus is the state of the cluster as one node sees it.
type ClusterStatus struct {
	Node fsm.NodeID `json:"node"` // the one that answers
	// Clock is what the comparison with the other nodes' clocks says of the answering one (S-289); none
	// while there are too few to compare with.
	Clock *ClockStatus `json:"clock,omitempty"`
	// Alarms are those of the node that answers.
	Alarms     []Alarm           `json:"alarms,omitempty"`
	Nodes      []NodeStatus      `json:"nodes"`
	Partitions []PartitionStatus `json:"partitions"`
	Entities   []EntityStatus    `json:"entities"`
	// ClusterVersion is what every node knows. Knows is the newest version that the program of the node that answers knows.
	ClusterVersion string `json:"clusterVersion,omitempty"`
	Knows          string `json:"knows,omitempty"`
	// Moves are the partitions whose replicas are not where the catalog wants them.
	Moves []fsm.PartitionID `json:"moves,omitempty"`
	// Progress is how far the replicas are that are being filled for these.
	Progress []MoveStatus `json:"progress,omitempty"`
	// Rehomings are the shares that move to other partitions, and those of which the last move was given up.
	Rehomings []RehomingStatus `json:"rehomings,omitempty"`
}

// ShareMove is a share of a queue, the partition that it is in, and the one that it goes to.
type ShareMove struct {
	Share int             `json:"share"`
	From  fsm.PartitionID `json:"from"`
	To    fsm.PartitionID `json:"to"`
}

// RehomingStatus is how far the move of a share is.
type RehomingStatus struct {
	Entity string `json:"entity"`
	ShareMove
	// Step is "copy", "open" or "back", and "failed" when it was given up; Why tells why.
	Step  string    `json:"step"`
	Why   string    `json:"why,omitempty"`
	Left  int       `json:"left"` // shares of the entity that move next
	Since time.Time `json:"since"`
}

// MoveStatus is how far a new replica is.
type MoveStatus struct {
	Partition fsm.PartitionID `json:"partition"`
	Node      fsm.NodeID      `json:"node"` // that gets it
	From      fsm.NodeID      `json:"from"` // that leads the partition
	// EntriesLeft counts the entries of the log that the replica has not applied yet. Those in a snapshot go at once.
	EntriesLeft uint64 `json:"entriesLeft"`
	// BytesSent and BytesTotal are of the snapshot that is on its way, 0 if there is none. BytesPerSecond is the mean since
	// it began.
	BytesSent      uint64 `json:"bytesSent,omitempty"`
	BytesTotal     uint64 `json:"bytesTotal,omitempty"`
	BytesPerSecond uint64 `json:"bytesPerSecond,omitempty"`
}

// ClockStatus says how far a node's date is from the others'.
type ClockStatus struct {
	AheadMillis int64 `json:"aheadMillis"` // of the median of all; negative if it is behind
	Wrong       bool  `json:"wrong"`       // by more than five seconds: it leaves leading to others
}

// NodeStatus is one broker node.
type NodeStatus struct {
	ID         fsm.NodeID `json:"id"`                   // as people named it, if that is unique
	UUID       fsm.NodeID `json:"uuid"`                 // its identity
	State      string     `json:"state"`                // "alive", "dead" or "left"
	Address    string     `json:"address"`              // for clients, host:port
	Operations string     `json:"operations,omitempty"` // for operators, host:port
	Zone       string     `json:"zone,omitempty"`       // as the node named it
	// Wish is what an operator wants of the node: "drain", "remove", "gone", or "" if it is to serve. Since is when
	// that was said.
	Wish  string     `json:"wish,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	// Leads counts the groups that the node leads, Replicas those of which it has or is to have a replica, the catalog
	// left out.
	Leads    int `json:"leads,omitempty"`
	Replicas int `json:"replicas,omitempty"`
	// Stays says why the replicas of a node that is to be empty do not move, "" if they do.
	Stays string `json:"stays,omitempty"`
}

// PartitionStatus is one Raft group; number 0 is the catalog.
type PartitionStatus struct {
	ID       fsm.PartitionID `json:"id"`
	Leader   fsm.NodeID      `json:"leader"` // "" if none is known
	Term     uint64          `json:"term"`
	Replicas []fsm.NodeID    `json:"replicas"`
	Applied  uint64          `json:"applied"` // index at the replica of the answering node, or 0
	// Failure is why the replica of the answering node does not serve; "" if it does.
	Failure string `json:"failure,omitempty"`
	// Voters and Nonvoters are the members of the group as its replica at the answering node knows them. Without a replica
	// they are as the leader tells them, if it answers. Members are those that the catalog wants.
	Voters    []fsm.NodeID `json:"voters,omitempty"`
	Nonvoters []fsm.NodeID `json:"nonvoters,omitempty"`
	Members   []fsm.NodeID `json:"members,omitempty"`
	// Differs says, a sentence each, where the two are not the same: a change that is under way, or
	// waits for something.
	Differs []string `json:"differs,omitempty"`
}

// EntityStatus tells in which partitions an entity lives.
type EntityStatus struct {
	Name   string            `json:"name"`
	Shares []fsm.PartitionID `json:"shares"`
}

// ClusterCommands is where the paths begin by which operators command the cluster, all of them POST.
const ClusterCommands = "/api/cluster/"

// UpgradePath is where GET tells how far an upgrade is.
const UpgradePath = "/api/cluster/upgrade"

// UpgradeStatus is the cluster version, and the programs of the nodes.
type UpgradeStatus struct {
	Version string `json:"version"` // the cluster version, such as 0.1-1
	Knows   string `json:"knows"`   // the newest version that the program of the node that answers knows
	// Next is the version that every node that answers knows and the cluster does not have, "" if there is none.
	Next string `json:"next,omitempty"`
	// Waits says why the cluster version cannot be raised, "" if it can or need not be.
	Waits string        `json:"waits,omitempty"`
	Nodes []NodeProgram `json:"nodes"`
}

// NodeProgram is the program of a node.
type NodeProgram struct {
	ID      fsm.NodeID `json:"id"`   // as people named it, if that is unique
	UUID    fsm.NodeID `json:"uuid"` // its identity
	Program string     `json:"program,omitempty"`
	Knows   string     `json:"knows,omitempty"`   // the newest cluster version that it knows, "" if the node does not answer
	Problem string     `json:"problem,omitempty"` // why the node does not answer
}

// Operations returns the handler of the operations port: health, metrics, the cluster, and the
// management API on every other path. Health, metrics and the state of the cluster need no token,
// because probes and collectors have none; cmd/busbar asks for one before a leader is moved. The
// paths hide entities of the same names from this port only.
func (a *API) Operations() http.Handler {
	metrics := promhttp.HandlerFor(a.deps.Metrics, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: 4,
	})
	// A page in an operator's browser can reach the loopback interface: it must not command.
	commands := http.NewCrossOriginProtection().Handler(http.HandlerFunc(a.serveCommand))
	management := a.Management()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/health" && isRead(r):
			a.serveHealth(w, r)
		case path == "/livez" && isRead(r):
			writeJSON(w, r, http.StatusOK, map[string]string{"status": "alive"})
		case path == "/readyz" && isRead(r):
			a.serveReady(w, r)
		case (path == checksPath || strings.HasPrefix(path, checkPrefix)) && isRead(r):
			a.serveChecks(w, r)
		case path == "/metrics" && isRead(r):
			metrics.ServeHTTP(w, r)
		case path == OverviewPath && isRead(r):
			a.serveOverview(w, r)
		case path == "/api/cluster" && isRead(r):
			ctx, cancel := a.timeout(r)
			defer cancel()
			writeJSON(w, r, http.StatusOK, a.deps.Cluster.Cluster(ctx))
		case path == UpgradePath && isRead(r):
			ctx, cancel := a.timeout(r)
			defer cancel()
			writeJSON(w, r, http.StatusOK, a.deps.Cluster.Upgrade(ctx))
		case strings.HasPrefix(path, ClusterCommands) && r.Method == http.MethodPost:
			commands.ServeHTTP(w, r)
		default:
			management.ServeHTTP(w, r)
		}
	})
}
