package partition

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// This file answers reads that may be stale (S-305): from the replica here, whoever leads, without a word
// to another node.

// Peek answers a question from the state as it is here, if it has applied the entry least. The error wraps
// fsm.ErrBehind if it has not; the reading is true then, too.
func (r *Replica) Peek(q fsm.QueryRequest, least uint64) (fsm.Answer, fsm.Reading, error) {
	var a fsm.Answer
	reading, err := r.read(least, func(m Machine) { a = m.Query(q) }, func() error {
		if err := r.machine.fill(a.Messages); err != nil {
			return err // a message may be settled, and its body freed, meanwhile
		}
		return r.machine.fillRest(a.Messages)
	})
	if err == nil && a.Refusal == fsm.Stale { // the catalog here is ahead of the share
		err = fmt.Errorf("the entity is not known in partition %d yet: %w", r.id, fsm.ErrBehind)
	}
	return a, reading, err
}

// read calls see with the state, and then with what was seen, until that succeeds.
func (r *Replica) read(least uint64, see func(Machine), then func() error) (fsm.Reading, error) {
	if err := r.err(); err != nil {
		return fsm.Reading{Partition: r.id}, err
	}
	var err error
	for range peekTries {
		before := time.Now() // the state that is looked at holds what was acknowledged until then
		reading := fsm.Reading{Partition: r.id}
		r.machine.view(func(m Machine, index uint64) {
			if reading.Index = index; index >= least {
				see(m)
			}
		})
		if reading.Index < least {
			return reading, fmt.Errorf("partition %d has applied entry %d here, not yet %d: %w",
				r.id, reading.Index, least, fsm.ErrBehind)
		}
		current := r.net.CurrentAt(reading.Index)
		if led := r.ledAt(reading.Index, before); led.After(current) {
			current = led
		}
		if current.IsZero() {
			return reading, fmt.Errorf("partition %d has not heard of a leader here yet: %w", r.id, fsm.ErrBehind)
		}
		reading.Age = fsm.Millis(time.Since(current).Milliseconds())
		if err = then(); err == nil {
			return reading, nil
		}
	}
	return fsm.Reading{Partition: r.id}, fmt.Errorf("%w: %w", fsm.ErrUnavailable, err)
}

// ledAt returns until when this replica knew that it led, if a state that has applied up to index is that of
// its group then; zero if it did not. Nothing is acknowledged that the leader has not applied.
func (r *Replica) ledAt(index uint64, now time.Time) time.Time {
	r.prop.mu.Lock()
	term, epoch := r.prop.ledTerm, r.prop.ledEpoch
	r.prop.mu.Unlock()
	if term == 0 || index < epoch {
		return time.Time{}
	}
	if !r.Leading() {
		now = time.Time{} // its own voice does not count any more
	}
	return r.net.LedAt(term, r.raft.GetConfiguration().Configuration().Servers, now)
}

// replicaOf returns the replica of a partition here; the error wraps fsm.ErrNoReplica and says where there
// are some.
func (d *Directory) replicaOf(p fsm.PartitionID) (*Replica, error) {
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
	reading, err := rep.read(least, func(m Machine) {
		if c, ok := m.(viewer); ok {
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

// readBody reads stored bodies, whoever leads: they never change, and whoever asks knows of them from an
// entry that was applied. Here they may not have come yet, or be freed.
func (r *Replica) readBody(q *fsm.ReadBody) (fsm.Answer, error) {
	if err := r.err(); err != nil {
		return fsm.Answer{}, err
	}
	size := uint64(0)
	for _, ref := range q.Refs {
		size += uint64(ref.Length)
	}
	if size > maxReadBytes {
		return fsm.Answer{Refusal: fsm.InvalidArgument, Detail: "more bytes than one answer carries"}, nil
	}
	var a fsm.Answer
	for _, ref := range q.Refs {
		d := []fsm.Delivery{{Ref: ref}}
		if err := r.machine.fill(d); errors.Is(err, fs.ErrNotExist) {
			if !r.Leading() {
				return fsm.Answer{}, r.prop.notLeader() // what is not here yet the leader has
			}
			return fsm.Answer{Refusal: fsm.MessageNotFound}, nil
		} else if err != nil {
			return fsm.Answer{}, fmt.Errorf("%w: %w", fsm.ErrUnavailable, err)
		}
		if len(q.Refs) == 1 {
			a.Data = d[0].Body
			break
		}
		if a.Data == nil {
			a.Data = make([]byte, 0, size)
		}
		a.Data = append(a.Data, d[0].Body...)
	}
	return a, nil
}

// peekTries bounds repetitions of a query whose bodies went away while they were read.
const peekTries = 5

// maxReadBytes bounds the bytes of one ReadBody.
const maxReadBytes = 4 << 20
