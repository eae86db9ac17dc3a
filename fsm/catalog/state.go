package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
)

// Limits of the catalog. They bound what one misbehaving administrator can make every node hold.
const (
	maxLost         = 4096 // remembered lost incarnations; far more than leaders lag behind
	maxPumps        = 4096 // remembered results
	resultLifetime  = 10 * 60 * 1000
	maxChangeBytes  = 1 << 20
	maxPartitionIDs = 1 << 15 // ids stay below 32768 (S-93)
	maxRemoved      = 4096    // remembered nodes that were forgotten
	maxZoneBytes    = 256
)

// State is the catalog. It is not safe for concurrent use; readers take a View.
type State struct {
	wall    fsm.Wall
	lease   fsm.Lease
	epoch   uint64
	index   uint64
	view    *View
	results map[pump]result // bounded by maxPumps; order never decides an outcome
}

type pump struct {
	Node fsm.Incarnation
	Pump uint64
}

type result struct {
	Counter uint64
	At      fsm.Lease
	Outcome fsm.Outcome
}

// New returns an empty catalog.
func New() *State { return &State{view: newView(), results: map[pump]result{}} }

// View returns what the catalog holds now. It never changes; ask again after an Apply.
func (s *State) View() *View { return s.view }

// Clocks returns the stamped clocks (S-285).
func (s *State) Clocks() (wall fsm.Wall, lease fsm.Lease) { return s.wall, s.lease }

// NextDeadline returns nothing: nothing in the catalog ends by itself.
func (s *State) NextDeadline() (wall fsm.Wall, lease fsm.Lease) { return 0, 0 }

// Apply applies one entry. Index must be above the last one.
func (s *State) Apply(index uint64, e *fsm.Entry) fsm.Result {
	if index <= s.index {
		panic(fmt.Sprintf("catalog: entry %d after entry %d", index, s.index))
	}
	s.index = index
	out := fsm.Result{Outcomes: make([]fsm.Outcome, len(e.Requests))}
	epoch := e.Epoch
	if len(e.Requests) > 0 {
		if _, ok := e.Requests[0].Command.(*fsm.BecomeLeader); ok {
			epoch, s.epoch = index, index
		}
	}
	if epoch != s.epoch {
		for i := range out.Outcomes {
			out.Outcomes[i].Refusal = fsm.NotLeader
		}
		return out
	}
	s.wall = max(s.wall, e.Wall)
	s.lease = max(s.lease, e.Lease)
	for i := range e.Requests {
		out.Outcomes[i] = s.once(&e.Requests[i])
	}
	return out
}

// once answers a repeated request with the remembered outcome (A6).
func (s *State) once(q *fsm.Request) fsm.Outcome {
	if q.ID.IsZero() {
		return s.apply(q.Command)
	}
	key := pump{q.ID.Node, q.ID.Pump}
	if r, ok := s.results[key]; ok && q.ID.Counter <= r.Counter {
		if q.ID.Counter < r.Counter { // a copy that was under way when the pump had its answer already
			return refuse(fsm.InvalidArgument, "a later request of the pump was answered")
		}
		o := r.Outcome
		o.Repeated = true
		return o
	}
	o := s.apply(q.Command)
	s.forget()
	s.results[key] = result{Counter: q.ID.Counter, At: s.lease, Outcome: o}
	return o
}

// forget drops results older than ten minutes, and the oldest of all when there are too many.
func (s *State) forget() {
	if len(s.results) < maxPumps {
		return
	}
	var oldest pump
	first := true
	for k, r := range s.results { // order-free: deletes by age, and picks a unique minimum
		if s.lease-r.At > resultLifetime {
			delete(s.results, k)
		} else if o := s.results[oldest]; first || older(k, r, oldest, o) {
			oldest, first = k, false
		}
	}
	if len(s.results) >= maxPumps {
		delete(s.results, oldest)
	}
}

