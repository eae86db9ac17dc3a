package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestWhatIsReadIsWhatWasWritten(t *testing.T) {
	seal, keys := identity(t)
	for _, c := range []struct {
		name string
		seal *Seal
		keys *Keys
	}{{"plain", nil, nil}, {"encrypted", seal, keys}} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readSet(t.Context(), makeSet(t, c.seal, 1), c.keys)
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, sample(1))
			b := makeStream(t, c.seal, 1, sample(1))
			if got, err = readStream(t.Context(), b, c.keys); err != nil {
				t.Fatal(err)
			}
			same(t, got, sample(1))
			// Whatever pieces the system hands out, the result is the same.
			s, err := OpenStream(iotest.OneByteReader(bytes.NewReader(makeStream(t, c.seal, 1, sample(1)[:1]))), c.keys)
			if err != nil {
				t.Fatal(err)
			}
			if got, err = readAll(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			same(t, got, sample(1)[:1])
		})
	}
}

// A file of the store is named as what it is, so a name and an encryption belong together.
func TestEncryptionIsInTheNames(t *testing.T) {
	seal, keys := identity(t)
	sealedSet := makeSet(t, seal, 1)
	for name := range sealedSet {
		if !strings.HasSuffix(name, ".age") {
			t.Errorf("an encrypted backup has the file %s", name)
		}
	}
	_, otherKeys := identity(t)
	if _, err := readSet(t.Context(), sealedSet, nil); !errors.Is(err, ErrKeys) {
		t.Errorf("without a key: %v", err)
	}
	if _, err := readSet(t.Context(), sealedSet, otherKeys); !errors.Is(err, ErrKeys) {
		t.Errorf("with another key: %v", err)
	}
	if _, err := readStream(t.Context(), makeStream(t, seal, 1, sample(1)), otherKeys); !errors.Is(err, ErrKeys) {
		t.Errorf("a pipe with another key: %v", err)
	}
	plain := makeSet(t, nil, 1)
	mixed := clone(sealedSet)
	mixed["partition-1.age"] = plain["partition-1"]
	_, err := readSet(t.Context(), mixed, keys)
	damaged(t, err, "partition-1", "it is not encrypted")
	mixed = clone(plain)
	mixed["partition-1"] = sealedSet["partition-1.age"]
	_, err = readSet(t.Context(), mixed, keys)
	damaged(t, err, "partition-1", "it is encrypted")
}

func TestAMakerKeepsItsOrder(t *testing.T) {
	m, err := Make(t.Context(), memory{}, "b", nil, about(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{CatalogName, "partition-2", "partition-1"} {
		if err := m.Add(t.Context(), File{Name: name}, strings.NewReader(name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Finish(t.Context()); err == nil || !strings.Contains(err.Error(), "partition-1 does not stand in order") {
		t.Errorf("a partition out of order: %v", err)
	}
	if m, err = Make(t.Context(), memory{}, "b", nil, about(1)); err != nil {
		t.Fatal(err)
	}
	if err := m.Add(t.Context(), File{Name: "../x"}, strings.NewReader("")); err == nil {
		t.Error("a file above the backup was added")
	}
	if _, err := Make(t.Context(), memory{}, "a/b", nil, about(1)); err == nil {
		t.Error("a backup has a slash in its name")
	}
}

// A backup whose source fails is never whole, and nothing of it is left.
func TestASourceThatFails(t *testing.T) {
	s := memory{}
	m, err := Make(t.Context(), s, "b", nil, about(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add(t.Context(), File{Name: CatalogName}, strings.NewReader("{}")); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("the node is lost")
	if err := m.Add(t.Context(), File{Name: "partition-1"}, io.MultiReader(strings.NewReader("x"), iotest.ErrReader(lost))); !errors.Is(err, lost) {
		t.Errorf("got %v, want %v", err, lost)
	}
	if _, err := m.Finish(t.Context()); !errors.Is(err, lost) {
		t.Errorf("it was finished: %v", err)
	}
	if _, err := Open(t.Context(), s, "b", nil); !errors.Is(err, ErrUnfinished) {
		t.Errorf("got %v, want %v", err, ErrUnfinished)
	}
	if err := m.Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s) > 0 {
		t.Errorf("%d files are left", len(s))
	}
}

func TestAReaderOfAStoreThatFails(t *testing.T) {
	broken := errors.New("the disk is broken")
	s := failing{makeSet(t, nil, 1), broken}
	_, err := readSet(t.Context(), s, nil)
	if !errors.Is(err, broken) || IsDamage(err) || !strings.Contains(err.Error(), "partition-1 at byte 1048") {
		t.Errorf("got %v, want the error of the store with file and offset", err)
	}
}

// failing fails in the middle of partition-1.
type failing struct {
	memory
	err error
}

func (f failing) Get(ctx context.Context, backup, file string) (io.ReadCloser, error) {
	if file == "partition-1" {
		return io.NopCloser(io.MultiReader(bytes.NewReader(f.memory[file][:ChunkBytes+1<<8]), iotest.ErrReader(f.err))), nil
	}
	return f.memory.Get(ctx, backup, file)
}

func TestForeignFilesAreNamed(t *testing.T) {
	s := makeSet(t, nil, 1)
	s["partition-9"], s["notes.txt"], s["catalog.age"] = nil, nil, nil
	b, err := Open(t.Context(), s, "b", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Foreign(t.Context())
	if want := []string{"catalog.age", "notes.txt", "partition-9"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestAFileIsReadAgain(t *testing.T) {
	s := makeSet(t, nil, 1)
	b, err := Open(t.Context(), s, "b", nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f, err := b.Again(t.Context(), "partition-7")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(f)
		if err != nil || !bytes.Equal(got, sample(1)[3].bytes) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
	if _, err := b.Again(t.Context(), "partition-8"); err == nil {
		t.Error("a file that backup.json does not name was opened")
	}
	p, err := OpenStream(bytes.NewReader(makeStream(t, nil, 1, sample(1))), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Again(t.Context(), CatalogName); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a pipe was read again: %v", err)
	}
}

func TestList(t *testing.T) {
	d := directory(t.TempDir())
	seal, keys := identity(t)
	for _, b := range []struct {
		name string
		seal *Seal
	}{{"a", nil}, {"c", seal}} {
		m, err := Make(t.Context(), d, b.name, b.seal, about(1))
		if err != nil {
			t.Fatal(err)
		}
		fill(t, m, sample(1))
	}
	if err := d.Begin(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, d.Where("b")+"/partition-1", "x")
	if err := d.Begin(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, d.Where("d")+"/"+ManifestName, "{}")
	if err := d.Begin(t.Context(), "e"); err != nil { // something else
		t.Fatal(err)
	}
	states := func(keys *Keys) (out []string) {
		t.Helper()
		all, err := List(t.Context(), d, keys)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			out = append(out, l.Name+" "+l.State)
		}
		return out
	}
	if got, want := states(nil), []string{"a whole", "b unfinished", "c encrypted", "d damaged"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := states(keys), []string{"a whole", "b unfinished", "c whole", "d damaged"}; !slices.Equal(got, want) {
		t.Errorf("with the key: got %q, want %q", got, want)
	}
	if _, err := List(t.Context(), directory(d.Where("x")), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a store that is not there: %v", err)
	}
}
