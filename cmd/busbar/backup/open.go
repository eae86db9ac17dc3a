package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// Set is a backup that is read from a store.
type Set struct {
	s      Store
	name   string
	keys   *Keys
	sealed bool // its files are encrypted, all of them
	m      *Manifest
	next   int // file of Next
	open   io.Closer
}

// Open reads backup.json of a backup in a store.
func Open(ctx context.Context, s Store, name string, keys *Keys) (*Set, error) {
	b := &Set{s: s, name: name, keys: keys}
	text, err := s.Get(ctx, name, ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		b.sealed = true
		text, err = s.Get(ctx, name, ManifestName+sealedSuffix)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, b.absent(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = text.Close() }() // it was only read
	plain, err := b.plain(ManifestName, text)
	if err != nil {
		return nil, err
	}
	if b.m, err = readManifest(plain); err != nil {
		return nil, err
	}
	return b, nil
}

// absent says what is there in the place of backup.json.
func (b *Set) absent(ctx context.Context, err error) error {
	where := b.s.Where(b.name)
	files, listErr := b.s.Files(ctx, b.name)
	if listErr != nil || len(files) == 0 {
		return fmt.Errorf("there is no backup %s: %w", where, err)
	}
	if slices.ContainsFunc(files, func(f string) bool { return isOurs(f) || strings.HasPrefix(f, unfinished) }) {
		return fmt.Errorf("%s: %w", where, ErrUnfinished)
	}
	return fmt.Errorf("%s is no backup: name one of those that busbar backup list shows: %w", where, fs.ErrNotExist)
}

// isOurs tells whether a file of a store has a name of the format.
func isOurs(file string) bool {
	file = strings.TrimSuffix(file, sealedSuffix)
	_, ok := numberOf(file)
	return ok || file == ManifestName
}

// plain decrypts a file of an encrypted backup.
func (b *Set) plain(name string, r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	switch is := sealed(in); {
	case b.sealed && !is:
		return nil, &Damage{File: name, Chunk: -1, Reason: "it is not encrypted, and its name says so"}
	case is && !b.sealed:
		return nil, &Damage{File: name, Chunk: -1, Reason: "it is encrypted, and the name of backup.json says that nothing is"}
	case !is:
		return in, nil
	}
	return b.keys.open(name, in)
}

// Manifest is backup.json.
func (b *Set) Manifest() *Manifest { return b.m }

// Sealed tells whether the backup is encrypted.
func (b *Set) Sealed() bool { return b.sealed }

// Next opens the next file of backup.json, and returns io.EOF behind the last one.
func (b *Set) Next(ctx context.Context) (*FileReader, error) {
	if b.next == len(b.m.Files) {
		return nil, io.EOF
	}
	b.next++
	return b.Again(ctx, b.m.Files[b.next-1].Name)
}

// Again opens a file from its beginning. The file that was open before is closed.
func (b *Set) Again(ctx context.Context, name string) (*FileReader, error) {
	if err := b.Close(); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(b.m.Files, func(f File) bool { return f.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("backup.json names no file %s", name)
	}
	file := name
	if b.sealed {
		file += sealedSuffix
	}
	in, err := b.s.Get(ctx, b.name, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Damage{File: name, Chunk: -1, Reason: "backup.json names it, and it is not there"}
	}
	if err != nil {
		return nil, err
	}
	b.open = in
	plain, err := b.plain(name, in)
	if err != nil {
		return nil, err
	}
	f, err := newFileReader(plain, name)
	if err != nil {
		return nil, err
	}
	if f.id != b.m.ID {
		return nil, f.damage(-1, 0, fmt.Sprintf("it is of the backup %s, and backup.json is of %s", f.id, b.m.ID))
	}
	f.want, f.alone = &b.m.Files[at].Extent, true
	return f, nil
}

// Foreign lists files of the store under the name of the backup that are not of it.
func (b *Set) Foreign(ctx context.Context) (names []string, err error) {
	files, err := b.s.Files(ctx, b.name)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name, sealed := strings.CutSuffix(f, sealedSuffix)
		known := name == ManifestName || slices.ContainsFunc(b.m.Files, func(f File) bool { return f.Name == name })
		if !known || sealed != b.sealed {
			names = append(names, f)
		}
	}
	return names, nil
}

// Close closes the file that is open.
func (b *Set) Close() error {
	if b.open == nil {
		return nil
	}
	open := b.open
	b.open = nil
	return open.Close()
}
