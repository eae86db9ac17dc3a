package simulation

import (
	"io"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition"
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
}

var (
	_ partition.Machine = (*watched)(nil)
	_ partition.Machine = (*watchedCatalog)(nil)
)

// Apply implements partition.Machine.
func (w *watched) Apply(index uint64, e *fsm.Entry) fsm.Result {
	r := w.State.Apply(index, e)
	w.witness.Applied(w.who, w.p, index, e, &r)
	if index%digestEvery == 0 {
		w.witness.Digested(w.who, w.p, index, w.State.Digest())
	}
	w.node.w.reached(w.node, w.p, AfterApplied, index)
	return r
}

// Restore implements partition.Machine.
func (w *watched) Restore(r io.Reader) error {
	w.c.add(statesRestored, 1)
	return w.State.Restore(r)
}

// watchedCatalog is the same for group 0.
type watchedCatalog struct {
	*catalog.State
	who     string
	witness *check.Witness
}

// Apply implements partition.Machine.
func (w *watchedCatalog) Apply(index uint64, e *fsm.Entry) fsm.Result {
	r := w.State.Apply(index, e)
	w.witness.Applied(w.who, fsm.CatalogPartition, index, e, &r)
	return r
}
