package catalog

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// Wish is what an operator wants of a node.
type Wish string

// The wishes. A node without one takes its share of replicas and leaders.
const (
	Serve  Wish = ""
	Drain  Wish = "drain"  // the node leads nothing, and holds nothing if others are free
	Remove Wish = "remove" // the same, then the node is forgotten
	Gone   Wish = "gone"   // the node never comes back: others take its places at once, then it is forgotten
)

// NodeWish names a node and what an operator wants of it.
type NodeWish struct {
	ID   fsm.NodeID `json:"id"`
	Wish Wish       `json:"wish,omitempty"`
}

// Leaves reports whether the node is to lead and hold nothing.
func (n *Node) Leaves() bool { return n.Wish != Serve }

// LeavesForGood reports whether the node is to be forgotten when it holds nothing.
func (n *Node) LeavesForGood() bool { return n.Wish == Remove || n.Wish == Gone }

// IsRemoved reports whether a node was forgotten.
func (v *View) IsRemoved(n fsm.NodeID) bool { return slices.Contains(v.removed, n) }

// Removed returns the nodes that were forgotten, oldest first.
func (v *View) Removed() []fsm.NodeID { return slices.Clone(v.removed) }

// HoldsAny reports whether a node is a member of a partition.
func (v *View) HoldsAny(n fsm.NodeID) (holds bool) {
	v.groups.Scan(func(_ fsm.PartitionID, g Group) bool {
		holds = slices.Contains(g.Members, n)
		return !holds
	})
	return holds
}

func (s *State) wish(w NodeWish) fsm.Outcome {
	n, known := s.view.nodes.Get(w.ID)
	switch {
	case !known:
		return refuse(fsm.EntityNotFound, "node %s is not in the catalog", w.ID)
	case w.Wish != Serve && w.Wish != Drain && w.Wish != Remove && w.Wish != Gone:
		return refuse(fsm.InvalidArgument, "there is no wish %q", w.Wish)
	case n.Wish == w.Wish:
		return fsm.Outcome{}
	}
	v := s.next()
	n.Wish, n.Since = w.Wish, s.wall
	if w.Wish == Serve {
		n.Since = 0
	}
	v.nodes.Set(n.ID, n)
	s.view = v
	return fsm.Outcome{}
}

// forgetNode removes a node for good: it holds nothing, and what is left of its last life is over.
func (s *State) forgetNode(f Life) fsm.Outcome {
	n, known := s.view.nodes.Get(f.ID)
	switch {
	case !known:
		return refuse(fsm.EntityNotFound, "node %s is not in the catalog", f.ID)
	case n.Incarnation != f.Incarnation:
		return refuse(fsm.Stale, "node %s has had another life meanwhile", f.ID)
	case n.Wish != Remove && n.Wish != Gone:
		return refuse(fsm.InvalidOperation, "nobody wants node %s removed any more", f.ID)
	case s.view.HoldsAny(f.ID):
		return refuse(fsm.InvalidOperation, "node %s holds partitions", f.ID)
	}
	v := s.next()
	v.nodes.Delete(f.ID)
	v.lose(n.Incarnation)
	if v.removed = append(v.removed, f.ID); len(v.removed) > maxRemoved {
		v.removed = slices.Delete(v.removed, 0, len(v.removed)-maxRemoved)
	}
	s.view = v
	return fsm.Outcome{}
}

// fence judges an exchange by the epoch of its partition, and by the nodes that there are.
func (s *State) fence(x *Exchange, epoch uint64) fsm.Outcome {
	if *x.Epoch != epoch {
		return refuse(fsm.InvalidOperation, "partition %d is at epoch %d, the exchange is of epoch %d", x.ID, epoch, *x.Epoch)
	}
	for _, m := range x.Members {
		if _, known := s.view.nodes.Get(m); !known && !slices.Contains(x.From, m) {
			return refuse(fsm.InvalidOperation, "node %s is not in the catalog", m)
		}
	}
	return fsm.Outcome{}
}
