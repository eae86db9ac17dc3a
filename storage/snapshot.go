package storage

import (
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

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Suffixes of the two files of a snapshot. The header exists only when the data is durable, so a
// snapshot without a header is one that was never finished.
const (
	headerSuffix = ".meta"
	dataSuffix   = ".data"
)

// Snapshots is a raft.SnapshotStore. A snapshot is taken whole or not at all, whatever crashes. Its bytes are
// verified as they are read. The segments that it names live as long as it does.
type Snapshots struct {
	dir    string
	fsys   FS
	retain int
	bodies *Bodies
	log    logBounds
	logger hclog.Logger

	mu    sync.Mutex
	list  []*snapshot     // the newest first
	taken map[string]bool // ids of unfinished snapshots
	stats SnapshotStats
}

// logBounds is what Snapshots asks of the log.
type logBounds interface {
	FirstIndex() (uint64, error)
	LastIndex() (uint64, error)
}

// SnapshotStats are counters of the snapshots of a group.
type SnapshotStats struct {
	Written, Failed, Reaped uint64
	Kept                    uint64
	NewestIndex             uint64
	NewestBytes             int64 // of the stream, bodies included
}

// snapshot is one that is complete.
type snapshot struct {
	id   string
	head snapshotHead
	// Guarded by Snapshots.mu. segs stay pinned until the snapshot is reaped and no reader is left.
	segs   []pinnedSegment
	refs   int
	reaped bool
}

// snapshotHead is the content of the header file (docs/formats/snapshot.md).
type snapshotHead struct {
	Format             int               `json:"format"`
	Version            int               `json:"version"` // raft's
	Index              uint64            `json:"index"`
	Term               uint64            `json:"term"`
	Configuration      []snapshotServer  `json:"configuration"`
	ConfigurationIndex uint64            `json:"configuration_index"`
	Stored             int64             `json:"stored"` // bytes in the data file, without checksums
	Image              int64             `json:"image"`  // bytes of those before the manifest
	Manifest           *snapshotManifest `json:"manifest,omitempty"`
}

// snapshotManifest describes the manifest at the end of the data; absent if the data carries the
// bodies, or none.
type snapshotManifest struct {
	Nonce    string          `json:"nonce"` // 16 hexadecimal digits
	Entries  uint64          `json:"entries"`
	Bytes    uint64          `json:"bytes"`
	Segments []segmentExtent `json:"segments"`
}

type snapshotServer struct {
	Suffrage raft.ServerSuffrage `json:"suffrage"`
	ID       raft.ServerID       `json:"id"`
	Address  raft.ServerAddress  `json:"address"`
}

// size is the length of the stream that Open yields: the bodies are in it.
func (h *snapshotHead) size() int64 {
	if h.Manifest == nil {
		return h.Stored
	}
	return h.Image + int64(inlineBytes(h.Manifest.Entries, h.Manifest.Bytes))
}

// trailer is what the header says of the manifest's.
func (h *snapshotHead) trailer() (blockTrailer, error) {
	nonce, err := strconv.ParseUint(h.Manifest.Nonce, 16, 64)
	if err != nil {
		return blockTrailer{}, fmt.Errorf("%w: nonce %q", ErrCorrupt, h.Manifest.Nonce)
	}
	return blockTrailer{kind: kindManifest, nonce: nonce, entries: h.Manifest.Entries,
		bytes: h.Manifest.Bytes, length: uint64(h.Stored - h.Image)}, nil
}

func (h *snapshotHead) check() error {
	switch {
	case h.Format != formatSnapshot:
		return fmt.Errorf("%w: format %d, want %d", ErrCorrupt, h.Format, formatSnapshot)
	case h.Image < 0 || h.Stored < h.Image || h.Manifest == nil && h.Stored != h.Image:
		return fmt.Errorf("%w: image of %d bytes in %d", ErrCorrupt, h.Image, h.Stored)
	case h.Manifest != nil && h.size() < h.Image:
		return fmt.Errorf("%w: %d bodies of %d bytes", ErrCorrupt, h.Manifest.Entries, h.Manifest.Bytes)
	}
	return nil
}

// openSnapshots reads the headers of a group's snapshots and pins the segments they name. Damage to
// the newest is an error that names the file: an older one in its place would take back what the
// node has acknowledged. An older one that is damaged is removed.
func openSnapshots(fsys FS, dir string, cfg Config, bodies *Bodies, log logBounds,
	logger hclog.Logger) (*Snapshots, error) {
	s := &Snapshots{dir: dir, fsys: fsys, retain: cfg.RetainSnapshots, bodies: bodies, log: log,
		logger: logger, taken: map[string]bool{}}
	if err := makeDirs(fsys, dir); err != nil {
		return nil, err
	}
	if err := removeTmp(fsys, dir); err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	// The log will be cut behind what is found here, by a process that was killed before it could sync.
	if err := fsys.SyncDir(dir); err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), headerSuffix); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	for _, id := range ids {
		snap, err := s.load(id)
		if err != nil && len(s.list) == 0 {
			return nil, fmt.Errorf("open newest snapshot: %w", err)
		}
		if err != nil {
			logger.Warn("removing a damaged old snapshot", "id", id, "error", err)
			if err := s.removeFiles(id); err != nil {
				return nil, err
			}
			continue
		}
		s.list = append(s.list, snap)
	}
	if err := s.removeUnfinished(); err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	if len(s.list) == 0 {
		// Nothing will be restored, so the log brings every body again.
		return s, bodies.dropUnknown()
	}
	return s, nil
}

