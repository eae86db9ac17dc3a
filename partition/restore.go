package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// A restore makes the entities of a backup, suspended, and has every share of them take its content from the images of
// the backup. A share moves by its prefix: the image of partition 5 fills whichever partition has got the share that was
// in partition 5. Messages in transit stay in transit under their numbers, and the tables of origins come along under
// the new ids. So the forwarders end what their destinations had decided, and move the rest, as after a failover.

// BackedUpEntities is the part of a backup that describes entities.
type BackedUpEntities struct {
	Format   int               `json:"format"`
	Cluster  string            `json:"cluster,omitempty"`
	Entities []*fsm.Descriptor `json:"entities"`
}

// FormatOfEntities is the form of BackedUpEntities that this program reads and writes.
const FormatOfEntities = 1

// RestoreOptions say what of a backup is restored.
type RestoreOptions struct {
	Entity string // restore this queue or topic alone, into a cluster that may have others
	As     string // under this name
	DryRun bool   // make nothing
}

// Restoring is a restore under way.
type Restoring struct {
	Entities   []*fsm.Descriptor // as they were made
	Partitions []fsm.PartitionID // whose images are wanted
	olds       []*fsm.Descriptor // parallel to Entities
	alone      bool              // one entity: moves are not taken up, they are made anew
	elsewhere  map[fsm.EntityID]fsm.EntityID
}

// Errors of a restore that the cluster does not allow.
var (
	// ErrNotEmpty says that the cluster has what the restore would make.
	ErrNotEmpty = errors.New("the cluster is not empty")
	// ErrNoFit says that the backup cannot be restored as it is asked for.
	ErrNoFit = errors.New("the backup does not fit")
)

// undoTimeout bounds the deletion of what a restore made that could not begin.
const undoTimeout = time.Minute

// BeginRestore makes the entities of a backup, suspended, and turns their shares into ones that are restored. After an error
// it deletes what it has made, so that the same restore may begin anew.
func (d *Directory) BeginRestore(ctx context.Context, from BackedUpEntities, o RestoreOptions) (*Restoring, error) {
	if err := d.catchUp(ctx); err != nil {
		return nil, err
	}
	v := d.View()
	if v.ClusterVersion() < fsm.VersionBackups {
		return nil, fmt.Errorf("%w: %w", ErrOldNodes, fsm.ErrUnavailable)
	}
	r, err := planRestore(from, o, v)
	if err != nil || o.DryRun {
		return r, err
	}
	if n, err := d.makeRestored(ctx, r); err != nil {
		var refused *fsm.RefusedError
		if left := d.undoRestore(ctx, r, n, !errors.As(err, &refused)); left != nil {
			err = fmt.Errorf("%w; what was made of the restore is left suspended: resume and delete it before another attempt: %w", err, left)
		}
		return nil, err
	}
	return r, nil
}

// makeRestored makes the entities, and returns how many it has made.
func (d *Directory) makeRestored(ctx context.Context, r *Restoring) (n int, err error) {
	for i, e := range r.Entities {
		made, err := d.change(ctx, &catalog.Change{Restore: e, Limits: d.limits()})
		if err != nil {
			return i, fmt.Errorf("make %q: %w", e.Name, err)
		}
		r.Entities[i] = made
		if err := d.announce(ctx, &fsm.PutEntity{Descriptor: *made}, made); err != nil {
			return i + 1, fmt.Errorf("make %q: %w", e.Name, err)
		}
	}
	for i, e := range r.Entities {
		for share := range e.Partitions {
			// The counters come with the image: a share that is being restored takes nothing else.
			if err := d.putBack(ctx, r, i, share, &fsm.Restore{Step: fsm.RestoreBegin}); err != nil {
				return len(r.Entities), err
			}
		}
	}
	return len(r.Entities), nil
}

