package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// Query implements Group on the leader: it asks the state behind a barrier (A16).
func (r *Replica) Query(ctx context.Context, q fsm.QueryRequest) (fsm.Answer, error) {
	if err := r.Err(); err != nil {
		return fsm.Answer{}, err
	}
	if body, ok := q.Query.(*fsm.ReadBody); ok {
		return r.readBody(body)
	}
	_, moving := q.Query.(*fsm.Moving) // a forwarder that begins asks it, before its first Forward
	if err := r.prop.barrier(ctx, moving); err != nil {
		return fsm.Answer{}, err
	}
	var err error
	for range PeekTries {
		var a fsm.Answer
		r.machine.view(func(m Machine, _ uint64) { a = m.Query(q) })
		// A message may be settled, and its body freed, between the two.
		if err = r.machine.fill(a.Messages); err == nil {
			return a, nil
		}
	}
	return fsm.Answer{}, fmt.Errorf("%w: %w", fsm.ErrUnknown, err)
}

// Await implements Group on the leader.
func (r *Replica) Await(ctx context.Context, k fsm.WaitKey) error {
	if err := r.Err(); err != nil {
		return err
	}
	if !r.prop.accepting() {
		return r.prop.notLeader()
	}
	return r.waits.await(ctx, k, func() bool {
		there := true
		r.machine.view(func(m Machine, _ uint64) {
			if d, ok := m.(Deliverer); ok {
				there = d.Deliverable(k)
			}
		})
		return there || !r.prop.accepting()
	})
}

// ReadIndex implements Group on the leader.
func (r *Replica) ReadIndex(ctx context.Context) (uint64, error) {
	if err := r.Err(); err != nil {
		return 0, err
	}
	epoch, led := r.prop.led()
	index := r.machine.index()
	if err := r.prop.barrier(ctx, false); err != nil {
		return 0, err
	}
	if now, leads := r.prop.led(); led && leads && now == epoch {
		// Nobody else led meanwhile. Followers hear that an entry is committed with the next one: to
		// wait for the barrier's own would cost them a commit time-out.
		return index, nil
	}
	return r.machine.index(), nil
}

// Barrier returns when an entry proposed after its call, or in the last maxAge, has been applied
// here (RUL-20).
func (r *Replica) Barrier(ctx context.Context, maxAge time.Duration) error {
	if err := r.Err(); err != nil {
		return err
	}
	if r.prop.freshWithin(maxAge) {
		return nil
	}
	return r.prop.barrier(ctx, false)
}

// Unpark takes a parked request back. It reports false if no such request is parked.
func (r *Replica) Unpark(id fsm.RequestID) bool { return r.prop.unpark(id) }

// Waiting returns how many receives have a place here, and how many requests await.
func (r *Replica) Waiting() (receives, awaits int) {
	r.prop.mu.Lock()
	for _, n := range r.prop.parking.receives { // order-free: only the sum
		receives += n
	}
	r.prop.mu.Unlock()
	return receives, r.waits.total()
}

// Applied returns the index of the last entry that was applied here. It waits for no entry that is being applied.
func (r *Replica) Applied() uint64 { return r.machine.index() }

// Fill reads the bodies of deliveries. An error that wraps fs.ErrNotExist says that one is gone.
func (r *Replica) Fill(ds []fsm.Delivery) error { return r.machine.fill(ds) }

// View calls f with the state as this replica has it: not linearizable. f must not keep it.
func (r *Replica) View(f func(m Machine, applied uint64)) { r.machine.view(f) }

// Catalog returns the catalog as this replica has it, nil if it is one of another group. It never waits (see Viewer).
func (r *Replica) Catalog() *catalog.View { return r.machine.catalog.Load() }

// Peek answers a question from the state as it is here, if it has applied the entry least. The error wraps
// fsm.ErrBehind if it has not; the reading is true then, too.
func (r *Replica) Peek(q fsm.QueryRequest, least uint64) (fsm.Answer, fsm.Reading, error) {
	var a fsm.Answer
	reading, err := r.Read(least, func(m Machine) { a = m.Query(q) }, func() error {
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

// Read calls see with the state, and then with what was seen, until that succeeds.
func (r *Replica) Read(least uint64, see func(Machine), then func() error) (fsm.Reading, error) {
	if err := r.Err(); err != nil {
		return fsm.Reading{Partition: r.id}, err
	}
	var err error
	for range PeekTries {
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
	return r.net.LedAt(term, r.Servers(), now)
}

// readBody reads stored bodies, whoever leads: they never change, and whoever asks knows of them from an
// entry that was applied. Here they may not have come yet, or be freed.
func (r *Replica) readBody(q *fsm.ReadBody) (fsm.Answer, error) {
	if err := r.Err(); err != nil {
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

// PeekTries bounds repetitions of a query whose bodies went away while they were read.
const PeekTries = 5

// maxReadBytes bounds the bytes of one ReadBody.
const maxReadBytes = 4 << 20

// AppendBodies appends parts that this replica has. One at a time, each is copied once. It reports false if it does
// not have all of them.
func (r *Replica) AppendBodies(body []byte, refs []fsm.BodyRef) ([]byte, bool) {
	for i := range refs {
		a, err := r.readBody(&fsm.ReadBody{Refs: refs[i : i+1]})
		if err != nil || a.Refusal != fsm.None {
			return nil, false
		}
		body = append(body, a.Data...)
	}
	return body, true
}
