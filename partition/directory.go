package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// Directory finds and changes entities. It reads the catalog's replica here, and asks group 0 before it says that
// something does not exist. It answers a change only after every share has applied it, and every node that answers
// knows of it (A2). It implements transport.Catalog.
type Directory struct {
	host *Host
	send *sender

	mu    sync.Mutex
	slots []*slot // free ones
	last  uint64
}

// slot is a pump of this room's own (A6): one request outstanding.
type slot struct {
	pump    uint64
	counter uint64
}

// ownPumps is the first pump number of this room; those of the front end stay below.
const ownPumps = 1 << 63

// NewDirectory returns the directory of a node.
func NewDirectory(h *Host) *Directory {
	d := &Directory{host: h}
	d.send = &sender{host: h, caller: h.deps.Caller, members: d.membersOf}
	return d
}

// View returns the catalog as the replica here has it; nil if there is none. It may lag behind. It never waits: a loop of a
// connection asks it for each request.
func (d *Directory) View() *catalog.View { return d.host.catalog() }

func (h *Host) catalog() *catalog.View {
	r := h.Replica(fsm.CatalogPartition)
	if r == nil {
		return nil
	}
	return r.Catalog()
}

// Changed implements transport.Changes. It returns the version of the catalog here, 0 if there is none. Its channel
// is closed when the catalog here has applied more.
func (d *Directory) Changed() (version uint64, changed <-chan struct{}) {
	changed = d.host.CatalogChanged()
	if v := d.View(); v != nil {
		version = v.Version()
	}
	return version, changed
}

// membersOf returns the nodes that may hold replicas of a partition.
func (d *Directory) membersOf(p fsm.PartitionID) []fsm.NodeID {
	v := d.View()
	if v == nil {
		return nil
	}
	if p == fsm.CatalogPartition {
		var ids []fsm.NodeID
		for _, n := range v.Nodes() {
			ids = append(ids, n.ID)
		}
		return ids
	}
	g, _ := v.Group(p)
	return g.Members
}

// Entity implements transport.Catalog. An entity that the catalog here knows is answered at once and may be a moment
// old. Commands carry the entity's id, so an old description does no harm.
func (d *Directory) Entity(ctx context.Context, name string) (*fsm.Descriptor, error) {
	if v := d.View(); v != nil {
		if e := v.Entity(name); e != nil {
			return e, nil
		}
	}
	return d.ask(ctx, &catalog.Question{Name: name})
}

// Get returns the entity with that name as of now: whoever administers through one node sees what
// was done through another (S-304). The error wraps fsm.ErrNoEntity if there is none.
func (d *Directory) Get(ctx context.Context, name string) (*fsm.Descriptor, error) {
	return d.ask(ctx, &catalog.Question{Name: name})
}

// Some returns the entities with those names as of now, nil for each that is not there. It is linearizable as List is,
// and costs one question to the catalog however many names there are.
func (d *Directory) Some(ctx context.Context, names []string) ([]*fsm.Descriptor, error) {
	v, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]*fsm.Descriptor, len(names))
	for i, name := range names {
		all[i] = v.Entity(name)
	}
	return all, nil
}

// ByID returns the entity with that id. The error wraps fsm.ErrNoEntity if there is none as of now.
func (d *Directory) ByID(ctx context.Context, id fsm.EntityID) (*fsm.Descriptor, error) {
	if v := d.View(); v != nil {
		if e := v.ByID(id); e != nil {
			return e, nil
		}
	}
	return d.askID(ctx, id)
}

func (d *Directory) askID(ctx context.Context, id fsm.EntityID) (*fsm.Descriptor, error) {
	return d.ask(ctx, &catalog.Question{ID: id})
}

// ask asks group 0 linearizably.
func (d *Directory) ask(ctx context.Context, q *catalog.Question) (*fsm.Descriptor, error) {
	a, err := d.send.query(ctx, fsm.CatalogPartition, fsm.QueryRequest{Query: q.Query()})
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask the catalog: %w", err)
	case a.Refusal == fsm.EntityNotFound:
		return nil, fmt.Errorf("entity %q (%d): %w", q.Name, q.ID, fsm.ErrNoEntity)
	case a.Refusal != fsm.None:
		return nil, &fsm.RefusedError{Refusal: a.Refusal, Detail: a.Detail}
	}
	return catalog.DecodeDescriptor(a.Data)
}