// undoRestore deletes the first n entities of a restore. With doubt the next one may be there, too. The catalog knows it by its
// status, and by a creation that is as old as in the backup.
func (d *Directory) undoRestore(ctx context.Context, r *Restoring, n int, doubt bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	var all error
	for i, e := range r.Entities {
		if i > n || i == n && !doubt {
			break
		}
		there, err := d.Get(ctx, e.Name)
		switch {
		case errors.Is(err, fsm.ErrNoEntity): // also a subscription that went with its topic
			continue
		case err != nil:
		case i < n && there.ID != e.ID, i == n && (!there.Suspended || there.CreatedAt != e.CreatedAt):
			continue // of another user
		default:
			err = d.undoEntity(ctx, there)
		}
		if err != nil && !errors.Is(err, fsm.ErrNoEntity) {
			all = errors.Join(all, fmt.Errorf("delete %q: %w", e.Name, err))
		}
	}
	return all
}

// undoEntity deletes an entity that a restore has made. A suspended entity cannot be deleted. So its shares are first turned into
// ones that are restored, which no client can use, and then it is resumed.
func (d *Directory) undoEntity(ctx context.Context, e *fsm.Descriptor) error {
	for _, p := range e.Partitions {
		if err := d.putBackInto(ctx, p, e.ID, &fsm.Restore{Step: fsm.RestoreBegin}); err != nil {
			return err
		}
	}
	if _, err := d.Suspend(ctx, e.ID, fsm.Active); err != nil {
		return err
	}
	return d.Delete(ctx, e.Name)
}

// planRestore decides what is made.
func planRestore(from BackedUpEntities, o RestoreOptions, v *catalog.View) (*Restoring, error) {
	if from.Format != FormatOfEntities {
		return nil, fmt.Errorf("%w: its entities are of format %d, this program reads %d", ErrNoFit, from.Format, FormatOfEntities)
	}
	r := &Restoring{alone: o.Entity != "", elsewhere: map[fsm.EntityID]fsm.EntityID{}}
	for i, e := range from.Entities {
		if e == nil || !e.PrefixesFit() {
			return nil, fmt.Errorf("%w: entity %d of its catalog is none that a backup has", ErrNoFit, i)
		}
		if !r.alone || takes(e, o.Entity) {
			r.olds = append(r.olds, e)
		} else if there := v.Entity(e.Name); there != nil {
			r.elsewhere[e.ID] = there.ID
		}
	}
	switch {
	case r.alone && len(r.olds) == 0:
		return nil, fmt.Errorf("%w: it has no queue or topic %q: %w", ErrNoFit, o.Entity, fsm.ErrNoEntity)
	case !r.alone && o.As != "":
		return nil, fmt.Errorf("%w: another name is for one entity", ErrNoFit)
	case !r.alone && v.Len() > 0:
		return nil, fmt.Errorf("%w: it has %s", ErrNotEmpty, someNames(v))
	}
	slices.SortStableFunc(r.olds, func(a, b *fsm.Descriptor) int { return int(a.Kind) - int(b.Kind) })
	for _, e := range r.olds {
		made := *e
		if o.As != "" {
			made.Name = renamed(e, o.As)
		}
		made.Prefixes, made.Origins = nil, nil
		for share := range e.Partitions {
			if e.Partitioned {
				made.Prefixes = append(made.Prefixes, e.Prefix(share))
			}
			if !slices.Contains(r.Partitions, e.Partitions[share]) {
				r.Partitions = append(r.Partitions, e.Partitions[share])
			}
		}
		if n := v.GroupCount(); e.Partitioned && len(e.Partitions) > n {
			return nil, fmt.Errorf("%w: %q has %d shares, and the cluster has %d partitions: it needs %d", ErrNoFit, e.Name,
				len(e.Partitions), n, len(e.Partitions))
		}
		if v.Entity(made.Name) != nil {
			return nil, fmt.Errorf("%w: it has %q", ErrNotEmpty, made.Name)
		}
		r.Entities = append(r.Entities, &made)
	}
	slices.Sort(r.Partitions)
	return r, nil
}

