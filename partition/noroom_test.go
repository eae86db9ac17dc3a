package partition

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// A publisher whose message the disk has no room for hears so at once, through any node: its own
// time-out would not tell it to come again later. S-230.
func TestPublisherHearsAtOnceThatTheDiskIsFull(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		l := c.leader(1)
		c.nodes[l.Node()].host.space.SetLevel(replica.RoomForSettling)
		for _, via := range c.ids {
			began := time.Now()
			_, err := c.sendVia(shortly(t, time.Minute), via, enqueue(fsm.RequestID{}, "x"))
			if took := time.Since(began); !errors.Is(err, fsm.ErrBusy) || took > 100*time.Millisecond {
				t.Errorf("through %s: %v after %v", via, err, took)
			}
			settle := fsm.Request{Entity: 1, Command: &fsm.Settle{}}
			if _, err := c.sendVia(shortly(t, time.Minute), via, settle); err != nil {
				t.Errorf("settlement through %s: %v", via, err)
			}
		}
		c.nodes[l.Node()].host.space.SetLevel(replica.RoomForAll)
		if _, err := c.sendVia(shortly(t, time.Minute), l.Node(), enqueue(fsm.RequestID{}, "x")); err != nil {
			t.Errorf("with room again: %v", err)
		}
	})
}

// What fits any share goes to one with room. S-314.
func TestFullShareIsPassedOver(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		full := b.leader(d.Partitions[0]).Node()
		if err := b.nodes[full].host.TransferLeadership(t.Context(), d.Partitions[2], b.others(full)[0]); err != nil &&
			!errors.Is(err, fsm.ErrNotLeader) {
			t.Fatal(err)
		}
		b.leader(d.Partitions[2], full)
		b.nodes[full].host.space.SetLevel(replica.RoomForSettling)
		send := func(i int) (fsm.Outcome, error) {
			return b.all["n1"].r.Propose(shortly(t, time.Minute), reqOf(0, 1, i), fsm.Key{Entity: d.ID},
				&fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("x")}}})
		}
		for i := range 12 {
			o, err := send(i + 1)
			if err != nil || b.nodes[full].host.Replica(o.Numbers[0].Prefix()).Leading() {
				t.Fatalf("message %d: %+v, %v", i, o, err)
			}
		}
		for _, id := range b.ids {
			b.nodes[id].host.space.SetLevel(replica.RoomForSettling)
		}
		began := time.Now()
		if _, err := send(13); !errors.Is(err, fsm.ErrBusy) || time.Since(began) > time.Second {
			t.Errorf("no share has room: %v after %v", err, time.Since(began))
		}
	})
}

func TestNoRoomIsNotTheEndOfWhatMayHaveHappened(t *testing.T) {
	var a attempts
	if a.note(replica.ErrDiskFull) {
		t.Error("a full disk is asked again")
	}
	a.note(fmt.Errorf("gone: %w", fsm.ErrUnknown))
	if !a.note(replica.ErrDiskFull) {
		t.Error("a request that may be in the log is given up")
	}
	if _, err := openResult(failure(fmt.Errorf("full: %w", replica.ErrDiskFull))); !errors.Is(err, replica.ErrDiskFull) {
		t.Errorf("from another node: %v", err)
	}
	if _, err := openResult(failure(fsm.ErrBusy)); errors.Is(err, replica.ErrDiskFull) || !errors.Is(err, fsm.ErrBusy) {
		t.Errorf("busy from another node: %v", err)
	}
}
