package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// between is what happens while one partition is not captured yet and all others are.
type between func(ctx context.Context, hold uint64)

// captureLast has a partition be captured when all others are, and behind f.
func (b *brokers) captureLast(p fsm.PartitionID, f between) {
	var others atomic.Int64
	for _, id := range b.ids {
		h := b.nodes[id].host
		captures := h.verb(h.captures.serve)
		b.nodes[id].port.Handle(KindCapture, func(ctx context.Context, from fsm.NodeID, content []byte) ([]byte, error) {
			// Behind its head a call to capture has the hold, and nothing else.
			hold := binary.BigEndian.Uint64(content[len(content)-8:])
			if !slices.Equal(content, binary.BigEndian.AppendUint64(verbHead(p, 8), hold)) {
				defer others.Add(1)
				return captures(ctx, from, content)
			}
			for int(others.Load()) < b.partitions-1 {
				time.Sleep(time.Millisecond)
			}
			f(ctx, hold)
			return captures(ctx, from, content)
		})
	}
}

// holdAll has each partition take a hold, or end it.
func (b *brokers) holdAll(ctx context.Context, hold uint64, lasts fsm.Millis) {
	b.t.Helper()
	for p := fsm.PartitionID(1); int(p) <= b.partitions; p++ {
		o, err := b.all["n1"].dir.send.propose(ctx, p, fsm.Request{Command: &fsm.HoldForwards{Hold: hold, For: lasts}}, &attempts{}, nil)
		if err != nil || o.Refusal != fsm.None {
			b.t.Errorf("hold: %+v, %v", o, err)
		}
	}
}

// S-360, S-361: a second lies between the images of a backup, and messages are forwarded all the time. With the hold each
// message is there once. The same backup without the hold lacks messages, so the test can tell: what is forwarded
// behind the image of its destination and before that of its source is in neither.
func TestTheHoldKeepsImagesTogether(t *testing.T) {
	for _, held := range []bool{true, false} {
		for _, last := range []string{"source", "destination"} {
			t.Run(fmt.Sprintf("the %s is captured last, held %v", last, held), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					wrong, moved := restoredWithCapturesApart(t, last, held)
					switch {
					case held && (len(wrong) > 0 || moved > 0):
						t.Errorf("%d messages were forwarded meanwhile: %s", moved, strings.Join(wrong[:min(5, len(wrong))], "; "))
					case !held && last == "source" && len(wrong) == 0:
						t.Error("without a hold nothing is missing: the test shows nothing")
					case !held && moved == 0:
						t.Error("without a hold nothing was forwarded: the test shows nothing")
					}
				})
			})
		}
	}
}

// S-360: partitions are added while a backup is taken, and a queue is made there. The backup begins anew: in the catalog of
// the first attempt the queue has shares without an image.
func TestABackupHasThePartitionsOfItsEntities(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := sized(t, 3, 2)
		defer b.close()
		ctx := shortly(t, 10*time.Minute)
		var hooked atomic.Int64
		b.captureLast(2, func(ctx context.Context, _ uint64) {
			if hooked.Add(1) > 1 {
				return
			}
			b.want(3, b.ids...)
			b.until("there is another partition", func() string { return b.has(3, b.ids...) })
			b.createQueue(ctx, "n1", queue("late", true))
		})
		made, err := b.all["n1"].dir.CreateBackup(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range made.Entities {
			for _, p := range e.Partitions {
				if !slices.ContainsFunc(made.Partitions, func(in BackedUp) bool { return in.ID == p }) {
					t.Errorf("%s has a share in partition %d, of which the backup has no image", e.Name, p)
				}
			}
		}
		if hooked.Load() != 2 || len(made.Entities) != 1 || len(made.Partitions) != 3 {
			t.Errorf("%d attempts, %d entities, %d images", hooked.Load(), len(made.Entities), len(made.Partitions))
		}
	})
}

