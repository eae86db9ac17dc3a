package replica

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// dropping is a state that removes entity 9 with each entry.
type dropping struct{ counter }

func (d *dropping) Apply(index uint64, e *fsm.Entry) fsm.Result {
	r := d.counter.Apply(index, e)
	r.Dropped = []fsm.EntityID{9}
	return r
}

// A node that led a partition forgets the tally of an entity that is deleted when another node leads.
func TestTalliesOfADeletedEntityAreForgotten(t *testing.T) {
	tallies := &Tallies{}
	tallies.add(&fsm.Result{Tallies: []fsm.Tally{{Entity: 8}, {Entity: 9}}})
	m := &machine{m: &dropping{}, tallies: tallies}
	m.ledEpoch.Store(3)
	e := &fsm.Entry{Epoch: 7, Requests: []fsm.Request{{Entity: 9, Command: &fsm.DropEntity{}}}}
	if _, err := m.apply(&raft.Log{Index: 8, Data: encode(e)}); err != nil {
		t.Fatal(err)
	}
	if len(tallies.entities) != 1 || tallies.entities[8] == nil {
		t.Errorf("%d tallies are kept, want that of entity 8", len(tallies.entities))
	}
}
