package partition

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// A backup is one image of each partition. All are captured while one hold keeps every forward of every partition
// from making progress, so they fit together (docs/decisions/0062-backup-and-restore.md).

const (
	// backupTries is how often a backup is begun anew because its hold was over too early.
	backupTries = 3
	// holdTimeout bounds the time until all partitions hold, and captureTimeout that of all captures. Together they are
	// shorter than a hold lasts.
	holdTimeout    = 10 * time.Second
	captureTimeout = 10 * time.Second
	// releaseTimeout bounds the end of a hold. A partition that does not hear of it ends the hold by itself.
	releaseTimeout = 5 * time.Second
	// otherHold is how long a backup waits for the end of another one, whose node may have died, and holdPause how often it looks.
	otherHold = time.Duration(fsm.MaxHold)*time.Millisecond + 5*time.Second
	holdPause = 500 * time.Millisecond
)

// Backup is the point of a backup: what was captured, and where it is held.
type Backup struct {
	ID         string            `json:"id"`
	Time       time.Time         `json:"time"`
	Partitions []BackedUp        `json:"partitions"`
	Entities   []*fsm.Descriptor `json:"-"`
	hold       uint64
}

// BackedUp is the image of one partition.
type BackedUp struct {
	ID    fsm.PartitionID `json:"id"`
	Index uint64          `json:"index"` // of the last entry in it, which may be one of raft without a command
	Wall  time.Time       `json:"wall"`  // stamped by the last entry with a command
	node  fsm.NodeID
}

// ErrOldNodes says that a node of the cluster does not know backups yet.
var ErrOldNodes = errors.New("the cluster version knows no backups; it does when all nodes run this release and the upgrade is finalized")

// errGrown says that an entity of the catalog may have a share of which there is no image.
var errGrown = errors.New("partitions were added meanwhile")

// errOtherHold says that another backup holds forwards.
var errOtherHold = fmt.Errorf("another backup holds forwards: %w", fsm.ErrBusy)

// CreateBackup holds forwards, captures an image of every partition on a node that has a replica, and ends the hold. The
// images are held until DropBackup, or until nobody has read them for ten minutes.
func (d *Directory) CreateBackup(ctx context.Context) (*Backup, error) {
	if err := d.catchUp(ctx); err != nil {
		return nil, err
	}
	if d.View().ClusterVersion() < fsm.VersionBackups {
		return nil, fmt.Errorf("%w: %w", ErrOldNodes, fsm.ErrUnavailable)
	}
	until := time.Now().Add(otherHold)
	var waited error
	for try := 1; ; {
		b, err := d.backUp(ctx)
		switch {
		case err == nil:
			return b, nil
		case ctx.Err() != nil:
			return nil, errors.Join(err, waited)
		case errors.Is(err, errOtherHold) && time.Now().Before(until):
			waited = errOtherHold
			_ = sleep(ctx, holdPause) // the next try tells of the end of the context
			continue
		case !errors.Is(err, replica.ErrNotHeld) && !errors.Is(err, errGrown):
			return nil, err
		case try == backupTries:
			return nil, fmt.Errorf("a backup was begun %d times in vain: %w: %w", backupTries, err, fsm.ErrUnavailable)
		}
		try++
		d.host.deps.Log.Info("a backup begins anew", "error", err)
	}
}