// List returns up to top entities of a kind after the first skip of them, by name without case. It is linearizable,
// because the replica here first catches up with group 0.
func (d *Directory) List(ctx context.Context, kind fsm.EntityKind, skip, top int) (
	[]*fsm.Descriptor, error) {
	v, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	return v.List(kind, skip, top), nil
}

// current returns the catalog here after it has caught up with group 0.
func (d *Directory) current(ctx context.Context) (*catalog.View, error) {
	if err := d.catchUp(ctx); err != nil {
		return nil, err
	}
	v := d.View()
	if v == nil {
		return nil, fmt.Errorf("no catalog on this node: %w", fsm.ErrUnavailable)
	}
	return v, nil
}

// Create adds an entity; id, version, shares and times are the catalog's. Every share and every node
// that answers knows it when Create returns. If it ends with an error of the shares, the entity
// exists and the shares follow.
func (d *Directory) Create(ctx context.Context, e fsm.Descriptor) (*fsm.Descriptor, error) {
	made, err := d.change(ctx, &catalog.Change{Create: &e, Limits: d.limits()})
	if err != nil {
		return nil, fmt.Errorf("create %q: %w", e.Name, err)
	}
	return made, d.announce(ctx, &fsm.PutEntity{Descriptor: *made}, made)
}

// Update replaces the mutable properties of the entity with that name (S-261, S-262). A description with a version was made
// from that one, and is refused as Stale if the entity has another one. A cluster with an older node refuses none.
func (d *Directory) Update(ctx context.Context, e fsm.Descriptor) (*fsm.Descriptor, error) {
	c := &catalog.Change{Update: &e}
	if e.Version != 0 && d.host.ClusterVersion() >= fsm.VersionSeen {
		c.Seen = &e.Version
	}
	made, err := d.change(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("update %q: %w", e.Name, err)
	}
	return made, d.announce(ctx, &fsm.PutEntity{Descriptor: *made}, made)
}

// Suspend sets a status of an entity that its users cannot lift; Active lifts it (S-256). Only an
// operator's request may lead here.
func (d *Directory) Suspend(ctx context.Context, id fsm.EntityID, to fsm.Status) (*fsm.Descriptor, error) {
	made, err := d.change(ctx, &catalog.Change{Suspend: &catalog.Suspension{ID: id, Status: to}})
	if err != nil {
		return nil, fmt.Errorf("suspend entity %d: %w", id, err)
	}
	return made, d.announce(ctx, &fsm.PutEntity{Descriptor: *made}, made)
}

// Delete removes the entity with that name, with everything in it (S-259); a topic with its
// subscriptions.
func (d *Directory) Delete(ctx context.Context, name string) error {
	e, err := d.Get(ctx, name)
	if err != nil {
		return err
	}
	children, err := d.children(ctx, e)
	if err != nil {
		return err
	}
	if _, err := d.change(ctx, &catalog.Change{Delete: &catalog.Deletion{ID: e.ID}}); err != nil {
		return fmt.Errorf("delete %q: %w", name, err)
	}
	return d.dropShares(ctx, e, children)
}

// children returns the subscriptions of a topic, which go with it.
func (d *Directory) children(ctx context.Context, e *fsm.Descriptor) (out []*fsm.Descriptor, err error) {
	if e.Kind != fsm.Topic {
		return nil, nil
	}
	all, err := d.List(ctx, fsm.Subscription, 0, -1)
	for _, s := range all {
		if s.Parent == e.ID {
			out = append(out, s)
		}
	}
	return out, err
}

// dropShares makes every share forget an entity that the catalog has deleted.
func (d *Directory) dropShares(ctx context.Context, e *fsm.Descriptor, children []*fsm.Descriptor) error {
	return d.announce(ctx, &fsm.DropEntity{}, append([]*fsm.Descriptor{e}, children...)...)
}