// S-360: a node that takes a backup dies while forwards are held. A backup by another node waits for the end of that hold, and is taken.
func TestABackupWaitsForTheHoldOfAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := sized(t, 3, 2)
		defer b.close()
		ctx := shortly(t, 10*time.Minute)
		b.createQueue(ctx, "n1", queue("orders", true))
		b.holdAll(ctx, 77, fsm.MaxHold)
		began := time.Now()
		b.take(ctx, "n1")
		if took := time.Since(began); took < 20*time.Second || took > otherHold {
			t.Errorf("a backup beside the hold of another took %v", took)
		}
		b.holdAll(ctx, 78, fsm.MaxHold)
		if _, err := b.all["n1"].dir.CreateBackup(shortly(t, 5*time.Second)); !errors.Is(err, fsm.ErrBusy) {
			t.Errorf("a backup that cannot wait so long: %v", err)
		}
	})
}

// The network delivers the call to capture twice, and messages are stored in between. The backup keeps the point that it was told:
// take compares it with the image.
func TestACaptureThatArrivesTwiceIsOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := sized(t, 3, 2)
		defer b.close()
		ctx := shortly(t, 10*time.Minute)
		s := b.stream(b.createQueue(ctx, "n1", queue("orders", false)), "n1")
		time.Sleep(time.Second)
		for _, id := range b.ids {
			h := b.nodes[id].host
			captures := h.verb(h.captures.serve)
			b.nodes[id].port.Handle(KindCapture, func(ctx context.Context, from fsm.NodeID, content []byte) ([]byte, error) {
				first, err := captures(ctx, from, content)
				stored := len(s.acknowledged())
				for len(s.acknowledged()) < stored+10 {
					time.Sleep(time.Millisecond)
				}
				if _, err := captures(ctx, from, content); err != nil {
					t.Errorf("the second call: %v", err)
				}
				return first, err
			})
		}
		b.take(ctx, "n1")
		close(s.stop)
		<-s.done
	})
}

// restoredWithCapturesApart backs a cluster up whose partitions are captured at different times, and restores the backup. It
// returns what is wrong there, and how many messages were forwarded between the images.
func restoredWithCapturesApart(t *testing.T, last string, held bool) (wrong []string, moved int) {
	b := sized(t, 3, 2)
	b.net.SetDelay(2*time.Millisecond, 0)
	ctx := shortly(t, 30*time.Minute)
	to := b.createQueue(ctx, "n1", queue("destination", false))
	src := queue("source", false)
	src.ForwardTo = "destination"
	from := b.createQueue(ctx, "n1", src)
	if from.Partitions[0] == to.Partitions[0] {
		t.Fatal("source and destination share a partition: the test shows nothing")
	}
	s := b.stream(from, "n1")
	time.Sleep(3 * time.Second)
	late := map[string]*fsm.Descriptor{"source": from, "destination": to}[last].Partitions[0]
	b.captureLast(late, func(ctx context.Context, hold uint64) {
		if !held {
			b.holdAll(ctx, hold, 0)
		}
		time.Sleep(100 * time.Millisecond) // what was on its way before the hold has arrived
		arrived := len(b.texts(ctx, to, fsm.Main))
		time.Sleep(time.Second)
		moved = len(b.texts(ctx, to, fsm.Main)) - arrived
		if !held {
			b.holdAll(ctx, hold, fsm.MaxHold)
		}
	})
	before := s.acknowledged()
	got := b.take(ctx, "n1")
	close(s.stop)
	<-s.done
	after := s.acknowledged()
	b.close()

	small := sized(t, 1, 3)
	defer small.close()
	r := small.putBack(ctx, got, RestoreOptions{})
	restored := map[string]*fsm.Descriptor{}
	for _, e := range r.Entities {
		restored[e.Name] = e
	}
	return small.wrongly(restored["source"], restored["destination"], before, after), moved
}
