package partition

import (
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// A name is that of one node while this one lives. It goes over when its owner is gone: a machine with a new disk.
func TestATakenNameIsRefusedWhileItsOwnerLives(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, d, sent := loaded(t)
		defer b.close()
		known := func() bool {
			_, known := b.all["n2"].dir.View().Node("n4")
			return known
		}
		b.named = "n1"
		b.late("n4")
		time.Sleep(time.Minute)
		if owner, _ := b.taken.Load(fsm.NodeID("n4")); known() || owner != fsm.NodeID("n1") {
			t.Errorf("a second n1 is taken in: %t; it was told that the owner is %v", known(), owner)
		}
		// The owner may restart meanwhile: it is known under its name.
		b.kill("n1")
		time.Sleep(30 * time.Second)
		b.revive("n1")
		time.Sleep(time.Minute)
		if n, ok := b.all["n2"].dir.View().Node("n1"); !ok || n.Incarnation < 1000 {
			t.Errorf("the owner did not come back: %+v", n)
		}
		b.kill("n1")
		time.Sleep(2 * time.Minute)
		if owner, _ := b.taken.Load(fsm.NodeID("n4")); !known() || owner != fsm.NodeID("") {
			t.Errorf("the name of a node that is gone went over: %t, owner %v", known(), owner)
		}
		b.whole("n2 n3 n4")
		b.wantActive("n4", d, sent)
	})
}