func older(ak pump, a result, bk pump, b result) bool {
	if c := cmp.Compare(a.At, b.At); c != 0 {
		return c < 0
	}
	if c := cmp.Compare(ak.Node, bk.Node); c != 0 {
		return c < 0
	}
	return ak.Pump < bk.Pump
}

func (s *State) apply(c fsm.Command) fsm.Outcome {
	switch c := c.(type) {
	case *fsm.BecomeLeader, *fsm.Barrier, *fsm.Tick:
		return fsm.Outcome{}
	case *fsm.DropPumps:
		for _, p := range c.Pumps {
			delete(s.results, pump{c.Node, p})
		}
		return fsm.Outcome{}
	case *fsm.Change:
		return s.change(c.Data)
	}
	return refuse(fsm.InvalidOperation, "the catalog takes catalog changes only")
}

func (s *State) change(data []byte) fsm.Outcome {
	var c Change
	if len(data) > maxChangeBytes {
		return refuse(fsm.InvalidArgument, "catalog change exceeds 1 MiB")
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return refuse(fsm.InvalidArgument, "catalog change: %v", err)
	}
	switch {
	case c.Create != nil:
		return s.create(*c.Create, c.Limits.filled())
	case c.Restore != nil:
		return s.restore(*c.Restore, c.Limits.filled())
	case c.Update != nil:
		return s.update(*c.Update, c.Seen)
	case c.Rehome != nil:
		return s.rehome(*c.Rehome)
	case c.Rehomed != nil:
		return s.rehomed(*c.Rehomed)
	case c.Delete != nil:
		return s.remove(c.Delete.ID)
	case c.DeleteIfIdle != nil:
		return s.removeIdle(*c.DeleteIfIdle)
	case c.Suspend != nil:
		return s.suspend(*c.Suspend)
	case c.PutRule != nil:
		return s.putRule(*c.PutRule, c.Limits.filled())
	case c.DropRule != nil:
		return s.dropRule(*c.DropRule)
	case c.Place != nil:
		return s.place(c.Place.Groups)
	case c.Replace != nil:
		return s.replace(*c.Replace)
	case c.Node != nil:
		return s.node(*c.Node, c.Before, c.Program)
	case c.Wish != nil:
		return s.wish(*c.Wish)
	case c.Forget != nil:
		return s.forgetNode(*c.Forget)
	case c.Raise > 0:
		return s.raise(c.Raise, c.Heard)
	case c.Lost != nil:
		v := s.next()
		v.lose(c.Lost.Incarnation)
		s.view = v
		return fsm.Outcome{}
	}
	return refuse(fsm.InvalidArgument, "empty catalog change")
}

func refuse(r fsm.Refusal, format string, args ...any) fsm.Outcome {
	return fsm.Outcome{Refusal: r, Detail: fmt.Sprintf(format, args...)}
}

// next returns a view to change, one change number further.
func (s *State) next() *View {
	v := s.view.clone()
	v.version++
	return v
}

func (s *State) create(d fsm.Descriptor, limits Limits) fsm.Outcome {
	if o := s.admits(&d, &limits); o.Refusal != fsm.None {
		return o
	}
	if o := s.checkForward(&d); o.Refusal != fsm.None {
		return o
	}
	d.Restore()                      // what is new is nobody's to lift
	d.Prefixes, d.Origins = nil, nil // they are those of a restored entity, and of one that moved
	v := s.next()
	d.ID = v.nextID
	v.nextID++
	d.Version = v.version
	d.CreatedAt, d.UpdatedAt = s.wall, s.wall
	if d.Kind == fsm.Subscription {
		parent, o := s.newSubscription(&d, &limits)
		if o.Refusal != fsm.None {
			return o
		}
		d.Parent, d.Partitions, d.Partitioned = parent.ID, parent.Partitions, parent.Partitioned
		d.Prefixes = parent.Prefixes
	} else {
		d.Parent, d.Rules = 0, nil
		d.Partitions = v.shares(d.ID, d.Partitioned)
	}
	v.put(&d)
	s.view = v
	return fsm.Outcome{Data: encode(&d)}
}

