package catalog

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// placedWorld has nodes a to d, and three partitions on a, b and c.
func placedWorld(t *testing.T) *world {
	w := &world{t: t, s: New()}
	w.apply(&fsm.BecomeLeader{Node: "n1"})
	for i, id := range []fsm.NodeID{"a", "b", "c", "d"} {
		w.must(Change{Node: &Node{ID: id, Name: string(id), Incarnation: fsm.Incarnation(i + 1)}})
	}
	abc := []fsm.NodeID{"a", "b", "c"}
	w.must(Change{Place: &Placement{Groups: []Group{{ID: 1, Members: abc}, {ID: 2, Members: abc}}}})
	return w
}

func epochOf(n uint64) *uint64 { return &n }

// S-318: a decision that was made before another one took effect changes nothing, even if the members are the same
// again.
func TestAStaleDecisionIsFenced(t *testing.T) {
	w := placedWorld(t)
	abc, abd := []fsm.NodeID{"a", "b", "c"}, []fsm.NodeID{"a", "b", "d"}
	stale := Change{Replace: &Exchange{ID: 1, From: abc, Members: abd, Epoch: epochOf(0)}}
	w.must(stale)
	w.refused(stale, fsm.InvalidOperation)
	w.must(Change{Replace: &Exchange{ID: 1, From: abd, Members: abc, Epoch: epochOf(1)}})
	w.refused(stale, fsm.InvalidOperation) // its members are the present ones
	g := w.s.View().Groups()
	if g[0].Epoch != 2 || !reflect.DeepEqual(g[0].Members, abc) || g[1].Epoch != 0 {
		t.Errorf("groups %+v", g)
	}
	w.refused(Change{Replace: &Exchange{ID: 1, From: abc, Members: []fsm.NodeID{"a", "b", "x"}, Epoch: epochOf(2)}},
		fsm.InvalidOperation)
	// An exchange of a cluster with older nodes is fenced by its members, and leaves the epoch as they know it.
	w.must(Change{Replace: &Exchange{ID: 1, From: abc, Members: abd}})
	if g := w.s.View().Groups()[0]; g.Epoch != 2 {
		t.Errorf("epoch %d after an exchange without one", g.Epoch)
	}
}

func TestAWishOutlastsALife(t *testing.T) {
	w := placedWorld(t)
	w.must(Change{Wish: &NodeWish{ID: "a", Wish: Drain}})
	n, _ := w.s.View().Node("a")
	if n.Wish != Drain || n.Since == 0 || !n.Leaves() {
		t.Errorf("%+v", n)
	}
	since := n.Since
	w.must(Change{Wish: &NodeWish{ID: "a", Wish: Drain}})
	w.must(Change{Node: &Node{ID: "a", Name: "a", Incarnation: 99, Zone: "z1"}})
	if n, _ = w.s.View().Node("a"); n.Wish != Drain || n.Since != since || n.Incarnation != 99 || n.Zone != "z1" {
		t.Errorf("after another life: %+v", n)
	}
	w.must(Change{Wish: &NodeWish{ID: "a"}})
	if n, _ = w.s.View().Node("a"); n.Leaves() || n.Since != 0 {
		t.Errorf("after the wish was taken back: %+v", n)
	}
	w.refused(Change{Wish: &NodeWish{ID: "x", Wish: Drain}}, fsm.EntityNotFound)
	w.refused(Change{Wish: &NodeWish{ID: "a", Wish: "dance"}}, fsm.InvalidArgument)
	w.refused(Change{Node: &Node{ID: "e", Incarnation: 7, Zone: string(make([]byte, 257))}}, fsm.InvalidArgument)
}

