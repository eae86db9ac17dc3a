package control

import (
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// A view of the catalog that lags behind must not take a new entity for a deleted one.
func TestReconciliationTrustsNoOldCatalog(t *testing.T) {
	view := catalog.New().View() // of no version: it has seen nothing
	known := []fsm.KnownEntity{{ID: 5, Version: view.Version() + 1}}
	if all := missing(1, known, view); len(all) != 0 {
		t.Errorf("of an entity that is newer than the view: %+v", all)
	}
	known[0].Version = view.Version()
	all := missing(1, known, view)
	if len(all) != 1 || all[0].Entity != 5 {
		t.Fatalf("of an entity that the view does not have: %+v", all)
	}
	if _, drop := all[0].Command.(*fsm.DropEntity); !drop {
		t.Errorf("it is not dropped: %+v", all[0])
	}
}
