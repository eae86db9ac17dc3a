package backup

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"
)

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// identity makes a pair of keys, in files as users have them.
func identity(t testing.TB) (*Seal, *Keys) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "identity")
	writeFile(t, path, "# a comment\n"+id.String()+"\n")
	seal, err := NewSeal([]string{id.Recipient().String()}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeys([]string{path}, "")
	if err != nil {
		t.Fatal(err)
	}
	return seal, keys
}

func TestADirectoryKeepsSecrets(t *testing.T) {
	d := directory(filepath.Join(t.TempDir(), "new", "store"))
	m, err := Make(t.Context(), d, "b", nil, about(1))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, m, sample(1))
	got, err := readSet(t.Context(), d, nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, sample(1))
	err = filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Make(t.Context(), d, "b", nil, about(1)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second backup has the name of the first: %v", err)
	}
}

func TestAFileOfADirectoryIsWholeOrNotThere(t *testing.T) {
	d := directory(t.TempDir())
	if err := d.Begin(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	full := errors.New("the disk is full")
	if err := d.Put(t.Context(), "b", "partition-1", func(w io.Writer) error {
		if _, err := w.Write([]byte("half")); err != nil {
			return err
		}
		return full
	}); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	if names, err := d.Files(t.Context(), "b"); err != nil || len(names) > 0 {
		t.Errorf("got %v, %v, want nothing", names, err)
	}
	// A command that was killed leaves a file under a name that no backup has.
	writeFile(t, d.Where("b")+"/"+unfinished+"partition-1", "half")
	if _, err := Open(t.Context(), d, "b", nil); !errors.Is(err, ErrUnfinished) {
		t.Errorf("got %v, want %v", err, ErrUnfinished)
	}
	if err := d.Discard(t.Context(), "b", []string{"partition-1"}); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a directory with a file of somebody else was discarded: %v", err)
	}
	if err := os.Remove(d.Where("b") + "/" + unfinished + "partition-1"); err != nil {
		t.Fatal(err)
	}
	if err := d.Discard(t.Context(), "b", []string{"partition-1"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Where("b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

func TestADirectoryReadsFilesOnly(t *testing.T) {
	d := directory(t.TempDir())
	if err := d.Begin(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(d.Where("b")+"/"+ManifestName, 0o600); err != nil {
		t.Skipf("SKIPPED: no named pipes here: %v", err)
	}
	if _, err := Open(t.Context(), d, "b", nil); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("got %v, want that it is no file", err)
	}
}

func TestPlaces(t *testing.T) {
	for _, c := range []struct{ place, store, name string }{
		{"s3://b/p/q/n", "s3://b/p/q", "n"}, {"s3://b/n/", "s3://b", "n"}, {"/backups/n", "/backups/", "n"}, {"/backups/n/", "/backups/", "n"},
	} {
		store, name, err := Split(c.place)
		if err != nil || store != c.store || name != c.name {
			t.Errorf("%s: got %q, %q, %v, want %q, %q", c.place, store, name, err, c.store, c.name)
		}
	}
	for place, want := range map[string]string{"s3://b": "names no backup", "/": "names no backup"} {
		if _, _, err := Split(place); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", place, err, want)
		}
	}
	for place, want := range map[string]string{"": "is empty", "ftp://x": "no kind of store", "s3:///p": "names no bucket"} {
		if _, err := OpenStore(place, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", place, err, want)
		}
	}
	for _, endpoint := range []string{"s3.example.net", "ftp://s3.example.net", "https://s3.example.net/x", "https://"} {
		if _, err := OpenStore("s3://b", Options{Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), "is no URL such as") {
			t.Errorf("endpoint %q: %v", endpoint, err)
		}
	}
	s, err := OpenStore("s3://b/p/", Options{Endpoint: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Where("n"), "s3://b/p/n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPassphrases(t *testing.T) {
	dir := t.TempDir()
	phrase := filepath.Join(dir, "phrase")
	writeFile(t, phrase, "correct horse battery\n")
	seal, err := NewSeal(nil, nil, phrase)
	if err != nil {
		t.Fatal(err)
	}
	// Fewer steps than users have, for the time of the test.
	seal.recipients[0].(*age.ScryptRecipient).SetWorkFactor(10)
	files := sample(1)[:1]
	b := makeStream(t, seal, 1, files)
	keys, err := NewKeys(nil, phrase)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readStream(t.Context(), b, keys)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, files)
	wrong := filepath.Join(dir, "wrong")
	writeFile(t, wrong, "wrong horse battery")
	if keys, err = NewKeys(nil, wrong); err != nil {
		t.Fatal(err)
	}
	if _, err := readStream(t.Context(), b, keys); !errors.Is(err, ErrKeys) {
		t.Errorf("a wrong passphrase: %v", err)
	}
	// A backup may not ask for any work.
	work := bytes.Replace(b, []byte(" 10\n"), []byte(" 25\n"), 1)
	if _, err := readStream(t.Context(), work, keys); err == nil || !strings.Contains(err.Error(), "work factor") {
		t.Errorf("2^25 steps: %v", err)
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		writeFile(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	phrase := file("phrase", "correct horse battery\n")
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	to := id.Recipient().String()
	for _, c := range []struct {
		name       string
		recipients []string
		files      []string
		phrase     string
		want       string
	}{
		{"no recipient", []string{"age1x"}, nil, "", "recipient: "},
		{"a secret in place of a recipient", []string{id.String()}, nil, "", "recipient: "},
		{"a file without recipients", nil, []string{file("empty", "")}, "", "empty: "},
		{"a file that is not there", nil, []string{filepath.Join(dir, "x")}, "", "no such file"},
		{"both", []string{to}, nil, phrase, "to recipients or by a passphrase, not both"},
		{"a short passphrase", nil, nil, file("short", "1234567\n"), "at least 8 bytes"},
		{"two lines", nil, nil, file("lines", "correct horse\nbattery\n"), "a passphrase is one line"},
		{"a large file", nil, nil, file("large", strings.Repeat("x", maxKeyFileBytes+1)), "at most 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewSeal(c.recipients, c.files, c.phrase)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), id.String()) {
				t.Errorf("the error tells the secret: %v", err)
			}
		})
	}
	if _, err := NewKeys([]string{phrase}, ""); err == nil {
		t.Error("a passphrase was taken for an identity")
	}
	if s, err := NewSeal(nil, nil, ""); s != nil || err != nil {
		t.Errorf("nothing asked for: %v, %v", s, err)
	}
}

// The head of an encrypted file is read into memory, so it has a bound.
func TestAnEndlessHeadIsRefused(t *testing.T) {
	_, keys := identity(t)
	r := io.MultiReader(strings.NewReader(ageIntro+"\n-> X25519 "), io.LimitReader(repeated('A'), 1<<40))
	_, err := OpenStream(r, keys)
	damaged(t, err, "the stream", "a head of more than 1048576 bytes")
}

type repeated byte

func (r repeated) Read(p []byte) (int, error) {
	copy(p, slices.Repeat([]byte{byte(r)}, len(p)))
	return len(p), nil
}