func TestANodeIsForgottenWhenItHoldsNothing(t *testing.T) {
	w := placedWorld(t)
	forget := Change{Forget: &Life{ID: "c", Incarnation: 3}}
	w.refused(forget, fsm.InvalidOperation) // nobody wants it
	w.must(Change{Wish: &NodeWish{ID: "c", Wish: Remove}})
	w.refused(forget, fsm.InvalidOperation) // it holds partitions
	for p := range fsm.PartitionID(2) {
		w.must(Change{Replace: &Exchange{ID: p + 1, From: []fsm.NodeID{"a", "b", "c"},
			Members: []fsm.NodeID{"a", "b", "d"}, Epoch: epochOf(0)}})
	}
	w.refused(Change{Forget: &Life{ID: "c", Incarnation: 2}}, fsm.Stale)
	w.must(forget)
	v := w.s.View()
	if _, known := v.Node("c"); known || !v.IsRemoved("c") || !v.IsLost(3) {
		t.Errorf("nodes %+v, removed %v, lost %v", v.Nodes(), v.Removed(), v.Lost())
	}
	w.refused(forget, fsm.EntityNotFound)
	w.refused(Change{Node: &Node{ID: "c", Name: "c", Incarnation: 30}}, fsm.Unauthorized)
}

// What the changes of placement look like is a format: nodes of other versions read it.
func TestPlacementChangesAsText(t *testing.T) {
	for want, c := range map[string]Change{
		`{"wish":{"id":"a","wish":"drain"}}`:             {Wish: &NodeWish{ID: "a", Wish: Drain}},
		`{"wish":{"id":"a"}}`:                            {Wish: &NodeWish{ID: "a"}},
		`{"forget":{"id":"a","incarnation":7}}`:          {Forget: &Life{ID: "a", Incarnation: 7}},
		`{"raise":1}`:                                    {Raise: 1},
		`{"node":{"id":"a","name":"n","incarnation":7}}`: {Node: &Node{ID: "a", Name: "n", Incarnation: 7}},
		`{"node":{"id":"a","name":"n","incarnation":7,"zone":"z"}}`: {
			Node: &Node{ID: "a", Name: "n", Incarnation: 7, Zone: "z"}},
		`{"replace":{"id":3,"from":["a"],"members":["b"]}}`: {
			Replace: &Exchange{ID: 3, From: []fsm.NodeID{"a"}, Members: []fsm.NodeID{"b"}}},
		`{"replace":{"id":3,"from":["a"],"members":["b"],"epoch":0}}`: {
			Replace: &Exchange{ID: 3, From: []fsm.NodeID{"a"}, Members: []fsm.NodeID{"b"}, Epoch: epochOf(0)}},
	} {
		if got := string(c.Command().Data); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// An image of a catalog that never met cluster version 0.0-1 is byte for byte what an older node writes.
func TestPlacementInAnImage(t *testing.T) {
	w := placedWorld(t)
	image := func() []byte {
		var b bytes.Buffer
		if _, err := w.s.Capture().WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for _, field := range []string{"epoch", "wish", "since", "zone", "Removed", "Level"} {
		if bytes.Contains(image(), []byte(`"`+field+`"`)) {
			t.Errorf("the image of version 0.0-0 has %q", field)
		}
	}
	w.must(Change{Raise: 1})
	w.must(Change{Wish: &NodeWish{ID: "d", Wish: Gone}})
	w.must(Change{Forget: &Life{ID: "d", Incarnation: 4}})
	w.must(Change{Wish: &NodeWish{ID: "c", Wish: Drain}})
	w.must(Change{Replace: &Exchange{ID: 1, From: []fsm.NodeID{"a", "b", "c"}, Members: []fsm.NodeID{"c", "b", "a"},
		Epoch: epochOf(0)}})
	before := image()
	s := New()
	if err := s.Restore(bytes.NewReader(before)); err != nil {
		t.Fatal(err)
	}
	v := s.View()
	if n, _ := v.Node("c"); n.Wish != Drain || v.ClusterVersion() != fsm.VersionPlacement || !v.IsRemoved("d") || v.Groups()[0].Epoch != 1 {
		t.Errorf("restored: nodes %+v, cluster version %s, removed %v, groups %+v", v.Nodes(), v.ClusterVersion(), v.Removed(), v.Groups())
	}
	w.s = s
	if after := image(); !bytes.Equal(before, after) {
		t.Errorf("the image changed:\n%s\n%s", before, after)
	}
}