// takes reports whether an entity is the one that is asked for, or a subscription of it.
func takes(e *fsm.Descriptor, name string) bool {
	if strings.EqualFold(e.Name, name) {
		return e.Kind != fsm.Subscription
	}
	topic, _, ok := catalog.SplitSubscription(e.Name)
	return ok && e.Kind == fsm.Subscription && strings.EqualFold(topic, name)
}

// renamed is the name of an entity, or of a subscription of it, when the entity has another one.
func renamed(e *fsm.Descriptor, as string) string {
	if topic, _, ok := catalog.SplitSubscription(e.Name); ok && e.Kind == fsm.Subscription {
		return as + e.Name[len(topic):]
	}
	return as
}

// someNames names what is in a cluster.
func someNames(v *catalog.View) string {
	var names []string
	for _, e := range described(v) {
		if len(names) == 5 {
			return strings.Join(names, ", ") + fmt.Sprintf(" and %d more", v.Len()-5)
		}
		names = append(names, fmt.Sprintf("%q", e.Name))
	}
	return strings.Join(names, ", ")
}

// putBack has one share of an entity do a step.
func (d *Directory) putBack(ctx context.Context, r *Restoring, entity, share int, c *fsm.Restore) error {
	e := r.Entities[entity]
	if err := d.putBackInto(ctx, e.Partitions[share], e.ID, c); err != nil {
		return fmt.Errorf("restore %q, share %d in partition %d: %w", e.Name, share, e.Partitions[share], err)
	}
	return nil
}

// restorePause is the pause before a step that was refused for the moment is tried again.
const restorePause = 50 * time.Millisecond

// putBackInto proposes until the share has done it, whoever leads. A command of a restore may be repeated.
func (d *Directory) putBackInto(ctx context.Context, p fsm.PartitionID, id fsm.EntityID, c fsm.Command) error {
	for {
		o, err := d.send.propose(ctx, p, fsm.Request{Entity: id, Command: c}, &attempts{}, nil)
		switch {
		case err != nil:
			return err
		case o.Refusal == fsm.None:
			return nil
		case o.Refusal != fsm.Stale && o.Refusal != fsm.NotLeader && o.Refusal != fsm.Busy:
			return &fsm.RefusedError{Refusal: o.Refusal, Detail: o.Detail}
		}
		if _, err := d.askID(ctx, id); err != nil { // it was deleted meanwhile
			return err
		}
		if err := sleep(ctx, restorePause); err != nil {
			return err
		}
	}
}

// Progress tells how much of a share is restored.
type Progress struct {
	Share    string `json:"share"`
	Restored uint64 `json:"restored"` // messages and records
	Total    uint64 `json:"total"`
}

// RestoreImage restores what the image of one partition has of the entities. It may be repeated from the start.
func (d *Directory) RestoreImage(ctx context.Context, r *Restoring, p fsm.PartitionID, from io.Reader, bodies BodyReader,
	tell func(Progress)) error {
	s, _, err := loadImage(from)
	if err != nil {
		return err
	}
	if s.ID() != p {
		return fmt.Errorf("%w: it is the image of partition %d, not of %d", ErrNoFit, s.ID(), p)
	}
	f := &filler{d: d, r: r, s: s, tell: tell, pages: map[fsm.EntityID]*page{}}
	f.plan()
	return f.fill(ctx, from, bodies)
}

// FinishRestore makes all shares ordinary ones, and the entities what their users left them. It may be repeated.
func (d *Directory) FinishRestore(ctx context.Context, r *Restoring) error {
	for i, e := range r.Entities {
		status := fsm.Active
		if r.olds[i].Suspended {
			status = r.olds[i].Status
		}
		made, err := d.Suspend(ctx, e.ID, status)
		if err != nil {
			return err
		}
		r.Entities[i] = made
	}
	// Subscriptions before their topics, and destinations before forwards: a share that is still being restored lets
	// whatever is sent to it wait.
	for i := len(r.Entities) - 1; i >= 0; i-- {
		for share := range r.Entities[i].Partitions {
			if err := d.putBack(ctx, r, i, share, &fsm.Restore{Step: fsm.RestoreEnd}); err != nil {
				return err
			}
		}
	}
	return nil
}
