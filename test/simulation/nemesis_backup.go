package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/test/check"
	"github.com/busbar-mq/busbar/test/ledger"
)

const (
	// takeLimit bounds a backup beside other faults, with all its tries. restoreLimit bounds a restore, which no fault is about.
	takeLimit    = 90 * time.Second
	restoreLimit = 2 * time.Minute
	// takePause is the pause before a backup that was refused is asked for once more.
	takePause = 2 * time.Second
	// mostBackups bounds the backups of a run: each restore is a cluster of its own.
	mostBackups = 3
)

// backup has an operator take a backup beside other faults. It is restored into a second cluster of another size, and judged
// there.
func (n *nemesis) backup(m *machine) func() {
	w := n.w
	if n.backups >= mostBackups || w.version() < fsm.VersionBackups {
		return nil
	}
	n.backups++
	b := &copying{w: w, number: n.backups, seed: n.rng.Uint64(), nodes: 1 + 2*n.rng.IntN(2), more: n.rng.IntN(3)}
	w.do(func() { b.run(m) })
	return func() {}
}

// copying is one backup, and its restore.
type copying struct {
	w           *world
	number      int
	seed        uint64
	nodes, more int // of the second cluster: nodes, and partitions beyond those of the first
	entities    partition.BackedUpEntities
	images      map[fsm.PartitionID][]byte
	began       int64 // when the backup was asked for that succeeded
	ended       int64 // when its last image was captured
}

// run takes the backup and restores it.
func (b *copying) run(m *machine) {
	w := b.w
	if err := b.take(m); err != nil {
		w.event("backup %d was not taken: %v", b.number, err)
		w.c.add("backups that were not taken", 1)
		return
	}
	w.event("backup %d was taken within %v", b.number, time.Duration(b.ended-b.began))
	w.c.add(backupsTaken, 1)
	faults, err := b.restored()
	if err != nil {
		w.spoil("I32", fmt.Errorf("backup %d was not restored: %w", b.number, err))
	}
	for i, text := range faults {
		if i == 10 {
			break // the first ones say it all
		}
		w.spoil("I32", fmt.Errorf("backup %d, taken from %d to %d: %s", b.number, b.began, b.ended, text))
	}
}

// take asks one node after the other until a backup is whole.
func (b *copying) take(m *machine) error {
	last := errors.New("no node runs")
	ctx, cancel := context.WithTimeout(context.Background(), takeLimit)
	defer cancel()
	for ctx.Err() == nil {
		if x := m.node; x != nil {
			err := b.through(ctx, x)
			if err == nil {
				return nil
			}
			last = fmt.Errorf("%s: %w", m.id, err)
		}
		there := b.w.there()
		m = there[(slices.Index(there, m)+1)%len(there)]
		time.Sleep(takePause)
	}
	return last
}

// through takes a backup through one node.
func (b *copying) through(ctx context.Context, x *node) error {
	b.began = time.Now().UnixNano()
	made, err := x.directory.CreateBackup(ctx)
	if err != nil {
		return err
	}
	b.ended = time.Now().UnixNano()
	defer x.directory.DropBackup(context.WithoutCancel(ctx), made)
	text, err := json.Marshal(partition.BackedUpEntities{Format: partition.FormatOfEntities, Entities: made.Entities})
	if err != nil {
		return err
	}
	b.entities, b.images = partition.BackedUpEntities{}, map[fsm.PartitionID][]byte{}
	if err := json.Unmarshal(text, &b.entities); err != nil {
		return err
	}
	for _, p := range made.Partitions {
		var image bytes.Buffer
		if err := x.directory.WriteImage(ctx, made, p.ID, &image); err != nil {
			return err
		}
		report, err := partition.CheckImage(bytes.NewReader(image.Bytes()), storage.EachBody)
		if err != nil || report.Index != p.Index || report.Partition != p.ID {
			b.w.spoil("I32", fmt.Errorf("the image of partition %d at entry %d is damaged: %+v, %w", p.ID, p.Index, report, err))
		}
		b.images[p.ID] = image.Bytes()
	}
	return nil
}

// restored restores the backup into a cluster of its own, and compares that with what clients did.
func (b *copying) restored() (faults []string, err error) {
	w := b.w
	cfg := Config{
		Seed: b.seed, Nodes: b.nodes, MaxNodes: b.nodes, Replicas: min(b.nodes, w.cfg.Replicas), Partitions: w.cfg.Partitions + b.more,
		BodySegmentBytes: w.cfg.BodySegmentBytes, ProposeTimeout: w.cfg.ProposeTimeout, Sessions: 1,
		Delay: 2 * time.Millisecond, SyncTime: time.Millisecond, Dir: filepath.Join(w.cfg.Dir, fmt.Sprintf("copy-%d", b.number)),
		Log: io.Discard, partition: partition.Defaults(),
	}
	second, err := newWorldOf(cfg, nil)
	if second != nil {
		defer second.close()
	}
	if err != nil {
		return nil, err
	}
	second.calmNetwork()
	second.queues = w.queues
	d := second.machines()[0].node.directory
	if err := within(restoreLimit, func(context.Context) error {
		v := d.View()
		if v == nil || v.GroupCount() < cfg.Partitions || v.ClusterVersion() < fsm.NewestVersion {
			return errors.New("the second cluster does not come up")
		}
		return nil
	}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), restoreLimit)
	defer cancel()
	r, err := d.BeginRestore(ctx, b.entities, partition.RestoreOptions{})
	if err != nil {
		return nil, err
	}
	for _, p := range r.Partitions {
		err := d.RestoreImage(ctx, r, p, bytes.NewReader(b.images[p]), storage.EachBody, func(partition.Progress) {})
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", p, err)
		}
	}
	if err := d.FinishRestore(ctx, r); err != nil {
		return nil, err
	}
	found, err := second.found()
	if err != nil {
		return nil, err
	}
	lives := check.LivesOf(w.rec.Copy(), b.began)
	if w.cfg.relays() {
		moved, err := second.relayed()
		if err != nil {
			return nil, err
		}
		found = append(found, moved...)
		maps.Copy(lives, w.relays.until(b.began))
	}
	w.event("backup %d has %d of %d messages", b.number, len(found), len(lives))
	w.c.add(messagesRestored, len(found))
	return ledger.JudgeCopy(b.began, b.ended, lives, found), nil
}

// found lists what is in all queues of a cluster without clients. A scheduled message takes a new number when its time comes.
// One look may therefore see it twice, under its old number and under its new one behind that. Such a look is repeated.
func (w *world) found() (all []ledger.Found, err error) {
	const looks = 4
	for range looks {
		there, err := w.places()
		if err != nil {
			return nil, err
		}
		all = check.FoundIn(there)
		if !slices.ContainsFunc(all, twiceIn(all)) {
			break
		}
		time.Sleep(time.Second)
	}
	return all, nil
}

// twiceIn reports of a name whether it was found under more than one number.
func twiceIn(all []ledger.Found) func(ledger.Found) bool {
	times := map[ledger.Name]int{}
	for _, f := range all {
		times[f.Name]++
	}
	return func(f ledger.Found) bool { return times[f.Name] > 1 }
}
