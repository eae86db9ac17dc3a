package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
)

// Names in the data directory.
const (
	lockFile      = "LOCK"
	identityFile  = "identity.json"
	onceDir       = "once"
	groupsDir     = "groups"
	droppedSuffix = ".dropped"
)

// Errors of the directory, for callers who branch.
var (
	// ErrGroupOpen says that the group is open already.
	ErrGroupOpen = errors.New("group is open")
	// ErrWritten says that a write-once file exists with other content.
	ErrWritten = errors.New("written before with other content")
)

// Dir is an open data directory. Its methods may be called concurrently.
type Dir struct {
	cfg    Config
	fsys   FS
	logger hclog.Logger
	lock   io.Closer
	nodeID string
	life   uint64

	witnessMu sync.Mutex // orders the writers of witness.json

	mu     sync.Mutex
	closed bool
	// version is the cluster version that the directory tells.
	version int
	open    map[uint16]*Group
}

// Open opens the data directory, creating it at the first start: takes the lock, compares the hard
// settings, reads the node's identity. The error may be a *LockedError or a *HardError; a missing
// or corrupt file beside existing data is never replaced.
func Open(cfg Config, logger hclog.Logger) (*Dir, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	fsys := cfg.FS
	if fsys == nil {
		fsys = osFS{}
	}
	if err := checkWhole(fsys, cfg.Dir); err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	for _, sub := range []string{"", onceDir, groupsDir, replicasDir} {
		dir := filepath.Join(cfg.Dir, sub)
		err := makeDirs(fsys, dir)
		if err == nil {
			err = fsys.SyncDir(dir) // what an earlier process has named, and was killed
		}
		if err != nil {
			return nil, fmt.Errorf("open data directory: %w", err)
		}
	}
	lock, err := fsys.Lock(filepath.Join(cfg.Dir, lockFile))
	if err != nil {
		return nil, err
	}
	d := &Dir{cfg: cfg, fsys: fsys, logger: logger, lock: lock, open: map[uint16]*Group{}}
	if err := d.load(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// checkWhole refuses a directory that knows the node and not its groups. A group whose directory and record are gone
// together looks like a new one. It would be founded and vote again with nothing (R8).
func checkWhole(fsys FS, dir string) error {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	known := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	if known(lifeFile) && !known(replicasDir) { // older directories have neither
		return fmt.Errorf("%s: %w: missing, but the node lived here before", filepath.Join(dir, replicasDir), ErrCorrupt)
	}
	return nil
}

// load reads, or at the first start writes, what the directory says of itself. The hard settings
// are written before the identity, so a crash between the two leaves a directory that is still new.
func (d *Dir) load() error {
	for _, dir := range []string{"", onceDir, replicasDir} {
		if err := removeTmp(d.fsys, filepath.Join(d.cfg.Dir, dir)); err != nil {
			return fmt.Errorf("open data directory: %w", err)
		}
	}
	if err := d.finishDrops(); err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	groups, err := d.groupNames()
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	identity := filepath.Join(d.cfg.Dir, identityFile)
	text, err := readSmall(d.fsys, identity)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if missing && len(groups) > 0 {
		return fmt.Errorf("%s: %w: missing, but there is data beside it", identity, ErrCorrupt)
	}
	if d.version, err = checkHard(&d.cfg, d.fsys, missing); err != nil {
		return err
	}
	if missing {
		// The directory may be one that a process made and had not synced when it was killed.
		if err = d.fsys.SyncDir(filepath.Dir(d.cfg.Dir)); err == nil {
			err = d.writeIdentity(identity)
		}
	} else {
		err = d.readIdentity(identity, text)
	}
	if err != nil {
		return err
	}
	return d.beginLife()
}

type identityText struct {
	Node string `json:"node"`
}

func (d *Dir) writeIdentity(name string) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("draw node identity: %w", err)
	}
	text, err := json.Marshal(identityText{Node: id.String()})
	if err != nil {
		return err
	}
	d.nodeID = id.String()
	return writeSmall(d.fsys, name, text)
}

func (d *Dir) readIdentity(name string, text []byte) error {
	var it identityText
	if err := json.Unmarshal(text, &it); err != nil {
		return fmt.Errorf("read %s: %w: %w", name, ErrCorrupt, err)
	}
	id, err := uuid.Parse(it.Node)
	if err != nil || id.String() != it.Node {
		return fmt.Errorf("read %s: %w: %q is not an id", name, ErrCorrupt, it.Node)
	}
	d.nodeID = it.Node
	return nil
}

// NodeID returns the node's identity: a random UUID, drawn when the directory was created (R8).
func (d *Dir) NodeID() string { return d.nodeID }

// Groups returns the groups that exist on the disk, ascending.
func (d *Dir) Groups() ([]uint16, error) { return d.groupNames() }

