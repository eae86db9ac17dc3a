package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// memoryOnce is a Once that survives its node.
type memoryOnce struct {
	mu    sync.Mutex
	files map[string][]byte
}

func (o *memoryOnce) Read(name string) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, ok := o.files[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return b, nil
}

func (o *memoryOnce) WriteOnce(name string, b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.files[name]; ok {
		return fmt.Errorf("%s: %w", name, fs.ErrExist)
	}
	if o.files == nil {
		o.files = map[string][]byte{}
	}
	o.files[name] = slices.Clone(b)
	return nil
}

// island is a set of nodes whose calls to each other may be lost and whose views may differ. It runs
// Bootstrap alone, without mesh and gossip, so that every order of events can be had.
type island struct {
	nodes map[fsm.NodeID]*islander
	lose  func(from, to fsm.NodeID) (request, answer bool)
	delay func() time.Duration
}

type islander struct {
	*Bootstrap
	store *memoryOnce
	mu    sync.Mutex
	sees  []fsm.NodeID
	news  chan struct{}
}

func (i *islander) look(sees ...fsm.NodeID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sees = append([]fsm.NodeID(nil), sees...)
	slices.Sort(i.sees)
	close(i.news)
	i.news = make(chan struct{})
}

func newIsland() *island {
	return &island{
		nodes: map[fsm.NodeID]*islander{},
		lose:  func(fsm.NodeID, fsm.NodeID) (bool, bool) { return false, false },
		delay: func() time.Duration { return 0 },
	}
}

func (s *island) add(id fsm.NodeID, expect int, store *memoryOnce) *islander {
	i := &islander{store: store, sees: []fsm.NodeID{id}, news: make(chan struct{})}
	i.Bootstrap = &Bootstrap{
		self: id, expect: expect, store: store, log: hclog.NewNullLogger(), until: time.Now().Add(reservation),
		members: func() ([]fsm.NodeID, <-chan struct{}) {
			i.mu.Lock()
			defer i.mu.Unlock()
			return i.sees, i.news
		},
		call: func(ctx context.Context, to fsm.NodeID, _ uint8, request []byte) ([]byte, error) {
			loseRequest, loseAnswer := s.lose(id, to)
			if to != id {
				time.Sleep(s.delay())
			}
			if loseRequest || s.nodes[to] == nil {
				return nil, errors.New("lost")
			}
			// The answer may come late, but what was asked happens all the same.
			a, err := s.nodes[to].serve(ctx, id, request)
			if loseAnswer || ctx.Err() != nil {
				return nil, errors.New("lost")
			}
			return a, err
		},
	}
	s.nodes[id] = i
	return i
}

type verdict struct {
	id     fsm.NodeID
	list   []fsm.NodeID
	member bool
	err    error
}

func (s *island) run(ctx context.Context) []verdict {
	verdicts := make(chan verdict, len(s.nodes))
	for id, n := range s.nodes {
		go func() {
			list, member, err := n.Run(ctx)
			verdicts <- verdict{id, list, member, err}
		}()
	}
	all := make([]verdict, 0, len(s.nodes))
	for range s.nodes {
		all = append(all, <-verdicts)
	}
	slices.SortFunc(all, func(a, b verdict) int { return int(a.id[1]) - int(b.id[1]) })
	return all
}

func ids(n int) (list []fsm.NodeID) {
	for i := range n {
		list = append(list, fsm.NodeID(fmt.Sprintf("n%d", i)))
	}
	return list
}

func TestBootstrapFixesTheLowestNodesThatWereSeen(t *testing.T) {
	for _, c := range []struct {
		nodes, expect int
	}{{1, 1}, {3, 3}, {5, 3}, {5, 5}} {
		t.Run(fmt.Sprintf("%d nodes expecting %d", c.nodes, c.expect), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newIsland()
				for _, id := range ids(c.nodes) {
					s.add(id, c.expect, &memoryOnce{}).look(ids(c.nodes)...)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for i, v := range s.run(ctx) {
					if v.err != nil || !slices.Equal(v.list, ids(c.expect)) || v.member != (i < c.expect) {
						t.Errorf("%s: %v, member %v, %v; want %v", v.id, v.list, v.member, v.err, ids(c.expect))
					}
				}
			})
		})
	}
}

func TestBootstrapReturnsAConfirmedListWithoutTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newIsland()
		stores := []*memoryOnce{{}, {}, {}}
		for i, id := range ids(3) {
			s.add(id, 3, stores[i]).look(ids(3)...)
		}
		s.run(t.Context())
		again := newIsland()
		n := again.add("n2", 3, stores[2])
		begun := time.Now()
		list, member, err := n.Run(t.Context())
		if err != nil || !member || !slices.Equal(list, ids(3)) || time.Since(begun) != 0 {
			t.Errorf("%v, %v, %v after %v; want the list at once", list, member, err, time.Since(begun))
		}
	})
}

func TestBootstrapDoesNotReturnAListThatIsNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newIsland()
		n := s.add("n1", 3, &memoryOnce{})
		n.look("n0", "n1", "n2") // the other two cannot be reached
		if _, err := n.accept(ids(3)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if list, _, err := n.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v; want to wait for ever", list, err)
		}
	})
}