func (d *Directory) backUp(ctx context.Context) (*Backup, error) {
	b := &Backup{hold: rand.Uint64() | 1, Time: time.Now().UTC()}
	b.ID = strconv.FormatUint(b.hold, 16)
	for _, g := range d.View().Groups() {
		b.Partitions = append(b.Partitions, BackedUp{ID: g.ID})
	}
	if len(b.Partitions) == 0 {
		return nil, fmt.Errorf("the cluster has no partitions yet: %w", fsm.ErrUnavailable)
	}
	homes := homesOf(d.View())
	if homes == nil {
		return nil, fmt.Errorf("a queue moves to another partition: %w", fsm.ErrBusy)
	}
	defer d.endHold(ctx, b)
	if err := d.hold(ctx, b, false); err != nil {
		return nil, err
	}
	err := d.captureAll(ctx, b)
	if err == nil {
		err = d.catchUp(ctx) // behind the images: an entity that one of them has is in the catalog, unless it was deleted meanwhile
	}
	if err == nil {
		v := d.View()
		b.Entities = described(v)
		switch now := homesOf(v); {
		case v.GroupCount() != len(b.Partitions):
			err = errGrown
		case now == nil || !maps.EqualFunc(homes, now, slices.Equal):
			err = fmt.Errorf("a queue has moved to another partition meanwhile: %w", fsm.ErrBusy)
		default:
			err = d.hold(ctx, b, true)
		}
	}
	if err != nil {
		d.DropBackup(context.WithoutCancel(ctx), b)
		return nil, err
	}
	return b, nil
}

// homesOf returns the partitions of every entity that a share has moved of, nil while one moves.
func homesOf(v *catalog.View) map[fsm.EntityID][]fsm.PartitionID {
	for _, r := range v.Rehomings() {
		if r.Active() {
			return nil
		}
	}
	homes := map[fsm.EntityID][]fsm.PartitionID{}
	for _, e := range described(v) {
		if len(e.Origins) > 0 {
			homes[e.ID] = e.Partitions
		}
	}
	return homes
}

// described lists all entities: topics before their subscriptions.
func described(v *catalog.View) []*fsm.Descriptor {
	return slices.Concat(v.List(fsm.Queue, 0, -1), v.List(fsm.Topic, 0, -1), v.List(fsm.Subscription, 0, -1))
}