// admits checks that there is a place for a new entity.
func (s *State) admits(d *fsm.Descriptor, limits *Limits) fsm.Outcome {
	switch {
	case d.Name == "" || d.Kind < fsm.Queue || d.Kind > fsm.Subscription:
		return refuse(fsm.InvalidArgument, "an entity needs a name and a kind")
	case s.view.Entity(d.Name) != nil:
		return refuse(fsm.EntityExists, "entity %q already exists", d.Name)
	case s.view.Len() >= limits.Entities:
		return refuse(fsm.QuotaExceeded, "%d entities exist, the maximum", s.view.Len())
	case s.view.groups.Len() == 0:
		return refuse(fsm.Busy, "the cluster has no partitions yet")
	}
	return fsm.Outcome{}
}

// SplitSubscription splits "topic/Subscriptions/name" at its last, case-insensitive middle.
func SplitSubscription(path string) (topic, name string, ok bool) {
	i := strings.LastIndex(strings.ToLower(path), subscriptionsInPath)
	if i <= 0 || i+len(subscriptionsInPath) >= len(path) {
		return "", "", false
	}
	return path[:i], path[i+len(subscriptionsInPath):], true
}

// subscriptionsInPath stands between a topic's name and that of its subscription, in lower case.
const subscriptionsInPath = "/subscriptions/"

func (s *State) update(d fsm.Descriptor, seen *uint64) fsm.Outcome {
	old := s.view.Entity(d.Name)
	switch {
	case old == nil:
		return refuse(fsm.EntityNotFound, "entity %q does not exist", d.Name)
	case seen != nil && *seen != old.Version:
		return refuse(fsm.Stale, "entity %q has changed meanwhile", old.Name)
	case d.Kind != old.Kind:
		return refuse(fsm.InvalidOperation, "%q is an entity of another kind", old.Name)
	case d.RequiresSession != old.RequiresSession:
		return refuse(fsm.InvalidOperation, "RequiresSession cannot be changed")
	case d.DetectDuplicates != old.DetectDuplicates:
		return refuse(fsm.InvalidOperation, "RequiresDuplicateDetection cannot be changed")
	case d.Partitioned != old.Partitioned:
		return refuse(fsm.InvalidOperation, "EnablePartitioning cannot be changed")
	}
	if o := guard(old); o.Refusal != fsm.None {
		return o
	}
	if o := s.checkForward(&d); o.Refusal != fsm.None {
		return o
	}
	d.Restore()
	v := s.next()
	d.ID, d.Name, d.Parent, d.Partitions = old.ID, old.Name, old.Parent, old.Partitions
	d.Prefixes, d.Origins = old.Prefixes, old.Origins
	d.Rules = old.Rules
	d.Version = v.version
	d.CreatedAt, d.UpdatedAt = old.CreatedAt, s.wall
	v.put(&d)
	s.view = v
	return fsm.Outcome{Data: encode(&d)}
}

// remove deletes an entity, and with a topic its subscriptions.
func (s *State) remove(id fsm.EntityID) fsm.Outcome {
	old := s.view.ByID(id)
	if old == nil {
		return refuse(fsm.EntityNotFound, "entity %d does not exist", id)
	}
	gone := []*fsm.Descriptor{old}
	if old.Kind == fsm.Topic {
		gone = append(gone, s.view.Subscriptions(id, 0, -1)...)
	}
	v := s.next()
	for _, d := range gone { // made anew it would be without the suspension
		if o := guard(d); o.Refusal != fsm.None {
			return o
		}
		v.drop(d)
	}
	s.view = v
	return fsm.Outcome{Data: encode(old)}
}

