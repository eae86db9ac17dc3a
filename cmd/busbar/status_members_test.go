package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

func TestWhereAGroupIsNotWhatTheCatalogWants(t *testing.T) {
	ids := func(names ...fsm.NodeID) []fsm.NodeID { return names }
	for _, c := range []struct {
		name                       string
		voters, nonvoters, members []fsm.NodeID
		votes                      int
		want                       []string
	}{
		{"as it should be", ids("n1", "n2", "n3"), nil, ids("n3", "n2", "n1"), 3, nil},
		{"a node that is being taken in", ids("n1", "n2"), nil, ids("n1", "n2", "n4"), 3,
			[]string{"n4 is wanted and not taken in yet"}},
		{"a node that catches up", ids("n1", "n2"), ids("n4"), ids("n1", "n2", "n4"), 3,
			[]string{"n4 is taken in and does not vote yet"}},
		{"a node that is replaced", ids("n1", "n2", "n3"), ids("n4"), ids("n1", "n2", "n4"), 3,
			[]string{"n3 votes and is not wanted, or is away"}},
		{"a removed one that is still there", ids("n1"), ids("n2"), ids("n1"), 1,
			[]string{"n2 has no vote and is not wanted, or is away"}},
		{"more nodes than votes in the catalog", ids("n1", "n2"), ids("n3"), ids("n1", "n2", "n3"), 2, nil},
		{"a replica that waits to be taken in", nil, nil, ids("n1", "n2"), 2, nil},
		{"a catalog that is not known yet", ids("n1", "n2"), nil, nil, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := differences(c.voters, c.nonvoters, c.members, c.votes); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestANameIsThatOfTheNodeThatLives(t *testing.T) {
	nodes := []catalog.Node{{ID: "a", Name: "n1"}, {ID: "b", Name: "n2"}, {ID: "c", Name: "n2"}, {ID: "d", Name: "n3"},
		{ID: "e", Name: "n3"}, {ID: "f", Name: "n4"}, {ID: "g", Name: "n4"}, {ID: "h"}}
	alive := map[fsm.NodeID]bool{"a": true, "c": true, "d": true, "e": true, "h": true}
	want := map[fsm.NodeID]fsm.NodeID{
		"a": "n1",
		"b": "b", "c": "n2", // a new disk has the name of the old one
		"d": "d", "e": "e", // two that live
		"f": "f", "g": "g", // two that are gone
		"h": "h",
	}
	if got := displayNames("a", nodes, alive); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	delete(alive, "a")
	if got := displayNames("h", nodes, alive); got["a"] != "n1" {
		t.Errorf("a node that is away is called %s", got["a"])
	}
}
