package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Maker writes one backup, file after file.
type Maker struct {
	into  sink
	m     Manifest
	begun []string // names of the files in the sink, whole or not
	err   error    // that ended the backup
}

// sink takes files in their order.
type sink interface {
	// put writes a file of chunks, or backup.json whose bytes are raw.
	put(ctx context.Context, name string, content func(io.Writer) error) error
	end(ctx context.Context, manifest []byte) error
	discard(ctx context.Context, files []string) error
}

// Name is what a backup is called that nobody names: its time, and the beginning of its id.
func Name(created time.Time, id ID) string {
	return created.UTC().Format("2006-01-02T15-04-05Z-") + id.String()[:8]
}

// Make begins a backup in a store. about has all but the files.
func Make(ctx context.Context, s Store, name string, seal *Seal, about Manifest) (*Maker, error) {
	if !GoodName(name) {
		return nil, fmt.Errorf("a backup has a name of letters, digits, dots, dashes and underscores, at most 128 of them, not %q", name)
	}
	if err := s.Begin(ctx, name); err != nil {
		return nil, err
	}
	return newMaker(&storeSink{s, name, seal}, about), nil
}

func newMaker(into sink, about Manifest) *Maker {
	about.Format, about.Files = Format, nil
	return &Maker{into: into, m: about}
}

// Add writes a file with all that content has. The catalog is first, and partitions follow in ascending order. about has
// all but the extent.
func (m *Maker) Add(ctx context.Context, about File, content io.Reader) error {
	number, ok := numberOf(about.Name)
	if m.err == nil && !ok {
		m.err = fmt.Errorf("no file of a backup is called %s", about.Name)
	}
	if m.err != nil {
		return m.err
	}
	m.begun = append(m.begun, about.Name)
	m.err = m.into.put(ctx, about.Name, func(w io.Writer) (err error) {
		f, err := newFileWriter(w, m.m.ID, number)
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, content); err != nil {
			return err
		}
		about.Extent, err = f.end()
		return err
	})
	m.m.Files = append(m.m.Files, about)
	return m.err
}

// Finish writes backup.json. The backup is whole when it returns.
func (m *Maker) Finish(ctx context.Context) (*Manifest, error) {
	if m.err != nil {
		return nil, m.err
	}
	text, err := m.m.encode()
	if err != nil {
		return nil, err
	}
	m.begun = append(m.begun, ManifestName)
	if m.err = m.into.end(ctx, text); m.err != nil {
		return nil, m.err
	}
	m.err = errors.New("the backup is finished")
	return &m.m, nil
}

// Discard takes back a backup that was not finished, where that is possible.
func (m *Maker) Discard(ctx context.Context) error { return m.into.discard(ctx, m.begun) }

// storeSink writes into a store.
type storeSink struct {
	s    Store
	name string
	seal *Seal
}

func (s *storeSink) put(ctx context.Context, name string, content func(io.Writer) error) error {
	return s.s.Put(ctx, s.name, name+s.seal.suffix(), func(w io.Writer) error { return s.seal.through(w, content) })
}

func (s *storeSink) end(ctx context.Context, manifest []byte) error {
	return s.put(ctx, ManifestName, func(w io.Writer) error {
		_, err := w.Write(manifest)
		return err
	})
}

func (s *storeSink) discard(ctx context.Context, files []string) error {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f + s.seal.suffix()
	}
	return s.s.Discard(ctx, s.name, names)
}

// streamSink writes the files one after the other. Its end closes what encrypts.
type streamSink struct {
	w     io.Writer
	id    ID
	close func() error
}

// MakeStream begins a backup in a pipe.
func MakeStream(w io.Writer, seal *Seal, about Manifest) (*Maker, error) {
	s := &streamSink{w: w, id: about.ID, close: func() error { return nil }}
	if seal != nil {
		sealed, err := seal.wrap(w)
		if err != nil {
			return nil, err
		}
		s.w, s.close = sealed, sealed.Close
	}
	return newMaker(s, about), nil
}

func (s *streamSink) put(_ context.Context, _ string, content func(io.Writer) error) error {
	return content(s.w)
}

// end writes backup.json as a file of chunks, since nothing else would tell where it begins.
func (s *streamSink) end(_ context.Context, manifest []byte) error {
	f, err := newFileWriter(s.w, s.id, manifestNumber)
	if err != nil {
		return err
	}
	if _, err := f.Write(manifest); err != nil {
		return err
	}
	if _, err := f.end(); err != nil {
		return err
	}
	return s.close()
}

// discard cannot take back what has left. A pipe without backup.json is no backup.
func (s *streamSink) discard(context.Context, []string) error { return nil }
