package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

func TestWhichDisksAreSlow(t *testing.T) {
	for name, tc := range map[string]struct {
		means []time.Duration // of nodes a, b and so on; negative: it does not answer
		want  string
	}{
		"nobody has written":                    {[]time.Duration{0, 0, 0}, ""},
		"one of three":                          {[]time.Duration{5, 6, 120}, "c"},
		"below what any disk takes":             {[]time.Duration{1, 1, 99}, ""},
		"a machine that has much to do":         {[]time.Duration{400, 500, 900}, ""},
		"two of five":                           {[]time.Duration{10, 800, 12, 700, 9}, "b d"},
		"one of two":                            {[]time.Duration{3, 300}, "b"},
		"only it has written":                   {[]time.Duration{0, 300, 0}, ""},
		"one that does not answer is not known": {[]time.Duration{3, 3, -1}, ""},
	} {
		s := catalog.New()
		states := map[fsm.NodeID]nodeState{}
		e := &fsm.Entry{}
		for i, mean := range tc.means {
			id := fsm.NodeID(fmt.Sprintf("%c", 'a'+i))
			c := catalog.Change{Node: &catalog.Node{ID: id, Name: string(id), Incarnation: fsm.Incarnation(i + 1)}}
			e.Requests = append(e.Requests, fsm.Request{Command: c.Command()})
			if mean >= 0 {
				states[id] = nodeState{fsm.CatalogPartition: replica.Status{WriteMean: mean * time.Millisecond}}
			}
		}
		s.Apply(1, e)
		var got []string
		for n := range slowDisks(s.View(), states) { // order-free: sorted below
			got = append(got, string(n))
		}
		slices.Sort(got)
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %q", name, got, tc.want)
		}
	}
}

// A slow disk is no target of balancing or of zones. It is a place for a replica that has no other, and leads nothing.
func TestPlansAvoidSlowDisks(t *testing.T) {
	nodes := []LayoutNode{{ID: "a", Takes: true, Zone: "x"}, {ID: "b", Takes: true, Zone: "x"}, {ID: "c", Takes: true, Zone: "y"},
		{ID: "d", Takes: true, Zone: "z", Slow: true}}
	l := Layout{Replicas: 3, Nodes: nodes}
	for p := range fsm.PartitionID(6) {
		members := [][]fsm.NodeID{{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}}[p%3]
		l.Groups = append(l.Groups, LayoutGroup{ID: p + 1, Members: members, Settled: true})
	}
	if x := Plan(l); len(x) > 0 {
		t.Errorf("planned %+v", x)
	}
	l.Nodes[0].Takes, l.Nodes[0].Leaves = false, true
	if x := Plan(l); len(x) != 1 || !slices.Equal(x[0].Members, []fsm.NodeID{"b", "c", "d"}) {
		t.Errorf("planned %+v", x)
	}
	l.Nodes = append(l.Nodes, LayoutNode{ID: "e", Takes: true, Zone: "y"})
	if x := Plan(l); len(x) != 1 || !slices.Equal(x[0].Members, []fsm.NodeID{"e", "b", "c"}) {
		t.Errorf("with a fast node, planned %+v", x)
	}
}