// eachPartition calls f for all partitions of a backup at once.
func (b *Backup) eachPartition(ctx context.Context, limit time.Duration, f func(context.Context, *BackedUp) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	errs := make([]error, len(b.Partitions))
	var wg sync.WaitGroup
	for i := range b.Partitions {
		wg.Go(func() {
			if err := f(ctx, &b.Partitions[i]); err != nil {
				errs[i] = fmt.Errorf("partition %d: %w", b.Partitions[i].ID, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// hold has every partition hold forwards. With renew it fails where the hold is not in force any more.
func (d *Directory) hold(ctx context.Context, b *Backup, renew bool) error {
	c := &fsm.HoldForwards{Hold: b.hold, For: fsm.MaxHold, Renew: renew}
	return b.eachPartition(ctx, holdTimeout, func(ctx context.Context, p *BackedUp) error {
		o, err := d.send.propose(ctx, p.ID, fsm.Request{Command: c}, &attempts{}, nil)
		switch {
		case err != nil:
			return err
		case renew && o.Refusal == fsm.InvalidOperation:
			return replica.ErrNotHeld
		case o.Refusal == fsm.Busy:
			return errOtherHold
		case o.Refusal != fsm.None:
			return &fsm.RefusedError{Refusal: o.Refusal, Detail: o.Detail}
		}
		return nil
	})
}

// endHold lets forwards go on.
func (d *Directory) endHold(ctx context.Context, b *Backup) {
	err := b.eachPartition(context.WithoutCancel(ctx), releaseTimeout, func(ctx context.Context, p *BackedUp) error {
		c := &fsm.HoldForwards{Hold: b.hold}
		_, err := d.send.propose(ctx, p.ID, fsm.Request{Command: c}, &attempts{}, nil)
		return err
	})
	if err != nil {
		d.host.deps.Log.Info("a hold of forwards ends by itself", "error", err)
	}
}

// captureAll has one node capture each partition: this one if it has a replica.
func (d *Directory) captureAll(ctx context.Context, b *Backup) error {
	return b.eachPartition(ctx, captureTimeout, func(ctx context.Context, p *BackedUp) error {
		nodes := slices.Clone(d.membersOf(p.ID))
		slices.SortStableFunc(nodes, func(x, y fsm.NodeID) int {
			self := d.host.Node()
			return boolOrder(x == self, y == self)
		})
		var all error
		for _, n := range nodes {
			err := d.captureAt(ctx, b, p, n)
			if err == nil {
				return nil
			}
			all = errors.Join(all, fmt.Errorf("node %s: %w", n, err))
		}
		return errors.Join(all, fsm.ErrUnavailable)
	})
}

// boolOrder puts what is true first.
func boolOrder(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

func (d *Directory) captureAt(ctx context.Context, b *Backup, p *BackedUp, n fsm.NodeID) error {
	content := binary.BigEndian.AppendUint64(verbHead(p.ID, 8), b.hold)
	text, err := d.host.deps.Caller.Call(ctx, n, KindCapture, content)
	if err == nil {
		text, err = openResult(text)
	}
	if err != nil {
		return err
	}
	var at pointOf
	if err := json.Unmarshal(text, &at); err != nil {
		return fmt.Errorf("%w: point of an image: %w", fsm.ErrFormat, err)
	}
	p.node, p.Index, p.Wall = n, at.Index, time.UnixMilli(int64(at.Wall)).UTC()
	return nil
}

// WriteImage writes the image of a partition of a backup, with its bodies.
func (d *Directory) WriteImage(ctx context.Context, b *Backup, id fsm.PartitionID, w io.Writer) error {
	i := slices.IndexFunc(b.Partitions, func(p BackedUp) bool { return p.ID == id })
	if i < 0 {
		return fmt.Errorf("partition %d is not in the backup: %w", id, fsm.ErrNoEntity)
	}
	var kept time.Time
	for n := uint64(0); ; n++ {
		if time.Since(kept) > captureLife/4 {
			d.keepImages(ctx, b)
			kept = time.Now()
		}
		chunk, err := d.readImage(ctx, b, &b.Partitions[i], n)
		if err != nil {
			return fmt.Errorf("image of partition %d at node %s: %w", id, b.Partitions[i].node, err)
		}
		if len(chunk) == 0 {
			return nil
		}
		if _, err := w.Write(chunk); err != nil {
			return err
		}
	}
}

// readImage asks for a chunk of an image.
func (d *Directory) readImage(ctx context.Context, b *Backup, p *BackedUp, n uint64) ([]byte, error) {
	content := binary.BigEndian.AppendUint64(verbHead(p.ID, 16), b.hold)
	chunk, err := d.host.deps.Caller.Call(ctx, p.node, KindReadImage, binary.BigEndian.AppendUint64(content, n))
	if err == nil {
		chunk, err = openResult(chunk)
	}
	return chunk, err
}

// keepImages keeps all images of a backup of which one is read: the others have their turn later (S-368). A lost one is missed
// when it is read.
func (d *Directory) keepImages(ctx context.Context, b *Backup) {
	_ = b.eachPartition(ctx, releaseTimeout, func(ctx context.Context, p *BackedUp) error {
		_, err := d.readImage(ctx, b, p, noChunk)
		return err
	})
}

// DropBackup gives the images of a backup up, wherever they are held. A node that does not hear of it does so by itself.
func (d *Directory) DropBackup(ctx context.Context, b *Backup) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	nodes := map[fsm.NodeID]bool{d.host.Node(): true}
	for _, n := range d.membersOf(fsm.CatalogPartition) {
		nodes[n] = true
	}
	var wg sync.WaitGroup
	for n := range nodes { // order-free: each is told once
		wg.Go(func() {
			content := binary.BigEndian.AppendUint64(nil, b.hold)
			if _, err := d.host.deps.Caller.Call(ctx, n, KindDropImages, content); err != nil {
				d.host.deps.Log.Debug("a node keeps images of a backup for a while", "peer", n, "error", err)
			}
		})
	}
	wg.Wait()
}
