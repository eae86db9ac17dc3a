package partition

import (
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// This file answers reads that may be stale (S-305): from the replica here, whoever leads, without a word
// to another node.

// replicaOf returns the replica of a partition here; the error wraps fsm.ErrNoReplica and says where there
// are some.
func (d *Directory) replicaOf(p fsm.PartitionID) (*replica.Replica, error) {
	if r := d.host.Replica(p); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w: partition %d is on %v", fsm.ErrNoReplica, p, d.membersOf(p))
}

// PeekEntity returns the entity with that name as the catalog here has it, if it has applied the entry
// least. The error wraps fsm.ErrNoEntity, fsm.ErrBehind or fsm.ErrNoReplica.
func (r *Router) PeekEntity(name string, least uint64) (*fsm.Descriptor, fsm.Reading, error) {
	rep, err := r.dir.replicaOf(fsm.CatalogPartition)
	if err != nil {
		return nil, fsm.Reading{}, err
	}
	var d *fsm.Descriptor
	reading, err := rep.Read(least, func(m replica.Machine) {
		if c, ok := m.(replica.Viewer); ok {
			d = c.View().Entity(name)
		}
	}, func() error { return nil })
	if err == nil && d == nil {
		err = fmt.Errorf("entity %q: %w", name, fsm.ErrNoEntity)
	}
	return d, reading, err
}

// Peek asks the replica here of the share of d with that number.
func (r *Router) Peek(d *fsm.Descriptor, sub fsm.SubQueue, share int, q fsm.Query, least func(fsm.PartitionID) uint64) (
	fsm.Answer, fsm.Reading, error) {
	if share >= len(d.Partitions) {
		return fsm.Answer{}, fsm.Reading{}, fmt.Errorf("entity %d has no share %d: %w", d.ID, share, fsm.ErrUnavailable)
	}
	p := d.Partitions[share]
	rep, err := r.dir.replicaOf(p)
	if err != nil {
		return fsm.Answer{}, fsm.Reading{Partition: p}, err
	}
	return rep.Peek(fsm.QueryRequest{Entity: d.ID, Sub: sub, Query: q}, least(p))
}
