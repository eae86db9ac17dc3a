package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/busbar-mq/busbar/fsm"
)

// Audit is what the recount of one replica found. Problems is empty for one that is well.
type Audit struct {
	Partition fsm.PartitionID `json:"partition"`
	Node      fsm.NodeID      `json:"node,omitempty"`
	Index     uint64          `json:"index"` // of the last entry in the state that was recounted
	Entities  int             `json:"entities"`
	Messages  uint64          `json:"messages"`
	Bodies    uint64          `json:"bodies"` // read, with their checksums
	BodyBytes uint64          `json:"body_bytes"`
	// Digest is of the checkpoint that the audit was asked with.
	Digest   Digest   `json:"digest"`
	Problems []string `json:"problems,omitempty"`
}

// Found notes a problem, unless there are many already.
func (a *Audit) Found(format string, args ...any) {
	if len(a.Problems) < maxProblems {
		a.Problems = append(a.Problems, fmt.Sprintf(format, args...))
	}
}

const (
	// maxProblems bounds what is told of one replica: the first ones say what is wrong.
	maxProblems = 20
	auditPage   = 500     // messages looked at in one step
	auditBytes  = 1 << 30 // no bound of their bodies: a page carries references only
)

// invariants is a Machine that can check itself; fsm.State is one.
type invariants interface{ CheckInvariants() error }

// recount is a frozen state and what the living one counted at the same entry.
type recount struct {
	index  uint64
	image  io.WriterTo
	counts map[fsm.EntityID]fsm.EntityCounts
	living *machine
	// bare says that the state is that of a snapshot whose bodies are not there yet.
	bare bool
}

// freeze takes what an audit compares, under the lock of the state and quickly: it does not depend on
// how much is stored.
func (m *machine) freeze() recount {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := recount{index: m.applied.Load(), counts: map[fsm.EntityID]fsm.EntityCounts{}, living: m, bare: m.restoring}
	if k, ok := m.m.(Knower); ok {
		for _, e := range k.Known() {
			if a := m.m.Query(fsm.QueryRequest{Entity: e.ID, Query: &fsm.Counts{}}); a.Refusal == fsm.None {
				c.counts[e.ID] = a.Counts
			}
		}
	}
	c.image = m.m.Capture()
	return c
}

// has reports whether the state has a message, with the same body, as it is now.
func (m *machine) has(e fsm.EntityID, sub fsm.SubQueue, d *fsm.Delivery) (has bool) {
	m.view(func(m Machine, _ uint64) {
		a := m.Query(fsm.QueryRequest{Entity: e, Sub: sub, Query: &fsm.Browse{From: d.Seq, Max: 1}})
		has = len(a.Messages) == 1 && a.Messages[0].Seq == d.Seq && a.Messages[0].Ref == d.Ref
	})
	return has
}

// audit counts everything anew: the image is restored into an empty machine, which derives every counter and index
// from the messages themselves. Then that machine checks its invariants. Its counters are compared with those of the
// living state, and its image with the one it came from. Every body that a message refers to is read. A body that is not
// there is no problem if the living state has the message no more: it was freed since. It takes memory for a second state.
func audit(ctx context.Context, c recount, fresh Machine, bodies Bodies) (a Audit) {
	a.Index = c.index
	if err := copyState(c.image, fresh); err != nil {
		a.Found("the image of the state cannot be restored: %v", err)
		return a
	}
	if v, ok := fresh.(invariants); ok {
		if err := v.CheckInvariants(); err != nil {
			a.Found("invariant: %v", err)
		}
	}
	was, err := digest(c.image, ctx.Done())
	now, err2 := digest(fresh.Capture(), ctx.Done())
	switch {
	case err != nil || err2 != nil:
		a.Found("digest: %v", errors.Join(err, err2))
	case was != now:
		a.Found("a restored state has the digest %s, the state itself %s", now.Sum, was.Sum)
	}
	k, ok := fresh.(Knower)
	if !ok {
		return a // the catalog keeps neither counters nor bodies
	}
	for _, e := range k.Known() {
		a.Entities++
		got := fresh.Query(fsm.QueryRequest{Entity: e.ID, Query: &fsm.Counts{}}).Counts
		if want := c.counts[e.ID]; want != got {
			a.Found("entity %d counts %+v, there is %+v", e.ID, want, got)
		}
		for _, sub := range []fsm.SubQueue{fsm.Main, fsm.DeadLetter, fsm.TransferDeadLetter} {
			if !a.messages(ctx, c.living, fresh, bodies, e.ID, sub) {
				return a
			}
		}
	}
	return a
}

