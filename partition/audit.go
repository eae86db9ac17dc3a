package partition

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
)

// auditCallBytes is the length of the content of a call to audit: the index of the checkpoint.
const auditCallBytes = 8

func serveCheckpoint(ctx context.Context, r *replica.Replica, b []byte) ([]byte, error) {
	if len(b) != 0 {
		return nil, fmt.Errorf("call to checkpoint of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	d, err := r.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	return appendJSON(success(256), d)
}

func serveAudit(ctx context.Context, r *replica.Replica, b []byte) ([]byte, error) {
	if len(b) != auditCallBytes {
		return nil, fmt.Errorf("call to audit of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	index := binary.BigEndian.Uint64(b)
	wait, cancel := context.WithTimeout(ctx, digestPatience)
	d, err := r.AwaitDigest(wait, index)
	cancel()
	a, err2 := r.Audit(ctx)
	if err2 != nil {
		return nil, err2
	}
	a.Digest = d
	if err != nil {
		a.Found("digest behind entry %d: %v", index, err)
	}
	return appendJSON(success(1<<10), a)
}

// digestPatience is how long a follower may be behind the checkpoint that it is asked about.
const digestPatience = 30 * time.Second

func appendJSON(b []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// GroupAudit is what the audit of a whole partition found.
type GroupAudit struct {
	Partition fsm.PartitionID `json:"partition"`
	Replicas  []replica.Audit `json:"replicas"`
	// Problems are those that no single replica has: a replica that does not answer, or digests of one
	// entry that differ.
	Problems []string `json:"problems,omitempty"`
}

// Well reports whether nothing was found.
func (g *GroupAudit) Well() bool {
	for i := range g.Replicas {
		if len(g.Replicas[i].Problems) > 0 {
			return false
		}
	}
	return len(g.Problems) == 0
}

// AuditGroup has the leader of a partition mark an entry, has every member recount itself, and compares their digests
// behind that entry. The members recount one after the other, so that a cluster in use keeps most of itself.
func (d *Directory) AuditGroup(ctx context.Context, p fsm.PartitionID) GroupAudit {
	g := GroupAudit{Partition: p, Replicas: []replica.Audit{}}
	problem := func(format string, args ...any) { g.Problems = append(g.Problems, fmt.Sprintf(format, args...)) }
	var mark replica.Digest
	var at attempts
	err := d.send.do(ctx, p, &at, func(ctx context.Context, to Group) error {
		x, err := checkpointOf(ctx, to)
		mark = x
		return err
	}, nil)
	if err != nil {
		problem("no checkpoint: %v", err)
		return g
	}
	content := binary.BigEndian.AppendUint64(verbHead(p, auditCallBytes), mark.Index)
	for _, n := range d.audited(p) {
		var a replica.Audit
		b, err := d.host.deps.Caller.Call(ctx, n, KindAudit, content)
		if err == nil {
			b, err = openResult(b)
		}
		if err == nil {
			err = json.Unmarshal(b, &a)
		}
		if err != nil {
			if !d.spare(p, n) {
				problem("node %s: %v", n, err)
			}
			continue
		}
		g.Replicas = append(g.Replicas, a)
		if a.Digest.Form == mark.Form && a.Digest.Sum != mark.Sum {
			problem("node %s has the digest %s behind entry %d, the leader %s", n, a.Digest.Sum, mark.Index,
				mark.Sum)
		}
	}
	return g
}

// audited returns the nodes that hold a partition. Those of the catalog are the members of its group: the list of nodes
// has all that ever were.
func (d *Directory) audited(p fsm.PartitionID) []fsm.NodeID {
	r := d.host.Replica(p)
	if p != fsm.CatalogPartition || r == nil || r.Blank() {
		return d.membersOf(p)
	}
	var ids []fsm.NodeID
	for _, s := range r.Servers() {
		ids = append(ids, fsm.NodeID(s.ID))
	}
	return ids
}

// spare reports whether a copy of the catalog is needed by nobody: its node has neither a vote nor a place, and may have
// left.
func (d *Directory) spare(p fsm.PartitionID, n fsm.NodeID) bool {
	r, v := d.host.Replica(p), d.View()
	if p != fsm.CatalogPartition || r == nil || v == nil {
		return false
	}
	voter := slices.ContainsFunc(r.Servers(), func(s raft.Server) bool {
		return s.ID == raft.ServerID(n) && s.Suffrage == raft.Voter
	})
	return !voter && !control.Placed(v)[n]
}

func checkpointOf(ctx context.Context, g Group) (d replica.Digest, err error) {
	switch to := g.(type) {
	case *replica.Replica:
		return to.Checkpoint(ctx)
	case *Remote:
		b, err := to.call(ctx, KindCheckpoint, verbHead(to.id, 0))
		if err != nil {
			return d, err
		}
		if err := json.Unmarshal(b, &d); err != nil {
			return d, fmt.Errorf("%w: digest: %w", fsm.ErrUnknown, err)
		}
		return d, nil
	}
	return d, fmt.Errorf("%T makes no checkpoint: %w", g, fsm.ErrUnavailable)
}
