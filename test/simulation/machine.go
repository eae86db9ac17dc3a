package simulation

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/test/check"
)

// digestEvery is how many entries lie between two comparisons of states; a digest costs as much as
// an image.
const digestEvery = 64

// watched is a data partition's state machine with a witness of all that it applies.
type watched struct {
	*fsm.State
	who     string
	p       fsm.PartitionID
	witness *check.Witness
	c       *counters
	node    *node

	hold    uint64 // of a backup whose hold is none, and when it is told
	holdsAt time.Time
}

var (
	_ replica.Machine = (*watched)(nil)
	_ replica.Machine = (*watchedCatalog)(nil)
)

// Apply implements replica.Machine.
func (w *watched) Apply(index uint64, e *fsm.Entry) fsm.Result {
	if w.node.w.cfg.NoHold {
		e = w.unheld(e)
	}
	w.node.w.tooNew(w.node, w.p, index, "applies", e)
	r := w.State.Apply(index, e)
	w.witness.Applied(w.who, w.p, index, e, &r)
	if index%digestEvery == 0 {
		w.witness.Digested(w.who, w.p, index, w.State.Digest())
	}
	w.node.w.reached(w.node, w.p, AfterApplied, index)
	return r
}

// unheld takes holds of forwards out of an entry: the canary of backups. The replica says to hold all the same, and the one
// that forwards says so late.
func (w *watched) unheld(e *fsm.Entry) *fsm.Entry {
	free := *e
	free.Requests = slices.Clone(e.Requests)
	for i := range free.Requests {
		if c, ok := free.Requests[i].Command.(*fsm.HoldForwards); ok {
			free.Requests[i].Command = &fsm.Barrier{}
			if c.For == 0 {
				w.hold, w.holdsAt = 0, time.Time{}
			} else if w.hold != c.Hold {
				w.hold, w.holdsAt = c.Hold, time.Now()
				if d := w.node.w.view().Entity(relayFrom); d != nil && slices.Contains(d.Partitions, w.p) {
					w.holdsAt = time.Now().Add(time.Second)
				}
			}
		}
	}
	return &free
}

// Holding implements replica.Holder.
func (w *watched) Holding() uint64 {
	switch {
	case !w.node.w.cfg.NoHold:
		return w.State.Holding()
	case time.Now().Before(w.holdsAt):
		return 0
	}
	return w.hold
}

// Restore implements replica.Machine.
func (w *watched) Restore(r io.Reader) error {
	w.c.add(statesRestored, 1)
	return w.State.Restore(r)
}

// Capture implements replica.Machine.
func (w *watched) Capture() io.WriterTo {
	return &watchedImage{w.State.Capture(), func() replica.Machine { return fsm.New(w.p) }, w.node}
}

// watchedImage looks whether what is written of a state can be read: to its end, and into a state of
// which the same is written.
type watchedImage struct {
	io.WriterTo
	fresh func() replica.Machine
	node  *node
}

// WriteTo implements io.WriterTo.
func (i *watchedImage) WriteTo(to io.Writer) (int64, error) {
	var image bytes.Buffer
	n, err := i.WriterTo.WriteTo(io.MultiWriter(&image, to))
	if err == nil {
		i.node.w.c.add("images read back", 1)
		i.node.w.writing(i.node, image.Bytes())
		if bad := readable(image.Bytes(), i.fresh()); bad != nil {
			i.node.w.spoil("I24", fmt.Errorf("%s wrote an image of %d bytes: %w", i.node.id, image.Len(), bad))
		}
	}
	return n, err
}

func readable(image []byte, m replica.Machine) error {
	r := bytes.NewReader(image)
	if err := m.Restore(r); err != nil {
		return err
	}
	if r.Len() > 0 {
		return fmt.Errorf("its last %d bytes were not read", r.Len())
	}
	var again bytes.Buffer
	if _, err := m.Capture().WriteTo(&again); err != nil {
		return err
	}
	if !bytes.Equal(again.Bytes(), image) {
		return errors.New("the state that was read from it writes another one")
	}
	return nil
}

// watchedCatalog is the same for group 0.
type watchedCatalog struct {
	*catalog.State
	who     string
	witness *check.Witness
	node    *node
}

// Capture implements replica.Machine.
func (w *watchedCatalog) Capture() io.WriterTo {
	return &watchedImage{w.State.Capture(), func() replica.Machine { return catalog.New() }, w.node}
}

// View is how package partition reads the catalog.
func (w *watchedCatalog) View() *catalog.View {
	if w.node.w.cfg.Hasty && w.node.runs.Version == fsm.NewestVersion {
		return hasty(w.State)
	}
	return w.State.View()
}

// Apply implements replica.Machine.
func (w *watchedCatalog) Apply(index uint64, e *fsm.Entry) fsm.Result {
	w.node.w.tooNew(w.node, fsm.CatalogPartition, index, "applies", e)
	r := w.State.Apply(index, e)
	w.node.w.raised(w.State.View().ClusterVersion())
	w.witness.Applied(w.who, fsm.CatalogPartition, index, e, &r)
	return r
}
