package replica

import (
	"errors"
	"fmt"
	"io"

	"github.com/busbar-mq/busbar/fsm"
)

// Captured is the state of a replica frozen at one entry, with its bodies pinned. It may be written more than once,
// while the replica goes on.
type Captured struct {
	Index uint64   // of the last entry in it, which may be one of raft without a command
	Wall  fsm.Wall // stamped by the last entry with a command
	snap  snapshot
}

// Holder is a Machine that tells which hold of forwards is in force, 0 for none; fsm.State is one.
type Holder interface{ Holding() uint64 }

// ErrNotHeld says that a replica has not applied the hold that an image is asked for with, or that the hold is over.
var ErrNotHeld = errors.New("forwards are not held by that hold")

// Capture freezes the state in microseconds, whoever leads. The hold must be in force here, else the error wraps
// ErrNotHeld. A replica that lags applies it a moment later, or gets it with a snapshot.
func (r *Replica) Capture(hold uint64) (*Captured, error) {
	if err := r.Err(); err != nil {
		return nil, err
	}
	m := r.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return nil, errBroken
	}
	if m.restoring {
		return nil, fmt.Errorf("partition %d restores a snapshot: %w", r.id, ErrNotHeld)
	}
	if h, ok := m.m.(Holder); !ok || h.Holding() != hold {
		return nil, fmt.Errorf("partition %d at entry %d: %w", r.id, m.applied.Load(), ErrNotHeld)
	}
	c := &Captured{Index: m.applied.Load()}
	c.Wall, _ = m.m.Clocks()
	// An entry that is about to be applied may have put its bodies away already. They are pinned, too, and nothing
	// in the image refers to them.
	c.snap = snapshot{image: m.m.Capture(), index: c.Index, pin: m.bodies.Pin()}
	return c, nil
}

// WriteTo writes the image with the bodies behind it, as a backup holds it (docs/formats/snapshot.md).
func (c *Captured) WriteTo(w io.Writer) (int64, error) {
	n := counter64{w: w}
	if err := WriteImage(&n, c.snap.index, c.snap.image); err != nil {
		return n.n, err
	}
	if _, err := c.snap.pin.Inline(&n); err != nil {
		return n.n, fmt.Errorf("write bodies of partition: %w", err)
	}
	return n.n, nil
}

// Close gives the bodies back. A writer that is under way comes to its end.
func (c *Captured) Close() error { return c.snap.pin.Close() }

type counter64 struct {
	w io.Writer
	n int64
}

func (c *counter64) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