func (s *Snapshots) file(id, suffix string) string { return filepath.Join(s.dir, id+suffix) }

func (s *Snapshots) load(id string) (*snapshot, error) {
	name := s.file(id, headerSuffix)
	text, err := readSmall(s.fsys, name)
	if err != nil {
		return nil, err
	}
	snap := &snapshot{id: id}
	if err := json.Unmarshal(text, &snap.head); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, ErrCorrupt, err)
	}
	if err := snap.head.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !strings.HasPrefix(id, snapshotPrefix(snap.head.Index, snap.head.Term)) {
		return nil, fmt.Errorf("%s: %w: header of entry %d", name, ErrCorrupt, snap.head.Index)
	}
	f, err := s.fsys.Open(s.file(id, dataSuffix))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: data: %w", name, ErrCorrupt, err)
	}
	_, err = newChunkReader(f, s.file(id, dataSuffix), snap.head.Stored, 0, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if m := snap.head.Manifest; m != nil {
		if snap.segs, err = s.bodies.claimSegments(m.Segments); err != nil {
			return nil, fmt.Errorf("%s names a segment: %w", name, err)
		}
	}
	return snap, nil
}

// removeUnfinished deletes data without a header.
func (s *Snapshots) removeUnfinished() error {
	entries, err := s.fsys.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), dataSuffix)
		if !ok || slices.ContainsFunc(s.list, func(snap *snapshot) bool { return snap.id == id }) {
			continue
		}
		if err := s.fsys.Remove(filepath.Join(s.dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeFiles deletes a snapshot: first, durably, the header, so that no crash brings back a
// snapshot whose segments are used again.
func (s *Snapshots) removeFiles(id string) error {
	if err := s.fsys.Remove(s.file(id, headerSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	if err := s.fsys.Remove(s.file(id, dataSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	return nil
}

// snapshotPrefix begins the id of a snapshot; ids sort by index, then term.
func snapshotPrefix(index, term uint64) string { return fmt.Sprintf("%020d-%020d-", index, term) }

// Create begins a snapshot; raft's version 0 is not supported. The transport is not used.
func (s *Snapshots) Create(version raft.SnapshotVersion, index, term uint64,
	configuration raft.Configuration, configurationIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	if version != raft.SnapshotVersionMax {
		return nil, fmt.Errorf("create snapshot: version %d, want %d", version, raft.SnapshotVersionMax)
	}
	head := snapshotHead{Format: formatSnapshot, Version: int(version), Index: index, Term: term,
		ConfigurationIndex: configurationIndex, Configuration: []snapshotServer{}}
	for _, server := range configuration.Servers {
		head.Configuration = append(head.Configuration, snapshotServer(server))
	}
	id := s.takeID(index, term)
	f, err := s.fsys.Create(s.file(id, dataSuffix) + tmpSuffix)
	var w *chunkWriter
	if err == nil {
		if w, err = newChunkWriter(f); err != nil {
			_ = f.Close()
			_ = s.fsys.Remove(s.file(id, dataSuffix) + tmpSuffix)
		}
	}
	if err != nil {
		s.giveID(id, err)
		return nil, fmt.Errorf("create snapshot %s: %w", id, err)
	}
	return &sink{store: s, id: id, head: head, file: f, chunks: w}, nil
}

// takeID names a snapshot; two of the same index and term differ in their last number.
func (s *Snapshots) takeID(index, term uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 0; ; n++ {
		id := fmt.Sprintf("%s%04d", snapshotPrefix(index, term), n)
		known := slices.ContainsFunc(s.list, func(snap *snapshot) bool { return snap.id == id })
		if !known && !s.taken[id] {
			s.taken[id] = true
			return id
		}
	}
}

// giveID ends an unfinished snapshot.
func (s *Snapshots) giveID(id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, id)
	if err != nil {
		s.stats.Failed++
	}
}

// add enters a finished snapshot and reaps what is too many.
func (s *Snapshots) add(snap *snapshot) error {
	s.mu.Lock()
	delete(s.taken, snap.id)
	s.list = append(s.list, snap)
	slices.SortFunc(s.list, func(a, b *snapshot) int { return strings.Compare(b.id, a.id) })
	s.stats.Written++
	var old []*snapshot
	if len(s.list) > s.retain {
		old = slices.Clone(s.list[s.retain:])
		s.list = s.list[:s.retain:s.retain]
	}
	s.mu.Unlock()

	var errs []error
	for _, snap := range old {
		if err := s.removeFiles(snap.id); err != nil {
			// Its segments stay pinned: the header may still be there at the next start.
			errs = append(errs, err)
			continue
		}
		s.mu.Lock()
		snap.reaped = true
		s.stats.Reaped++
		s.unpinLocked(snap)
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

func (s *Snapshots) unpinLocked(snap *snapshot) {
	if snap.reaped && snap.refs == 0 {
		s.bodies.unpin(snap.segs)
		snap.segs = nil
	}
}

// List returns the snapshots, the newest first.
func (s *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	metas := make([]*raft.SnapshotMeta, 0, len(s.list))
	for _, snap := range s.list {
		metas = append(metas, snap.meta())
	}
	return metas, nil
}

func (snap *snapshot) meta() *raft.SnapshotMeta {
	h := &snap.head
	m := &raft.SnapshotMeta{
		Version: raft.SnapshotVersion(h.Version), ID: snap.id, Index: h.Index, Term: h.Term,
		ConfigurationIndex: h.ConfigurationIndex, Size: h.size(),
	}
	for _, server := range h.Configuration {
		m.Configuration.Servers = append(m.Configuration.Servers, raft.Server(server))
	}
	return m
}

// Open returns a snapshot as a stream of exactly Size bytes: the image, and the bodies with it. The
// segments it needs stay until the reader is closed.
func (s *Snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	i := slices.IndexFunc(s.list, func(snap *snapshot) bool { return snap.id == id })
	if i < 0 {
		s.mu.Unlock()
		return nil, nil, fmt.Errorf("open snapshot %s: %w", id, fs.ErrNotExist)
	}
	snap, newest := s.list[i], s.list[0]
	snap.refs++
	s.mu.Unlock()

	r, err := s.openReader(snap, newest)
	if err != nil {
		s.release(snap)
		return nil, nil, fmt.Errorf("open snapshot %s: %w", id, err)
	}
	return snap.meta(), r, nil
}

func (s *Snapshots) openReader(snap, newest *snapshot) (*snapshotReader, error) {
	if snap != newest {
		if err := s.checkOlder(snap, newest); err != nil {
			return nil, err
		}
	}
	name := s.file(snap.id, dataSuffix)
	f, err := s.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	image, err := newChunkReader(f, name, snap.head.Stored, 0, snap.head.Image)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &snapshotReader{store: s, snap: snap, file: f, name: name, image: image}, nil
}

// checkOlder refuses an older snapshot unless the log has everything from it to the newest. raft falls back to it
// when the newest cannot be read. Without the entries between, raft would panic, or forget acknowledged ones.
func (s *Snapshots) checkOlder(snap, newest *snapshot) error {
	first, err := s.log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return err
	}
	if first == 0 || first > snap.head.Index+1 || last < newest.head.Index {
		return fmt.Errorf("%w: the log has entries %d to %d, not %d up to the newest snapshot at %d",
			ErrCorrupt, first, last, snap.head.Index+1, newest.head.Index)
	}
	return nil
}

func (s *Snapshots) release(snap *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap.refs--
	s.unpinLocked(snap)
}

// newest returns the position of the newest snapshot, zero if there is none.
func (s *Snapshots) newest() position {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return position{}
	}
	return position{s.list[0].head.Index, s.list[0].head.Term}
}

// Stats returns the counters.
func (s *Snapshots) Stats() SnapshotStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Kept = uint64(len(s.list))
	if len(s.list) > 0 {
		st.NewestIndex, st.NewestBytes = s.list[0].head.Index, s.list[0].head.size()
	}
	return st
}
