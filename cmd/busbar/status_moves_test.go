package main

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/transport/rest"
)

func TestHowFarNewReplicasAre(t *testing.T) {
	show := func(id fsm.NodeID) fsm.NodeID { return "node-" + id }
	told := tellings{}
	told.add("a", []replica.Status{
		{Partition: 1, Applied: 900, Sending: []raftnet.Sending{
			{To: "x", Size: 1000, Sent: 1}, {To: "d", Size: 4000, Sent: 3000, Taken: 2 * time.Second}}},
		{Partition: 2, Applied: 50}})
	told.add("d", []replica.Status{{Partition: 1, Applied: 100}, {Partition: 2, Applied: 60}})
	moving := []move{{1, "a", []fsm.NodeID{"d", "e"}}, {2, "a", []fsm.NodeID{"d"}}, {3, "b", []fsm.NodeID{"d"}}, {4, "a", nil}}
	want := []rest.MoveStatus{
		{Partition: 1, Node: "node-d", From: "node-a", EntriesLeft: 800, BytesSent: 3000, BytesTotal: 4000, BytesPerSecond: 1500},
		{Partition: 1, Node: "node-e", From: "node-a", EntriesLeft: 900}, // it has nothing yet, or does not answer
		{Partition: 2, Node: "node-d", From: "node-a"},                   // the leader's answer is the older one
	} // nobody tells of the leader of 3
	if got := progressOf(moving, told, show); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	g := catalog.Group{ID: 1, Members: []fsm.NodeID{"a", "d", "e"}}
	st := replica.Status{Voters: []fsm.NodeID{"a", "b"}, Nonvoters: []fsm.NodeID{"d"}}
	if got := filled(g, &st); !slices.Equal(got, []fsm.NodeID{"d", "e"}) {
		t.Errorf("filled: %v", got)
	}
}
