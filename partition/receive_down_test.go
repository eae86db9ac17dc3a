package partition

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// A receive that waits for nothing is told soon when nobody leads a share, because its caller asks the others. One that
// waits, or whose session is in the share, is not. S-316, T-268.
func TestAReceiveHearsOfAShareThatIsDown(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		for _, id := range b.ids[1:] {
			b.nodes[id].host.Replica(d.Partitions[2]).Fail(errDisk)
		}
		time.Sleep(10 * time.Second)
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: 2}
		for i, one := range []struct {
			c    fsm.Command
			soon bool
		}{
			{&fsm.Lock{Max: 1}, true},
			{&fsm.AcceptSession{Next: true}, true},
			{&fsm.Lock{Max: 1, Wait: 60_000}, false},
			{&fsm.Lock{Max: 1, Session: fsm.SessionProof{ID: "s", Token: fsm.LockToken{1}}}, false},
			{&fsm.AcceptSession{ID: "s"}, false},
		} {
			_, err := b.all["n1"].r.Propose(shortly(t, 10*time.Second), reqOf(0, 2, i+1), k, one.c)
			if soon := err != nil && !errors.Is(err, context.DeadlineExceeded); soon != one.soon || errors.Is(err, fsm.ErrUnknown) {
				t.Errorf("%T %+v: %v", one.c, one.c, err)
			}
		}
	})
}
