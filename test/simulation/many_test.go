package simulation

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/test/check"
)

// How much there is in a large cluster. With -short there is less. One entity is there already, and a namespace has
// 10,000 at most.
const (
	manyPartitions, manyEntities = 64, 9_999
	fewPartitions, fewEntities   = 16, 200
)

// S-318, S-320: in a cluster with many partitions and entities a node that joins gets its share, and a node that drains
// is empty, one replica after the other. The times are virtual; docs/sizing.md has them.
func TestManyPartitionsAndEntities(t *testing.T) {
	partitions, entities := manyPartitions, manyEntities
	if testing.Short() {
		partitions, entities = fewPartitions, fewEntities
	}
	for _, nodes := range []int{5} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			dir := t.TempDir()
			_, err := bubble(t, func(t *testing.T) {
				cfg := configOf(1, 1)
				cfg.Dir, cfg.Log, cfg.Nodes, cfg.MaxNodes, cfg.Zones = dir, io.Discard, nodes, nodes+1, 0
				cfg.Partitions, cfg.partition.ReplaceAfter = partitions, 10*time.Minute
				cfg.partition.MaxPendingRequests, cfg.partition.ReservedRequests = 1024, 256
				w, err := newWorldOf(cfg, []check.Queue{{Name: "first", LockMillis: 5_000, MaxDelivery: 4}})
				defer w.close()
				if err != nil {
					t.Fatal(err)
				}
				many(t, &nemesis{w: w, rng: w.rng()}, entities)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func many(t *testing.T, n *nemesis, entities int) {
	w, began := n.w, time.Now()
	w.calmNetwork()
	took := func(what string) {
		t.Logf("%s: %v", what, time.Since(began).Round(100*time.Millisecond))
		began = time.Now()
	}
	settled := func(what string, most time.Duration) {
		t.Helper()
		if err := n.homes(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if d := time.Since(began); d > most {
			t.Errorf("%s took %v, want %v at most", what, d, most)
		}
		took(what)
	}
	settled(fmt.Sprintf("%d nodes hold %d partitions", len(w.there()), w.cfg.Partitions), homesBase)
	w.createMany(t, entities)
	took(fmt.Sprintf("%d entities are made", entities))
	share := w.cfg.Partitions * w.cfg.Replicas / (len(w.there()) + 1)
	n.join(nil)
	settled(fmt.Sprintf("a node more has its share of %d replicas", share), homesBase+2*time.Duration(share)*homesEach)
	m := w.there()[0]
	if err := n.want(m, catalog.Drain); err != nil {
		t.Fatal(err)
	}
	settled("a node is drained", homesBase+2*time.Duration(share)*homesEach)
	if got := w.view().Len(); got != entities+1 {
		t.Errorf("%d entities, want %d", got, entities+1)
	}
}

// createMany makes queues through all nodes, some at a time.
func (w *world) createMany(t *testing.T, count int) {
	t.Helper()
	const atOnce = 50
	var wg sync.WaitGroup
	for k := range atOnce {
		wg.Go(func() {
			for i := k; i < count; i += atOnce {
				q := check.Queue{Name: fmt.Sprintf("entity-%d", i), LockMillis: 5_000, MaxDelivery: 4}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				_, err := w.there()[i%len(w.there())].node.directory.Create(ctx, descriptorOf(&q))
				cancel()
				if err != nil {
					t.Errorf("%s: %v", q.Name, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