func (s *State) place(groups []Group) fsm.Outcome {
	v := s.next()
	for _, g := range groups {
		if err := checkGroup(g); err != "" {
			return refuse(fsm.InvalidArgument, "partition %d: %s", g.ID, err)
		}
		if _, exists := v.groups.Get(g.ID); !exists {
			members := slices.Clone(g.Members)
			v.groups.Set(g.ID, Group{ID: g.ID, Members: members, Founders: members})
		}
	}
	s.view = v
	return fsm.Outcome{}
}

func (s *State) replace(g Exchange) fsm.Outcome {
	if err := checkGroup(Group{ID: g.ID, Members: g.Members}); err != "" {
		return refuse(fsm.InvalidArgument, "partition %d: %s", g.ID, err)
	}
	v := s.next()
	old, exists := v.groups.Get(g.ID)
	switch {
	case !exists:
		return refuse(fsm.EntityNotFound, "partition %d does not exist", g.ID)
	case !slices.Equal(g.From, old.Members):
		return refuse(fsm.InvalidOperation, "members of partition %d have changed meanwhile", g.ID)
	}
	epoch := old.Epoch
	if g.Epoch != nil {
		if o := s.fence(&g, epoch); o.Refusal != fsm.None {
			return o
		}
		epoch++
	}
	v.groups.Set(g.ID, Group{ID: g.ID, Members: slices.Clone(g.Members), Founders: old.Founders, Epoch: epoch})
	s.view = v
	return fsm.Outcome{}
}

func checkGroup(g Group) string {
	switch {
	case g.ID == fsm.CatalogPartition || g.ID >= maxPartitionIDs:
		return "ids are 1 to 32767"
	case len(g.Members) == 0:
		return "no members"
	}
	seen := slices.Clone(g.Members)
	slices.Sort(seen)
	if len(slices.Compact(seen)) != len(g.Members) {
		return "a node is named twice"
	}
	return ""
}

func (s *State) node(n Node, before *fsm.Incarnation, program fsm.Version) fsm.Outcome {
	if n.ID == "" || n.Incarnation == 0 {
		return refuse(fsm.InvalidArgument, "a node needs an id and an incarnation")
	}
	if o := s.admitProgram(&n, program); o.Refusal != fsm.None {
		return o
	}
	if len(n.Zone) > maxZoneBytes {
		return refuse(fsm.InvalidArgument, "a zone of %d bytes, at most %d", len(n.Zone), maxZoneBytes)
	}
	if s.view.IsRemoved(n.ID) {
		return refuse(fsm.Unauthorized, "node %s was removed from the cluster: delete its data directory, and it joins "+
			"as a new one", n.ID)
	}
	if s.view.IsLost(n.Incarnation) {
		return refuse(fsm.NodeExpired, "this life of node %s was declared lost", n.ID)
	}
	old, known := s.view.nodes.Get(n.ID)
	n.Wish, n.Since = old.Wish, old.Since
	if known && old == n {
		return fsm.Outcome{}
	}
	if before != nil && *before != old.Incarnation && n.Incarnation != old.Incarnation {
		return refuse(fsm.Stale, "node %s has had another life meanwhile", n.ID)
	}
	v := s.next()
	if known && old.Incarnation != n.Incarnation {
		v.lose(old.Incarnation)
	}
	v.nodes.Set(n.ID, n)
	s.view = v
	return fsm.Outcome{}
}

// Query answers an fsm.Ask.
func (s *State) Query(q fsm.QueryRequest) fsm.Answer {
	ask, ok := q.Query.(*fsm.Ask)
	if !ok {
		return fsm.Answer{Refusal: fsm.InvalidOperation, Detail: "the catalog answers catalog questions only"}
	}
	var question Question
	if err := json.Unmarshal(ask.Data, &question); err != nil {
		return fsm.Answer{Refusal: fsm.InvalidArgument, Detail: err.Error()}
	}
	d := s.view.ByID(question.ID)
	if question.Name != "" {
		d = s.view.Entity(question.Name)
	}
	if d == nil {
		return fsm.Answer{Refusal: fsm.EntityNotFound}
	}
	return fsm.Answer{Data: encode(d)}
}
