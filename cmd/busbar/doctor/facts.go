package doctor

import "time"

// Facts are what is known of a cluster at one time.
type Facts struct {
	Now     time.Time
	Members []Member
	Groups  []Group // 0 is the catalog
	// Young says that the cluster has no version: not every node has told the catalog what its program knows.
	Young bool
	// SlowFrom is the time of a write from which on placement takes a disk for a slow one.
	SlowFrom time.Duration
}

// Member is a node that the catalog or gossip knows.
type Member struct {
	ID    string // as people know it
	State string // "alive", "dead", "left" or "unknown"
	Wish  string // what an operator wants of it, "" if it is to serve
	// Unregistered says that the catalog does not have the node, and so not its name either.
	Unregistered bool
	// Holds says that the catalog gives the node a replica of messages.
	Holds bool
	// Successor is the node that lives and has the name of this one, "" if none has: the disk of this one was replaced.
	Successor string
	// Problem is why the node did not answer in time, "" if it did.
	Problem string
	// Says is what the node says of itself, nil if it did not answer, or is of a version that says nothing.
	Says *Node
	// WriteMean is how long the disk of the node takes for a write of a log, 0 if that is not known.
	WriteMean time.Duration
	// Replicas are those of the node, by partition.
	Replicas map[int]Replica
}

// Node is what a node says of itself. It goes from node to node as JSON, and each field may be missing.
type Node struct {
	Version      string `json:"version,omitempty"`
	UptimeMillis int64  `json:"uptimeMillis,omitempty"`
	DiskFree     uint64 `json:"diskFreeBytes,omitempty"`
	DiskTotal    uint64 `json:"diskTotalBytes,omitempty"`
	// Faults are the checks that fail, alarms among them.
	Faults      []Fault      `json:"faults,omitempty"`
	Certificate *Certificate `json:"certificate,omitempty"` // nil: none
	// Settings are those that all nodes should share. The value of a secret is SecretPrefix and a digest. They are for the
	// node that asks: nobody else is told them.
	Settings map[string]string `json:"settings,omitempty"`
}

// SecretPrefix begins the value of a setting that must not be shown.
const SecretPrefix = "secret:"

// Fault is a check of a node that fails.
type Fault struct {
	Name      string `json:"name"`
	Reason    string `json:"reason"`
	Readiness bool   `json:"readiness"` // the node gets no new clients
}

// Certificate is what a node says of its certificates.
type Certificate struct {
	// Expires is when the first of them ends.
	Expires time.Time `json:"expires"`
	// Fault is why clients or other nodes refuse the certificate now.
	Fault string `json:"fault,omitempty"`
	// Unnamed are advertised hosts that the certificate is not for.
	Unnamed []string `json:"unnamed,omitempty"`
	// Authorities is a digest of the authorities of tls-ca, "" without one.
	Authorities string `json:"authorities,omitempty"`
}

// Replica is one replica of a partition, as its node tells it.
type Replica struct {
	Leading bool
	Term    uint64
	Voters  []string // as people know them
	Failure string
	Digests []Digest
}

// Digest is that of the state behind an entry.
type Digest struct {
	Index uint64
	Form  string
	Sum   string
}

// Group is a partition as the catalog wants it.
type Group struct {
	ID int
	// Preferred is the node that should lead, "" for the catalog.
	Preferred string
}

// answers reports whether the node answered.
func (m *Member) answers() bool { return m.Problem == "" && m.Replicas != nil }

// leaves reports whether an operator wants the node empty, or gone.
func (m *Member) leaves() bool { return m.Wish != "" }

// member returns a node by name, nil if there is none.
func (f *Facts) member(id string) *Member {
	for i := range f.Members {
		if f.Members[i].ID == id {
			return &f.Members[i]
		}
	}
	return nil
}

// leader returns the newest leader of a partition among the nodes that answered, "" if none leads.
func (f *Facts) leader(partition int) (id string, replica Replica) {
	for i := range f.Members {
		r, ok := f.Members[i].Replicas[partition]
		if ok && r.Leading && (id == "" || r.Term > replica.Term) {
			id, replica = f.Members[i].ID, r
		}
	}
	return id, replica
}
