package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// replicasDir holds one small file per group, beside the groups. It tells what must be known of a group when its
// directory is lost, or replaced by an old copy of itself.
const (
	replicasDir = "replicas"
	openedFile  = "opened.json"
)

// Errors of a group's directory, for callers who branch. The replica has to be rebuilt from its
// peers; to open it as it is, or empty, could take back what it has acknowledged (R8).
var (
	// ErrLost says that a group was here and is not any more.
	ErrLost = errors.New("data of the group is missing")
	// ErrOld says that the data is an old copy of what was here.
	ErrOld = errors.New("data of the group is an old copy")
	// ErrQuarantined says that the data must not be used, for a reason that was noted.
	ErrQuarantined = errors.New("data of the group is quarantined")
	// ErrRebuilt says that a group was rebuilt since it left its peers.
	ErrRebuilt = errors.New("group was rebuilt before")
)

// Steps of a replica's life here.
const (
	replicaPresent = "present" // its directory exists, or existed
	replicaDropped = "dropped" // its directory is to be deleted, whatever is in it
	replicaEmpty   = "empty"   // it was deleted; the next open makes an empty one
)

// replicaRecord is the content of replicas/<n>.json.
type replicaRecord struct {
	State string `json:"state"`
	// Opens counts the opens of the group's directory, which has the same count in opened.json. An
	// old copy that is put back has a lower one.
	Opens uint64 `json:"opens"`
	// Removed is the index at which the replica had left its peers' configuration when it was last
	// rebuilt; 0 if it is as it was founded.
	Removed uint64 `json:"removed"`
	// Distrust is why the data must not be used, empty if it may.
	Distrust string `json:"distrust,omitempty"`
}

// openedText is the content of opened.json.
type openedText struct {
	Opens   uint64 `json:"opens"`
	Removed uint64 `json:"removed"`
}

func (d *Dir) recordFile(id uint16) string {
	return filepath.Join(d.cfg.Dir, replicasDir, fmt.Sprintf("%05d.json", id))
}

// record reads what is known of a group; known is false if it was never here.
func (d *Dir) record(id uint16) (rec replicaRecord, known bool, err error) {
	known, err = readJSON(d.fsys, d.recordFile(id), &rec)
	if err == nil && known && rec.State != replicaPresent && rec.State != replicaDropped &&
		rec.State != replicaEmpty {
		err = fmt.Errorf("read %s: %w: state %q", d.recordFile(id), ErrCorrupt, rec.State)
	}
	return rec, known, err
}

// readJSON reads a small file of JSON; ok is false if there is none.
func readJSON(fsys FS, name string, into any) (ok bool, err error) {
	text, err := readSmall(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("read %s: %w: %w", name, ErrCorrupt, err)
	}
	return true, nil
}

func writeJSON(fsys FS, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeSmall(fsys, name, text)
}

// admit decides whether a group may be opened, and notes the open. It writes the note first in the group's directory,
// then beside it. So only the second can lag behind, and by one.
func (d *Dir) admit(id uint16) (replicaRecord, error) {
	dir := d.groupDir(id)
	rec, known, err := d.record(id)
	if err != nil {
		return rec, err
	}
	if known && rec.State == replicaDropped {
		if err := d.finishRebuild(id, &rec); err != nil {
			return rec, err
		}
	}
	_, err = d.fsys.ReadDir(dir)
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return rec, err
	}
	var own openedText
	if exists {
		_, err := readJSON(d.fsys, filepath.Join(dir, openedFile), &own)
		if err != nil {
			return rec, err
		}
	}
	switch {
	case rec.Distrust != "":
		return rec, fmt.Errorf("%s: %w: %s", dir, ErrQuarantined, rec.Distrust)
	case rec.State == replicaPresent && !exists:
		return rec, fmt.Errorf("%s: %w", dir, ErrLost)
	case rec.State == replicaPresent && own.Opens < rec.Opens:
		return rec, fmt.Errorf("%s: %w: it was opened %d times when it was copied and %d times in all",
			dir, ErrOld, own.Opens, rec.Opens)
	case own.Opens > 0 && own.Removed != rec.Removed:
		return rec, fmt.Errorf("%s: %w: it is of before the replica was rebuilt", dir, ErrOld)
	}
	if err := makeDirs(d.fsys, dir); err != nil {
		return rec, err
	}
	rec.State, rec.Opens = replicaPresent, max(own.Opens, rec.Opens)+1
	if err := writeJSON(d.fsys, filepath.Join(dir, openedFile), openedText{rec.Opens, rec.Removed}); err != nil {
		return rec, err
	}
	return rec, writeJSON(d.fsys, d.recordFile(id), &rec)
}

