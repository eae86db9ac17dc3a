package replica

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// Asked is how many requests a leader has answered that came through one life of a node.
type Asked struct {
	Node     fsm.Incarnation `json:"node"`
	Requests uint64          `json:"requests"` // since the process of the leader started
}

// maxAsking bounds the lives of nodes that a leader counts for. With more of them it begins anew.
const maxAsking = 64

// traffic counts the requests that a leader answers, by the life of the node that they came through. A cluster has few
// nodes, so a list is shorter than a map.
type traffic []Asked

// count counts one request. One without an id is the leader's own.
func (t *traffic) count(id fsm.RequestID) {
	if id.IsZero() {
		return
	}
	for i := range *t {
		if (*t)[i].Node == id.Node {
			(*t)[i].Requests++
			return
		}
	}
	if len(*t) == maxAsking {
		*t = (*t)[:0]
	}
	*t = append(*t, Asked{Node: id.Node, Requests: 1})
}

// asked returns what is counted while the replica leads.
func (p *proposer) asked() []Asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leading {
		return nil
	}
	return slices.Clone(p.traffic)
}
