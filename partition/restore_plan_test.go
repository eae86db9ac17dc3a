package partition

import (
	"errors"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// The catalog of a backup is what somebody sends, as is the name of an entity in it. Neither panics.
func TestACatalogThatNoBackupHasIsRefused(t *testing.T) {
	plan := func(o RestoreOptions, e *fsm.Descriptor) (*Restoring, error) {
		from := BackedUpEntities{Format: FormatOfEntities, Entities: []*fsm.Descriptor{e}}
		return planRestore(from, o, catalog.New().View())
	}
	for name, e := range map[string]*fsm.Descriptor{
		"null": nil,
		"fewer prefixes than shares": {Kind: fsm.Queue, Name: "orders", Partitioned: true, Partitions: []fsm.PartitionID{1, 2},
			Prefixes: []fsm.PartitionID{1}},
	} {
		if _, err := plan(RestoreOptions{}, e); !errors.Is(err, ErrNoFit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	kelvin := RestoreOptions{Entity: "\u212a", As: "other"} // the sign of Kelvin is a k of three bytes
	if r, err := plan(kelvin, &fsm.Descriptor{Kind: fsm.Queue, Name: "k"}); err != nil || r.Entities[0].Name != "other" {
		t.Errorf("a name of other letters: %+v, %v", r, err)
	}
}