func TestBootstrapGoesOnAfterItsProposerDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newIsland()
		for _, id := range ids(3) {
			s.add(id, 3, &memoryOnce{}).look(ids(3)...)
		}
		// n0 got as far as n1 and stopped; it comes back with nothing written itself.
		if _, err := s.nodes["n1"].accept(ids(3)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, v := range s.run(ctx) {
			if v.err != nil || !slices.Equal(v.list, ids(3)) {
				t.Errorf("%s: %v, %v", v.id, v.list, v.err)
			}
		}
	})
}

func TestBootstrapStopsAtAFileThatDoesNotParse(t *testing.T) {
	for _, name := range []string{acceptedName, confirmedName} {
		for _, b := range [][]byte{{}, {9}, {bootstrapVersion, 3, 1, 'a'}, {bootstrapVersion, 2, 1, 'b', 1, 'a'}} {
			store := &memoryOnce{files: map[string][]byte{name: b}}
			n := newIsland().add("n0", 1, store)
			if list, _, err := n.Run(t.Context()); !errors.Is(err, errGossip) {
				t.Errorf("%s of %x: %v, %v; want an error", name, b, list, err)
			}
		}
	}
}

// Nodes see each other late and differently, lose and delay questions and answers, and restart; there
// are several who believe that they are the lowest. There must never be two confirmed lists that
// share a node, and once all is calm every node must learn one.
func TestBootstrapRaces(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			raceOnce(t, seed)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func raceOnce(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex // of rng
	chance := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	const nodes, expect = 5, 3 // two disjoint lists need six nodes
	s := newIsland()
	wild := true
	odds := []int{1000, 40, 15}[chance(3)]    // of losing a question or an answer
	slow := []int{5, 50, 400, 700}[chance(4)] // ms, at most, that a question takes
	s.lose = func(fsm.NodeID, fsm.NodeID) (bool, bool) {
		mu.Lock()
		calm := !wild
		mu.Unlock()
		return !calm && chance(odds) == 0, !calm && chance(odds) == 0
	}
	s.delay = func() time.Duration {
		mu.Lock()
		calm := !wild
		mu.Unlock()
		if calm {
			return time.Millisecond
		}
		return time.Duration(chance(slow)) * time.Millisecond
	}
	for _, id := range ids(nodes) {
		s.add(id, expect, &memoryOnce{})
	}
	done := make(chan []verdict)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	go func() { done <- s.run(ctx) }()
	rivals := chance(3) > 0 // nobody sees a lower id, so that many propose
	for range 60 {
		time.Sleep(time.Duration(chance(200)) * time.Millisecond)
		id := ids(nodes)[chance(nodes)]
		sees := []fsm.NodeID{id}
		for _, other := range ids(nodes) {
			if other != id && chance(4) > 0 && !(rivals && other < id) {
				sees = append(sees, other)
			}
		}
		s.nodes[id].look(sees...)
		if chance(8) == 0 { // as a restart: what was only in memory is forgotten
			b := s.nodes[id].Bootstrap
			b.mu.Lock()
			b.agreed, b.until = agreement{}, time.Now().Add(reservation)
			b.mu.Unlock()
		}
	}
	mu.Lock()
	wild = false
	mu.Unlock()
	for _, n := range s.nodes {
		n.look(ids(nodes)...)
	}
	var first []fsm.NodeID
	for _, v := range <-done {
		if v.err != nil {
			t.Errorf("%s: %v; accepted %v", v.id, v.err, s.nodes[v.id].store.files)
			continue
		}
		if first == nil {
			first = v.list
		}
		if !slices.Equal(v.list, first) || v.member != slices.Contains(first, v.id) {
			t.Errorf("%s: %v, member %v; the others %v", v.id, v.list, v.member, first)
		}
	}
}

func TestBootstrapOverMeshAndGossip(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		verdicts := make(chan verdict, 4)
		start := func(i int) *simNode {
			cfg := s.config(i, fsm.Incarnation(i+1))
			cfg.BootstrapExpect = 3
			n := s.build(cfg, simIP(i))
			b := NewBootstrap(cfg, n.Mesh, n.gossip, &memoryOnce{}, hclog.NewNullLogger())
			n.open(t)
			go func() {
				list, member, err := b.Run(t.Context())
				verdicts <- verdict{cfg.Node, list, member, err}
			}()
			return n
		}
		for _, i := range []int{3, 2, 1} {
			defer start(i).stop()
		}
		want := []fsm.NodeID{"n1", "n2", "n3"}
		for range 3 {
			if v := <-verdicts; v.err != nil || !v.member || !slices.Equal(v.list, want) {
				t.Errorf("%s: %v, member %v, %v", v.id, v.list, v.member, v.err)
			}
		}
		defer start(0).stop() // a lower id, later: it is told
		if v := <-verdicts; v.err != nil || v.member || !slices.Equal(v.list, want) {
			t.Errorf("%s: %v, member %v, %v", v.id, v.list, v.member, v.err)
		}
	})
}
