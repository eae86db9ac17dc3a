package client

import (
	"strings"
	"testing"
)

func TestWhenAWishIsReached(t *testing.T) {
	for name, tc := range map[string]struct {
		reached func(*nodeRow) (bool, string)
		node    *nodeRow
		done    bool
		text    string
	}{
		"it leads": {drained, &nodeRow{ID: "n1", Leads: 1}, false, "leads 1 group and"},
		"it leads, and holds what has no other place": {drained, &nodeRow{Leads: 1, Replicas: 2, Stays: "no"}, false, "leads"},
		"it holds":                               {drained, &nodeRow{Replicas: 2}, false, "holds 2 replicas"},
		"it holds what has no other place":       {drained, &nodeRow{Replicas: 1, Stays: "add a node"}, true, "keeps 1 replica: add"},
		"it is empty":                            {drained, &nodeRow{}, true, "holds no replica"},
		"it is gone":                             {drained, nil, true, "not in the cluster"},
		"it is not undrained yet":                {undrained, &nodeRow{Wish: "drain"}, false, "share"},
		"it is undrained":                        {undrained, &nodeRow{}, true, "share"},
		"it was empty, and is not forgotten yet": {removed, &nodeRow{Wish: "remove"}, false, "holds no replica"},
		"its replicas have no other place":       {removed, &nodeRow{Wish: "remove", Replicas: 2, Stays: "add a node"}, false, "add a node"},
		"it is forgotten and runs":               {removed, &nodeRow{State: "removed"}, true, "stop it"},
		"it is forgotten":                        {removed, nil, true, "stop it"},
	} {
		if done, text := tc.reached(tc.node); done != tc.done || !strings.Contains(text, tc.text) {
			t.Errorf("%s: %v %q, want %v %q", name, done, text, tc.done, tc.text)
		}
	}
}
