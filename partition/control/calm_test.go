package control

import (
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// The repairer asks seldom while nothing is to be done. A node that was silent when it was forgotten, or a replica that had failed when
// its group got another leader, keeps it asking no longer.
func TestTheRepairerForgetsWhatIsNotItsAnyMore(t *testing.T) {
	s := catalog.New()
	s.Apply(1, &fsm.Entry{Requests: []fsm.Request{{Command: (&catalog.Change{Node: &catalog.Node{ID: "n2", Incarnation: 2}}).Command()}}})
	m := newRepairer(nil)
	now := time.Now()
	m.gone(s.View(), nil) // n2 does not answer
	m.silent["n3"] = now
	m.since[memberOf{1, "n2"}], m.since[memberOf{2, "n2"}] = now, now
	m.follows[memberOf{1, "n2"}], m.follows[memberOf{2, "n2"}] = &follow{}, &follow{}
	m.forget(s.View(), map[fsm.PartitionID]bool{fsm.CatalogPartition: true, 1: true})
	_, silent := m.silent["n2"]
	_, failed := m.since[memberOf{1, "n2"}]
	if !silent || !failed || len(m.silent) != 1 || len(m.since) != 1 || len(m.follows) != 1 {
		t.Errorf("silent %v, failed %v, followed %v", m.silent, m.since, m.follows)
	}
	m.forget(s.View(), map[fsm.PartitionID]bool{1: true})
	if len(m.silent) > 0 {
		t.Errorf("another node leads the catalog, and %v are silent", m.silent)
	}
}
