package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
)

// Stream is a backup that is read from a pipe. Its files are compared with backup.json, which comes last.
type Stream struct {
	r    io.Reader
	id   ID
	open *FileReader // the file that is read
	read []File      // files that were read to their end
	m    *Manifest
}

// OpenStream begins to read a pipe.
func OpenStream(r io.Reader, keys *Keys) (*Stream, error) {
	in := bufio.NewReaderSize(r, ChunkBytes)
	s := &Stream{r: in}
	if sealed(in) {
		plain, err := keys.open("the stream", in)
		if err != nil {
			return nil, err
		}
		s.r = plain
	}
	return s, nil
}

// Next returns the next file, and skips what is left of the one before it. Behind the last file it reads backup.json, compares
// it with all that was read, and returns io.EOF.
func (s *Stream) Next(_ context.Context) (*FileReader, error) {
	if s.m != nil {
		return nil, io.EOF
	}
	if err := s.skip(); err != nil {
		return nil, err
	}
	f, err := newFileReader(s.r, "")
	if err != nil {
		return nil, err
	}
	if len(s.read) == 0 {
		s.id = f.id
	}
	if f.id != s.id {
		return nil, f.damage(-1, 0, fmt.Sprintf("it is of the backup %s, and the stream began with %s", f.id, s.id))
	}
	if f.number == manifestNumber {
		return nil, s.finish(f)
	}
	if n := len(s.read); n > maxPartition {
		return nil, f.damage(-1, 0, "there are too many files before it")
	}
	s.open = f
	return f, nil
}

// skip reads the open file to its end.
func (s *Stream) skip() error {
	f := s.open
	if f == nil {
		return nil
	}
	if _, err := io.Copy(io.Discard, f); err != nil {
		return err
	}
	s.read = append(s.read, File{Name: f.name, Extent: f.got})
	s.open = nil
	return nil
}

// finish reads backup.json and compares. It returns io.EOF if all is well.
func (s *Stream) finish(f *FileReader) error {
	f.alone = true
	m, err := readManifest(f)
	if err != nil {
		return err
	}
	if m.ID != s.id {
		return manifestDamage(0, fmt.Sprintf("it is of the backup %s, and the files are of %s", m.ID, s.id))
	}
	if len(m.Files) != len(s.read) {
		return manifestDamage(0, fmt.Sprintf("it names %d files, and there were %d before it", len(m.Files), len(s.read)))
	}
	for i := range m.Files {
		want, got := &m.Files[i], &s.read[i]
		if want.Name != got.Name || want.Extent != got.Extent {
			return &Damage{File: got.Name, Chunk: -1, Reason: fmt.Sprintf("backup.json names in its place %s of %d bytes with SHA-256 %s",
				want.Name, want.Extent.Bytes, want.SHA256)}
		}
	}
	s.m = m
	return io.EOF
}

// Manifest is backup.json, or nil before the end of the pipe.
func (s *Stream) Manifest() *Manifest { return s.m }

// Again cannot be done with a pipe.
func (s *Stream) Again(context.Context, string) (*FileReader, error) {
	return nil, fmt.Errorf("a pipe is read once: %w", errors.ErrUnsupported)
}

// Close leaves the pipe to its owner.
func (s *Stream) Close() error { return nil }
