package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// three is a cluster of three nodes, and a group for each node that leads one, in their order.
func three(leaders ...fsm.NodeID) Layout {
	l := Layout{Replicas: 3, FollowFrom: 100, Nodes: []LayoutNode{{ID: "a", Takes: true}, {ID: "b", Takes: true}, {ID: "c", Takes: true}}}
	for i, n := range leaders {
		g := LayoutGroup{ID: fsm.PartitionID(i + 1), Members: []fsm.NodeID{n}, Settled: true}
		for _, other := range l.Nodes {
			if other.ID != n {
				g.Members = append(g.Members, other.ID)
			}
		}
		l.Groups = append(l.Groups, g)
	}
	return l
}

// planned tells the leaders that a plan exchanges.
func planned(l Layout) string {
	text := ""
	for _, x := range Plan(l) {
		text += fmt.Sprintf("%d: %s to %s\n", x.ID, x.From[0], x.Members[0])
	}
	return text
}

// The preferred leader is the node through which most requests come, and leaders stay level.
func TestALeaderFollowsItsTraffic(t *testing.T) {
	type rates = map[fsm.NodeID]uint64
	for _, row := range []struct {
		name    string
		leaders []fsm.NodeID
		traffic []rates // of the groups in their order
		tune    func(*Layout)
		want    string
	}{
		{"most of it comes through another node", []fsm.NodeID{"a", "b", "c"}, []rates{{"a": 100, "b": 900}}, nil,
			"1: a to b\n2: b to a\n"},
		{"the other node leads less", []fsm.NodeID{"a", "b", "c", "a"}, []rates{{"a": 100, "b": 900}}, nil, "1: a to b\n"},
		{"the other node leads more", []fsm.NodeID{"a", "b", "c", "b"}, []rates{{"b": 900}}, nil, "1: a to b\n2: b to a\n"},
		{"most of it comes through the leader", []fsm.NodeID{"a", "b", "c"}, []rates{{"a": 900, "b": 100}}, nil, ""},
		{"it comes through all nodes alike", []fsm.NodeID{"a", "b", "c"}, []rates{{"a": 300, "b": 340, "c": 320}}, nil, ""},
		{"nearly two thirds", []fsm.NodeID{"a", "b", "c"}, []rates{{"a": 340, "b": 660}}, nil, ""},
		{"two thirds", []fsm.NodeID{"a", "b", "c"}, []rates{{"a": 300, "b": 600}}, nil, "1: a to b\n2: b to a\n"},
		{"too little of it", []fsm.NodeID{"a", "b", "c"}, []rates{{"b": 99}}, nil, ""},
		{"enough of it", []fsm.NodeID{"a", "b", "c"}, []rates{{"b": 100}}, nil, "1: a to b\n2: b to a\n"},
		{"nobody knows", []fsm.NodeID{"a", "b", "c"}, []rates{nil, nil, nil}, nil, ""},
		{"the partition in return needs its leader", []fsm.NodeID{"a", "b", "c"}, []rates{{"b": 900}, {"b": 800}}, nil, ""},
		{"another partition in return", []fsm.NodeID{"a", "b", "c", "b", "c", "a"}, []rates{{"b": 900}, {"b": 800}}, nil,
			"1: a to b\n4: b to a\n"},
		{"two partitions that want each other's node", []fsm.NodeID{"a", "b", "c"}, []rates{{"b": 300}, {"a": 200}}, nil,
			"1: a to b\n2: b to a\n"},
		{"the node drains", []fsm.NodeID{"a", "a", "c"}, []rates{{"b": 900}},
			func(l *Layout) { l.Nodes[1].Takes, l.Nodes[1].Leaves = false, true }, ""},
		{"the disk of the node is slow", []fsm.NodeID{"a", "b", "c"}, []rates{{"b": 900}},
			func(l *Layout) { l.Nodes[1].Slow = true }, ""},
		{"the node holds no replica", []fsm.NodeID{"a", "b", "c"}, []rates{{"d": 900}}, nil, ""},
		{"a replica moves", []fsm.NodeID{"a", "b", "c"}, []rates{{"b": 900}},
			func(l *Layout) { l.Groups[2].Settled = false }, ""},
	} {
		l := three(row.leaders...)
		for i, r := range row.traffic {
			l.Groups[i].Traffic = r
		}
		if row.tune != nil {
			row.tune(&l)
		}
		if got := planned(l); got != row.want {
			t.Errorf("%s: planned %q, want %q", row.name, got, row.want)
		}
	}
}

// A rate is known after two windows of one leadership, and is that of the window with fewer requests.
func TestTrafficIsThatOfTwoWindows(t *testing.T) {
	lives := map[fsm.Incarnation]fsm.NodeID{1: "a", 2: "b", 3: "b"}
	all, now := traffic{}, time.Unix(0, 0)
	say := func(term uint64, counts ...uint64) string {
		s := replica.Status{Partition: 1, Node: "a", Term: term}
		for i, n := range counts {
			s.Asked = append(s.Asked, replica.Asked{Node: fsm.Incarnation(i + 1), Requests: n})
		}
		all.noteOne(&s, lives, now)
		return fmt.Sprint(all.of(1))
	}
	for i, step := range []struct {
		after  time.Duration
		term   uint64
		counts []uint64
		want   string
	}{
		{0, 1, []uint64{1000, 1000}, "map[]"},
		{trafficWindow / 2, 1, []uint64{2000, 2000}, "map[]"},
		{trafficWindow / 2, 1, []uint64{4000, 31_000}, "map[]"},
		{trafficWindow, 1, []uint64{10_000, 43_000}, "map[a:100 b:400]"},
		{trafficWindow, 1, []uint64{16_000, 43_000, 30_000}, "map[a:200 b:400]"}, // b began another life
		{trafficWindow, 1, []uint64{16_000, 43_000, 30_000}, "map[a:0 b:0]"},
		{trafficWindow, 2, []uint64{16_000, 43_000, 30_000}, "map[]"}, // another leadership
		{trafficWindow, 2, []uint64{100, 43_000}, "map[]"},            // counted anew: less than before
		{trafficWindow, 2, []uint64{3_100, 43_000}, "map[a:0 b:0]"},
	} {
		now = now.Add(step.after)
		if got := say(step.term, step.counts...); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}
