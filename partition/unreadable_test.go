package partition

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// A leader that cannot read a body would answer the same for ever, and nobody else is asked while it
// leads: it must give its replica up, and be rebuilt by those that have the body.
func TestLeaderWithAnUnreadableBodyIsRebuilt(t *testing.T) {
	asks := map[string]func(t *testing.T, b *brokers, k fsm.Key) int{
		"when a message is browsed": func(t *testing.T, b *brokers, k fsm.Key) int {
			a, err := b.all["n1"].r.Query(t.Context(), k, &fsm.Peek{Max: 100, MaxBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			return len(a.Messages)
		},
		"when a message is delivered": func(t *testing.T, b *brokers, k fsm.Key) int {
			o, err := b.all["n1"].r.Propose(t.Context(), reqOf(0, 90, 1), k, &fsm.Lock{Max: 100, MaxBytes: 1 << 20})
			if err != nil || o.Refusal != fsm.None {
				t.Fatal(o, err)
			}
			return len(o.Locked)
		},
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, d, sent := loaded(t)
				defer b.close()
				bad := b.all[leaderNode(b, 1)]
				bodies := bad.disks[1].bodies
				bodies.mu.Lock()
				bodies.unread = errors.New("another bit")
				bodies.mu.Unlock()
				share := slices.Index(d.Partitions, 1)
				key := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(share)}
				if got, want := ask(t, b, key), sent/len(d.Partitions); got != want {
					t.Errorf("%d messages, want %d", got, want)
				}
				b.whole("n1 n2 n3")
				if bad.rebuilds.Load() != 1 {
					t.Errorf("rebuilt %d times", bad.rebuilds.Load())
				}
			})
		})
	}
}

func leaderNode(b *brokers, p fsm.PartitionID) fsm.NodeID {
	b.t.Helper()
	for range 1000 {
		for id, n := range b.all {
			if r := n.host.Replica(p); r != nil && r.Leading() {
				return id
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatal("nobody leads")
	return ""
}