// copyState restores an image into an empty machine.
func copyState(image io.WriterTo, to Machine) error {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := image.WriteTo(w)
		w.CloseWithError(err)
	}()
	err := to.Restore(r)
	r.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // what is left unread stops the writer
	<-done
	return err
}

// messages reads the bodies of one subqueue, and reports whether to go on.
func (a *Audit) messages(ctx context.Context, living *machine, m Machine, bodies Bodies, e fsm.EntityID,
	sub fsm.SubQueue) bool {
	q := &fsm.Browse{Max: auditPage, MaxBytes: auditBytes}
	for {
		page := m.Query(fsm.QueryRequest{Entity: e, Sub: sub, Query: q})
		for i := range page.Messages {
			if ctx.Err() != nil {
				a.Found("not finished: %v", ctx.Err())
				return false
			}
			a.Messages++
			ref := page.Messages[i].Ref
			if ref.Length == 0 {
				continue
			}
			_, err := bodies.Read(ref.Index, ref.Offset, ref.Length)
			if errors.Is(err, fs.ErrNotExist) && !living.has(e, sub, &page.Messages[i]) {
				continue
			}
			if err != nil {
				a.Found("entity %d, %q, message %d: %v", e, sub, page.Messages[i].Seq, err)
				continue
			}
			a.Bodies++
			a.BodyBytes += uint64(ref.Length)
		}
		if page.Next == 0 || page.Refusal != fsm.None {
			return true
		}
		q.After = page.Next
	}
}

// Audit recounts this replica as it is now, while it goes on.
func (r *Replica) Audit(ctx context.Context) (Audit, error) {
	if e := r.failure.Load(); e != nil {
		return Audit{}, fmt.Errorf("replica failed (%w): it cannot be audited", *e)
	}
	r.auditing.Lock()
	defer r.auditing.Unlock()
	fresh := r.empty()
	if fresh == nil {
		return Audit{}, errors.New("no state machine to recount with")
	}
	c := r.machine.freeze()
	if c.bare {
		return Audit{}, fmt.Errorf("partition %d restores a snapshot, so it cannot be audited yet: %w", r.id, fsm.ErrUnavailable)
	}
	a := audit(ctx, c, fresh, r.stores.Bodies)
	a.Partition, a.Node = r.id, r.cfg.Node
	return a, ctx.Err()
}

// Checkpoint has every replica of the group compute a digest behind one entry, and returns the leader's.
func (r *Replica) Checkpoint(ctx context.Context) (Digest, error) {
	before := r.machine.index()
	r.prop.checkpoint.Store(true)
	if err := r.prop.barrier(ctx, false); err != nil { // an entry of its own, to be marked
		return Digest{}, err
	}
	return r.machine.digests.behind(ctx, before)
}

// behind waits for the first digest behind an entry that is kept.
func (d *digests) behind(ctx context.Context, index uint64) (Digest, error) {
	for {
		l, changed := d.news()
		for _, x := range l {
			if x.Index > index {
				return x, nil
			}
		}
		select {
		case <-changed:
		case <-d.stop:
			return Digest{}, fsm.ErrClosed
		case <-ctx.Done():
			return Digest{}, ctx.Err()
		}
	}
}