// Rebuild deletes a closed group whose data is not to be trusted; the next open makes an empty one that must never
// found its group anew (Group.Rejoins). removed is the index of a committed configuration of its peers without this
// replica. A later call with the same or a lower one answers ErrRebuilt, because the replica may have joined again
// since. A crash in between leaves the group as it is, or a rebuild that the next open finishes.
func (d *Dir) Rebuild(id uint16, removed uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return ErrClosed
	case d.open[id] != nil:
		return fmt.Errorf("rebuild group %d: %w", id, ErrGroupOpen)
	}
	rec, _, err := d.record(id)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("rebuild group %d: %w", id, err)
	}
	if removed <= rec.Removed {
		return fmt.Errorf("rebuild group %d at %d, last at %d: %w", id, removed, rec.Removed, ErrRebuilt)
	}
	rec = replicaRecord{State: replicaDropped, Removed: removed}
	if err := writeJSON(d.fsys, d.recordFile(id), &rec); err != nil {
		return fmt.Errorf("rebuild group %d: %w", id, err)
	}
	if err := d.finishRebuild(id, &rec); err != nil {
		return fmt.Errorf("rebuild group %d: %w", id, err)
	}
	return nil
}

func (d *Dir) finishRebuild(id uint16, rec *replicaRecord) error {
	if err := d.dropDir(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	rec.State = replicaEmpty
	return writeJSON(d.fsys, d.recordFile(id), rec)
}

// dropDir deletes the directory of a group at once: a crash leaves it, or what finishDrops deletes.
func (d *Dir) dropDir(id uint16) error {
	dir := d.groupDir(id)
	if err := removeTree(d.fsys, dir+droppedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.fsys.Rename(dir, dir+droppedSuffix); err != nil {
		return err
	}
	if err := d.fsys.SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	return removeTree(d.fsys, dir+droppedSuffix)
}

// Distrust marks every group that is here as one whose data must not be used, durably: none is opened again until it was
// rebuilt. A group that is open stays so; its owner must stop it.
func (d *Dir) Distrust(reason string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids, err := d.groupNames()
	if err != nil {
		return fmt.Errorf("distrust groups: %w", err)
	}
	for _, id := range ids {
		if err := d.distrust(id, reason); err != nil {
			return fmt.Errorf("distrust group %d: %w", id, err)
		}
	}
	return nil
}

// Quarantine marks one group as one whose data must not be used, durably: it is not opened again until
// it was rebuilt. If it is open it stays so; its owner must stop it.
func (d *Dir) Quarantine(id uint16, reason string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if err := d.distrust(id, reason); err != nil {
		return fmt.Errorf("quarantine group %d: %w", id, err)
	}
	return nil
}

// maxReasonBytes bounds a reason in a small file.
const maxReasonBytes = 1 << 10

func (d *Dir) distrust(id uint16, reason string) error {
	rec, _, err := d.record(id)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	rec.State, rec.Distrust = replicaPresent, reason[:min(len(reason), maxReasonBytes)]
	return writeJSON(d.fsys, d.recordFile(id), &rec)
}
