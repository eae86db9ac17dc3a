package storage

import (
	"bytes"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	walsegment "github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// walStore is raft-wal with entries encoded by us, as its own codec does it, into a buffer that is
// used again. The library makes a new buffer for every entry, as large as the entry. So it is given
// entries without content, and its writers of segments get the content here.
type walStore struct {
	*wal.WAL
	filer *walFiler
	codec wal.BinaryCodec
	buf   bytes.Buffer // of the call under way; Log holds its mutex meanwhile
	ends  []int        // of the entries in buf
	empty []raft.Log
	refs  []*raft.Log
}

// maxSpareEntries is the largest buffer that is kept for the next call: four entries of the usual
// limit.
const maxSpareEntries = 1 << 20

// StoreLogs implements raft.LogStore. It is not called twice at once.
func (s *walStore) StoreLogs(logs []*raft.Log) error {
	s.buf.Reset()
	if s.buf.Cap() > maxSpareEntries {
		s.buf = bytes.Buffer{}
	}
	s.ends = s.ends[:0]
	s.empty = append(s.empty[:0], make([]raft.Log, len(logs))...)
	s.refs = s.refs[:0]
	for i, l := range logs {
		if err := s.codec.Encode(l, &s.buf); err != nil {
			return err
		}
		s.ends = append(s.ends, s.buf.Len())
		s.empty[i].Index = l.Index
		s.refs = append(s.refs, &s.empty[i])
	}
	s.filer.content, s.filer.ends = s.buf.Bytes(), s.ends
	defer func() { s.filer.content, s.filer.ends = nil, nil }()
	return s.filer.ahead.explain(s.WAL.StoreLogs(s.refs))
}

// Close closes the log. Nothing of it is removed later.
func (s *walStore) Close() error {
	err := s.WAL.Close()
	s.filer.gone.wait()
	s.filer.ahead.close()
	return err
}

// walFiler makes segments whose writers take the content of entries from it.
type walFiler struct {
	*walsegment.Filer
	gone    *sweeper
	ahead   *segmentAhead
	opened  *openedFiles
	dir     string
	full    *fullTail // found by RecoverTail, nil if there is none
	content []byte    // of the entries of the call under way, one behind the other
	ends    []int
}

func newWALFiler(dir string, logger hclog.Logger) *walFiler {
	files := newWALFiles(logger)
	return &walFiler{Filer: walsegment.NewFiler(dir, files), dir: dir, gone: files.gone, ahead: files.ahead,
		opened: files.opened}
}

// Create implements types.SegmentFiler.
func (f *walFiler) Create(info types.SegmentInfo) (types.SegmentWriter, error) {
	w, err := f.Filer.Create(info)
	if err != nil {
		return nil, err
	}
	return &walWriter{w, f}, nil
}

// walWriter is the writer of one segment.
type walWriter struct {
	types.SegmentWriter
	filer *walFiler
}

// Append implements types.SegmentWriter. The encoded bytes of the library tell nothing but the index.
func (w *walWriter) Append(entries []types.LogEntry) error {
	if len(entries) != len(w.filer.ends) {
		return types.ErrCorrupt // entries that do not come from StoreLogs above
	}
	start := 0
	for i, end := range w.filer.ends {
		entries[i].Data = w.filer.content[start:end]
		start = end
	}
	return w.SegmentWriter.Append(entries)
}
