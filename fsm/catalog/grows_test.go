package catalog

import (
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// S-230: on a full disk everything may be deleted, and nodes come and go; nothing is added.
func TestWhatMayWaitForRoomOnTheDisk(t *testing.T) {
	for name, tc := range map[string]struct {
		change Change
		want   bool
	}{
		"create":       {Change{Create: &fsm.Descriptor{}}, true},
		"restore":      {Change{Restore: &fsm.Descriptor{}}, true},
		"update":       {Change{Update: &fsm.Descriptor{}}, true},
		"put a rule":   {Change{PutRule: &RulePut{}}, true},
		"place":        {Change{Place: &Placement{}}, true},
		"delete":       {Change{Delete: &Deletion{}}, false},
		"idle":         {Change{DeleteIfIdle: &IdleDeletion{}}, false},
		"drop a rule":  {Change{DropRule: &RuleDrop{}}, false},
		"exchange":     {Change{Replace: &Exchange{}}, false},
		"a node":       {Change{Node: &Node{}}, false},
		"a life ended": {Change{Lost: &Loss{}}, false},
		"a wish":       {Change{Wish: &NodeWish{}}, false},
		"a node goes":  {Change{Forget: &Life{}}, false},
		"a version":    {Change{Raise: 1}, false},
	} {
		if got := Grows(tc.change.Command()); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if !Grows(&fsm.Change{Data: []byte("{")}) {
		t.Error("what cannot be read is taken on a full disk")
	}
}