func (d *Dir) groupNames() ([]uint16, error) {
	entries, err := d.fsys.ReadDir(filepath.Join(d.cfg.Dir, groupsDir))
	if err != nil {
		return nil, err
	}
	var ids []uint16
	for _, e := range entries {
		if id, err := strconv.ParseUint(e.Name(), 10, 16); err == nil && e.IsDir() && len(e.Name()) == 5 {
			ids = append(ids, uint16(id))
		}
	}
	return ids, nil
}

func (d *Dir) groupDir(id uint16) string {
	return filepath.Join(d.cfg.Dir, groupsDir, fmt.Sprintf("%05d", id))
}

// Group opens a group, creating it if it was never here. It may be opened again after its Close. The
// error may wrap ErrLost, ErrOld or ErrQuarantined; after any error the group can be rebuilt.
func (d *Dir) Group(id uint16) (*Group, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	if d.open[id] != nil {
		return nil, fmt.Errorf("open group %d: %w", id, ErrGroupOpen)
	}
	rec, err := d.admit(id)
	if err != nil {
		return nil, fmt.Errorf("open group %d: %w", id, err)
	}
	g, err := openGroup(d.fsys, d.groupDir(id), d.cfg, d.logger.Named(fmt.Sprintf("group-%d", id)))
	if err != nil {
		return nil, fmt.Errorf("open group %d in %s: %w", id, d.groupDir(id), err)
	}
	g.rejoins = rec.Removed > 0
	g.forget = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, id)
	}
	d.open[id] = g
	return g, nil
}

// DropGroup deletes a closed group with everything in it and forgets that it was here: the replica
// was moved away. A crash leaves it whole or gone.
func (d *Dir) DropGroup(id uint16) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return ErrClosed
	case d.open[id] != nil:
		return fmt.Errorf("drop group %d: %w", id, ErrGroupOpen)
	}
	if err := d.drop(id); err != nil {
		return fmt.Errorf("drop group %d: %w", id, err)
	}
	return nil
}

// drop notes first that the group is to be deleted, so that whoever opens it after a crash finishes that.
func (d *Dir) drop(id uint16) error {
	rec, _, err := d.record(id)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	rec = replicaRecord{State: replicaDropped, Removed: rec.Removed}
	if err := writeJSON(d.fsys, d.recordFile(id), &rec); err != nil {
		return err
	}
	if err := d.dropDir(id); err != nil {
		return err
	}
	if err := d.fsys.Remove(d.recordFile(id)); err != nil {
		return err
	}
	return d.fsys.SyncDir(filepath.Join(d.cfg.Dir, replicasDir))
}

// finishDrops deletes what a crash left of dropped groups.
func (d *Dir) finishDrops() error {
	dir := filepath.Join(d.cfg.Dir, groupsDir)
	entries, err := d.fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), droppedSuffix) {
			if err := removeTree(d.fsys, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Space returns the bytes that this process may still write to the disk of the data directory, and
// the bytes of the whole disk. Publishing should stop well before the first is zero: raft's log and
// the settling of messages need room too.
func (d *Dir) Space() (free, total uint64, err error) {
	free, total, err = d.fsys.Space(d.cfg.Dir)
	if err != nil {
		return 0, 0, fmt.Errorf("space of %s: %w", d.cfg.Dir, err)
	}
	return free, total, nil
}

// WriteOnce makes a small file durable, once: writing the same bytes again does nothing, other
// bytes give ErrWritten, which fs.ErrExist goes with. Bootstrap keeps its member list so (A20).
func (d *Dir) WriteOnce(name string, content []byte) error {
	if !plainName(name) || strings.HasSuffix(name, tmpSuffix) {
		return fmt.Errorf("write once: %q is not a plain name", name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	path := filepath.Join(d.cfg.Dir, onceDir, name)
	old, err := readSmall(d.fsys, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return writeSmall(d.fsys, path, content)
	case err != nil:
		return err
	case !bytes.Equal(old, content):
		return fmt.Errorf("write %s: %w: %w", path, ErrWritten, fs.ErrExist)
	}
	return nil
}

// Read returns the content of a file of WriteOnce; the error wraps fs.ErrNotExist if there is none.
func (d *Dir) Read(name string) ([]byte, error) {
	if !plainName(name) {
		return nil, fmt.Errorf("read: %q is not a plain name", name)
	}
	return readSmall(d.fsys, filepath.Join(d.cfg.Dir, onceDir, name))
}

// Close closes the groups that are still open and gives the lock back.
func (d *Dir) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	groups := make([]*Group, 0, len(d.open))
	for _, g := range d.open {
		groups = append(groups, g)
	}
	d.mu.Unlock()

	var errs []error
	for _, g := range groups {
		errs = append(errs, g.Close())
	}
	return errors.Join(append(errs, d.lock.Close())...)
}