// deleteIdle deletes an entity that all its shares say was idle for as long as it may be (S-257, A22). A
// change of it between the asking and the deletion keeps it.
func (d *Directory) deleteIdle(ctx context.Context, id fsm.EntityID) error {
	e, err := d.askID(ctx, id)
	if errors.Is(err, fsm.ErrNoEntity) {
		return nil
	}
	if err != nil {
		return err
	}
	if e.AutoDeleteOnIdle <= 0 || e.AutoDeleteOnIdle >= fsm.Unlimited {
		return nil
	}
	suspended := func(d *fsm.Descriptor) bool { return d.Suspended }
	if suspended(e) {
		return nil // nobody could have used it
	}
	for _, p := range e.Partitions {
		a, err := d.send.query(ctx, p, fsm.QueryRequest{Entity: id, Query: &fsm.Idle{}})
		if err != nil {
			return err
		}
		if a.Refusal != fsm.None || a.IdleFor < e.AutoDeleteOnIdle {
			return nil // in use, or not long enough: it is named again
		}
	}
	children, err := d.children(ctx, e)
	if err != nil || slices.ContainsFunc(children, suspended) {
		return err
	}
	_, err = d.change(ctx, &catalog.Change{DeleteIfIdle: &catalog.IdleDeletion{ID: id, Version: e.Version}})
	if err != nil {
		return fmt.Errorf("delete %q: %w", e.Name, err)
	}
	return d.dropShares(ctx, e, children)
}

// limits are what a change of this node is judged by, nil if they are the defaults (S-229).
func (d *Directory) limits() *catalog.Limits {
	if l := d.host.limits.Load(); *l != (catalog.Limits{}) {
		return l
	}
	return nil
}

// change commits one change of the catalog.
func (d *Directory) change(ctx context.Context, c *catalog.Change) (*fsm.Descriptor, error) {
	s := d.slot()
	defer d.free(s)
	var a attempts
	o, err := d.send.propose(ctx, fsm.CatalogPartition, fsm.Request{
		ID:      fsm.RequestID{Node: d.host.cfg.Incarnation, Pump: s.pump, Counter: s.counter},
		Command: c.Command(),
	}, &a, nil)
	switch {
	case err != nil:
		return nil, err
	case o.Refusal == fsm.EntityNotFound:
		return nil, fmt.Errorf("%w: %w", fsm.ErrNoEntity,
			&fsm.RefusedError{Refusal: o.Refusal, Detail: o.Detail})
	case o.Refusal != fsm.None:
		return nil, &fsm.RefusedError{Refusal: o.Refusal, Detail: o.Detail}
	case len(o.Data) == 0:
		return nil, nil
	}
	return catalog.DecodeDescriptor(o.Data)
}

func (d *Directory) slot() *slot {
	d.mu.Lock()
	defer d.mu.Unlock()
	var s *slot
	if n := len(d.slots); n > 0 {
		s, d.slots = d.slots[n-1], d.slots[:n-1]
	} else {
		d.last++
		s = &slot{pump: ownPumps + d.last}
	}
	s.counter++
	return s
}

func (d *Directory) free(s *slot) {
	d.mu.Lock()
	d.slots = append(d.slots, s)
	d.mu.Unlock()
}

// spread makes every share of the entity apply a command.
func (d *Directory) spread(ctx context.Context, e *fsm.Descriptor, c fsm.Command) error {
	errs := make(chan error, len(e.Partitions))
	for _, p := range e.Partitions {
		go func() {
			var a attempts
			o, err := d.send.propose(ctx, p, fsm.Request{Entity: e.ID, Command: c}, &a, nil)
			// A drop of what the share never knew has nothing to do.
			if err == nil && o.Refusal != fsm.None && o.Refusal != fsm.Stale {
				err = &fsm.RefusedError{Refusal: o.Refusal, Detail: o.Detail}
			}
			if err != nil {
				err = fmt.Errorf("partition %d: %w", p, err)
			}
			errs <- err
		}()
	}
	var all error
	for range e.Partitions {
		all = errors.Join(all, <-errs)
	}
	return all
}
