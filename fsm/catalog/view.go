package catalog

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/busbar-mq/busbar/fsm"
)

// View is the catalog at one change number. It never changes and may be shared; so are the
// descriptors it returns.
type View struct {
	version uint64
	nextID  fsm.EntityID
	names   btree.Map[string, *fsm.Descriptor] // by lower-case name
	ids     btree.Map[fsm.EntityID, *fsm.Descriptor]
	groups  btree.Map[fsm.PartitionID, Group]
	nodes   btree.Map[fsm.NodeID, Node]
	lost    []fsm.Incarnation // oldest first
	removed []fsm.NodeID      // oldest first
	cluster fsm.Version       // that every node knows
	// rehomings are the moves of shares, with those that failed.
	rehomings btree.Map[fsm.EntityID, Rehoming]
}

func newView() *View { return &View{nextID: 1} }

// clone shares everything until it is changed: the tables are copy-on-write.
func (v *View) clone() *View {
	return &View{version: v.version, nextID: v.nextID, names: *v.names.Copy(), ids: *v.ids.Copy(),
		groups: *v.groups.Copy(), nodes: *v.nodes.Copy(), lost: slices.Clone(v.lost),
		removed: slices.Clone(v.removed), cluster: v.cluster, rehomings: *v.rehomings.Copy()}
}

func fold(name string) string { return strings.ToLower(name) }

func (v *View) put(d *fsm.Descriptor) {
	v.names.Set(fold(d.Name), d)
	v.ids.Set(d.ID, d)
}

func (v *View) drop(d *fsm.Descriptor) {
	v.names.Delete(fold(d.Name))
	v.ids.Delete(d.ID)
	v.rehomings.Delete(d.ID)
}

func (v *View) lose(i fsm.Incarnation) {
	if slices.Contains(v.lost, i) {
		return
	}
	v.lost = append(v.lost, i)
	if len(v.lost) > maxLost {
		v.lost = slices.Delete(v.lost, 0, len(v.lost)-maxLost)
	}
}

// shares chooses the partitions of a new entity: all of them if partitioned, else one in turn (A1).
func (v *View) shares(id fsm.EntityID, partitioned bool) []fsm.PartitionID {
	all := v.groups.Keys()
	if partitioned {
		return all
	}
	return []fsm.PartitionID{all[uint64(id)%uint64(len(all))]}
}

// Version is the change number of this view; it grows by one with every change.
func (v *View) Version() uint64 { return v.version }

// Len returns the number of entities.
func (v *View) Len() int { return v.ids.Len() }

// Entity returns the entity with that name, compared case-insensitively, or nil (S-260).
func (v *View) Entity(name string) *fsm.Descriptor {
	d, _ := v.names.Get(fold(name))
	return d
}

// ByID returns the entity with that id, or nil.
func (v *View) ByID(id fsm.EntityID) *fsm.Descriptor {
	d, _ := v.ids.Get(id)
	return d
}

// List returns the entities of one kind in the order of their lower-case names, after the first skip
// of them, at most top; a negative top means all.
func (v *View) List(kind fsm.EntityKind, skip, top int) []*fsm.Descriptor {
	var out []*fsm.Descriptor
	v.names.Scan(func(_ string, d *fsm.Descriptor) bool {
		if d.Kind != kind {
			return true
		}
		if skip > 0 {
			skip--
			return true
		}
		if top >= 0 && len(out) >= top {
			return false
		}
		out = append(out, d)
		return true
	})
	return out
}

// Subscriptions returns the subscriptions of a topic in the order of their lower-case names, after the
// first skip of them, at most top; a negative top means all.
func (v *View) Subscriptions(topic fsm.EntityID, skip, top int) []*fsm.Descriptor {
	var out []*fsm.Descriptor
	v.eachSubscription(topic, func(d *fsm.Descriptor) bool {
		if skip > 0 {
			skip--
			return true
		}
		if top >= 0 && len(out) >= top {
			return false
		}
		out = append(out, d)
		return true
	})
	return out
}

// SubscriptionCount returns how many subscriptions a topic has.
func (v *View) SubscriptionCount(topic fsm.EntityID) (n int) {
	v.eachSubscription(topic, func(*fsm.Descriptor) bool { n++; return true })
	return n
}

// eachSubscription finds a topic's subscriptions by what their names begin with.
func (v *View) eachSubscription(topic fsm.EntityID, yield func(*fsm.Descriptor) bool) {
	t := v.ByID(topic)
	if t == nil {
		return
	}
	prefix := fold(t.Name) + subscriptionsInPath
	v.names.Ascend(prefix, func(name string, d *fsm.Descriptor) bool {
		// A topic may be called like another one's subscription path; its subscriptions are its own.
		return strings.HasPrefix(name, prefix) && (d.Parent != topic || yield(d))
	})
}

// LongestLock returns the longest lock that an entity gives.
func (v *View) LongestLock() (longest fsm.Millis) {
	v.ids.Scan(func(_ fsm.EntityID, d *fsm.Descriptor) bool {
		longest = max(longest, d.LockDuration)
		return true
	})
	return longest
}

// SharesOf calls yield with every entity that has a share in p, by id, until it returns false.
func (v *View) SharesOf(p fsm.PartitionID, yield func(*fsm.Descriptor) bool) {
	v.ids.Scan(func(_ fsm.EntityID, d *fsm.Descriptor) bool {
		return !slices.Contains(d.Partitions, p) || yield(d)
	})
}

// Groups returns the data partitions in id order. Their members and founders are shared and not to be changed.
func (v *View) Groups() []Group { return v.groups.Values() }

// Group returns the data partition with that id.
func (v *View) Group(id fsm.PartitionID) (Group, bool) { return v.groups.Get(id) }

// GroupCount returns how many data partitions there are.
func (v *View) GroupCount() int { return v.groups.Len() }

// Nodes returns the registered nodes in id order.
func (v *View) Nodes() []Node { return v.nodes.Values() }

// Node returns the node with that id.
func (v *View) Node(id fsm.NodeID) (Node, bool) { return v.nodes.Get(id) }

// Lost returns the incarnations that are over, oldest first (RUL-19).
func (v *View) Lost() []fsm.Incarnation { return slices.Clone(v.lost) }

// IsLost reports whether a life of a node was declared over.
func (v *View) IsLost(i fsm.Incarnation) bool { return slices.Contains(v.lost, i) }
