package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// memory is a store of one backup.
type memory map[string][]byte

func (m memory) Begin(context.Context, string) error { return nil }

func (m memory) Put(_ context.Context, _, file string, content func(io.Writer) error) error {
	var b bytes.Buffer
	if err := content(&b); err != nil {
		return err
	}
	m[file] = b.Bytes()
	return nil
}

func (m memory) Get(_ context.Context, _, file string) (io.ReadCloser, error) {
	b, ok := m[file]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (m memory) Backups(context.Context) ([]string, error) { return []string{"b"}, nil }

func (m memory) Files(context.Context, string) ([]string, error) {
	return slices.Sorted(maps.Keys(m)), nil
}

func (m memory) Discard(_ context.Context, _ string, files []string) error {
	for _, f := range files {
		delete(m, f)
	}
	return nil
}

func (m memory) Where(backup string) string { return "memory/" + backup }

// content is what a test backup has: names in order, and bytes.
type content struct {
	name  string
	bytes []byte
}

// sample has a catalog, a file of several chunks, an empty one and one of exactly one chunk.
func sample(seed uint64) []content {
	r := rand.NewChaCha8([32]byte{byte(seed)})
	random := func(n int) []byte {
		b := make([]byte, n)
		_, _ = r.Read(b) // never fails
		return b
	}
	return []content{{CatalogName, []byte(`{"Queues":[],"Topics":[]}`)}, {"partition-1", random(2*ChunkBytes + 4711)},
		{"partition-2", nil}, {"partition-7", random(ChunkBytes)}}
}

func about(seed uint64) Manifest {
	id := ID{15: byte(seed)}
	return Manifest{ID: id, Created: time.Date(2026, 11, 24, 18, 0, 0, 0, time.UTC), Cluster: "c-1", Version: "v1"}
}

// fill adds the files of a test backup and finishes it.
func fill(t testing.TB, m *Maker, files []content) {
	t.Helper()
	wall := time.Date(2026, 11, 24, 17, 59, 0, 0, time.UTC)
	for i, c := range files {
		f := File{Name: c.name}
		if i > 0 {
			f.Index, f.Wall = uint64(100+i), &wall
		}
		if err := m.Add(t.Context(), f, bytes.NewReader(c.bytes)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func makeSet(t testing.TB, seal *Seal, seed uint64) memory {
	t.Helper()
	s := memory{}
	m, err := Make(t.Context(), s, "b", seal, about(seed))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, m, sample(seed))
	return s
}

func makeStream(t testing.TB, seal *Seal, seed uint64, files []content) []byte {
	t.Helper()
	var b bytes.Buffer
	m, err := MakeStream(&b, seal, about(seed))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, m, files)
	return b.Bytes()
}

// reader is a Set or a Stream.
type reader interface {
	Next(context.Context) (*FileReader, error)
	Manifest() *Manifest
}

// readAll reads every file of a backup to its end.
func readAll(ctx context.Context, r reader) (files []content, err error) {
	for {
		f, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return files, err
		}
		b, err := io.ReadAll(f)
		if err != nil {
			return files, err
		}
		files = append(files, content{f.Name(), b})
	}
}

func readSet(ctx context.Context, s Store, keys *Keys) ([]content, error) {
	b, err := Open(ctx, s, "b", keys)
	if err != nil {
		return nil, err
	}
	return readAll(ctx, b)
}

func readStream(ctx context.Context, b []byte, keys *Keys) ([]content, error) {
	s, err := OpenStream(bytes.NewReader(b), keys)
	if err != nil {
		return nil, err
	}
	return readAll(ctx, s)
}

// same compares what was read with what was written.
func same(t *testing.T, got, want []content) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d files, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].name != want[i].name || !bytes.Equal(got[i].bytes, want[i].bytes) {
			t.Errorf("file %d: got %s with %d bytes, want %s with %d", i, got[i].name, len(got[i].bytes), want[i].name, len(want[i].bytes))
		}
	}
}

// damaged wants a Damage in a file with these words in its reason.
func damaged(t *testing.T, err error, file, words string) {
	t.Helper()
	var d *Damage
	if !errors.As(err, &d) {
		t.Errorf("got %v, want damage in %s", err, file)
		return
	}
	if d.File != file || !strings.Contains(d.Reason, words) {
		t.Errorf("got %v, want damage in %q because %q", err, file, words)
	}
}

func clone(m memory) memory {
	c := memory{}
	for name, b := range m {
		c[name] = slices.Clone(b)
	}
	return c
}

func where(chunk int64) string {
	if chunk < 0 {
		return "no chunk"
	}
	return fmt.Sprintf("chunk %d", chunk)
}
