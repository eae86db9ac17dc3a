package partition

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// S-304: what one node has answered about an entity, the copy of the catalog of every other node knows at
// that moment: a client may attach there next.
func TestEveryNodeKnowsWhatWasAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		b.createQueue(shortly(t, time.Minute), "n1", queue("first", false)) // the cluster is there
		ctx := shortly(t, time.Minute)
		for i, id := range b.ids {
			dir := b.all[id].dir
			made, err := dir.Create(ctx, queue("q", true))
			if err != nil {
				t.Fatal(err)
			}
			b.allKnow(t, "created", made.ID, made.Version)
			changed := *made
			changed.Status = fsm.Disabled
			if made, err = b.all[b.ids[(i+1)%3]].dir.Update(ctx, changed); err != nil {
				t.Fatal(err)
			}
			b.allKnow(t, "changed", made.ID, made.Version)
			if err := dir.Delete(ctx, "q"); err != nil {
				t.Fatal(err)
			}
			b.allKnow(t, "deleted", made.ID, 0)
		}
	})
}

// allKnow fails the test unless all nodes have that version of an entity, 0 for none.
func (b *brokers) allKnow(t *testing.T, what string, id fsm.EntityID, version uint64) {
	t.Helper()
	for _, n := range b.ids {
		var has uint64
		if e := b.all[n].dir.View().ByID(id); e != nil {
			has = e.Version
		}
		if has != version {
			t.Errorf("%s: node %s has version %d, want %d", what, n, has, version)
		}
	}
}

// A node that hangs holds up a change of the catalog for a second, one that cannot be reached not at all.
func TestANodeThatHangsDelaysNoChangeForLong(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		b.createQueue(shortly(t, time.Minute), "n1", queue("first", false))
		time.Sleep(time.Second) // and every node is registered
		leader := b.leader(fsm.CatalogPartition).Node()
		var other fsm.NodeID
		for _, id := range b.ids {
			if id != leader {
				other = id
			}
		}
		took := func(name string) time.Duration {
			began := time.Now()
			if _, err := b.all[leader].dir.Create(shortly(t, time.Minute), queue(name, false)); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		swallow := func(f func(_, to fsm.NodeID, kind uint8, _ []byte) bool) {
			b.net.Swallow(f)
		}
		swallow(func(_, to fsm.NodeID, kind uint8, _ []byte) bool { return to == other && kind == KindCatalog })
		if d := took("beside one that hangs"); d < publishTimeout || d > publishTimeout+100*time.Millisecond {
			t.Errorf("a node that hangs: %v", d)
		}
		swallow(nil)
		b.crash(other)
		if d := took("beside one that is gone"); d > 100*time.Millisecond {
			t.Errorf("a node that is gone: %v", d)
		}
	})
}

// A list through a follower does not wait until an idle leader tells what is committed.
func TestListsWaitForNoCommitTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		b.createQueue(shortly(t, time.Minute), "n1", queue("q", false))
		for range 3 {
			for _, id := range b.ids {
				time.Sleep(time.Second)
				began := time.Now()
				all, err := b.all[id].dir.List(shortly(t, time.Minute), fsm.Queue, 0, -1)
				if err != nil || len(all) != 1 {
					t.Fatal(all, err)
				}
				if d := time.Since(began); d > 50*time.Millisecond {
					t.Errorf("through %s: %v", id, d)
				}
			}
		}
	})
}

func TestWrongQuestionsForTheCatalogAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBrokers(t, 3)
		defer b.close()
		h := b.all["n1"].host
		if _, err := h.serveCatalog(t.Context(), "n2", make([]byte, 7)); err == nil {
			t.Error("seven bytes were an index")
		}
		began := time.Now()
		if _, err := h.serveCatalog(t.Context(), "n2", binary.BigEndian.AppendUint64(nil, 1<<62)); err == nil {
			t.Error("an index was reached that there is not")
		}
		if d := time.Since(began); d != publishTimeout {
			t.Errorf("waited %v", d)
		}
	})
}

// S-262: two users change one entity, and both have read the same description. The second one learns that he has not seen
// the first change, and does not take it back.
func TestAnUpdateOfWhatHasChangedIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := sized(t, 3, 2)
		defer b.close()
		ctx := shortly(t, time.Minute)
		read := *b.createQueue(ctx, "n1", queue("orders", false))
		first, second := read, read
		first.NoDeadLetter, second.MaxDelivery = true, 3
		if _, err := b.all["n2"].dir.Update(ctx, first); err != nil {
			t.Fatal(err)
		}
		var refused *fsm.RefusedError
		if _, err := b.all["n3"].dir.Update(ctx, second); !errors.As(err, &refused) || refused.Refusal != fsm.Stale {
			t.Errorf("an update from an earlier description: %v", err)
		}
		if now, err := b.all["n1"].dir.Get(ctx, "orders"); err != nil || !now.NoDeadLetter {
			t.Errorf("the first change is gone: %+v, %v", now, err)
		}
	})
}
