package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
)

// Layout of the first two pages of a bolt file, version 2: a page header, then the meta. The numbers
// are in the order of the machine; we run on little-endian ones only.
const (
	boltPageHeader = 16
	boltMetaSum    = 56 // of the meta: where its checksum begins
	boltMetaBytes  = boltMetaSum + 8
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltMaxPage    = 64 << 10
)

// checkBolt syncs a bolt file and its name, and verifies both its metas and the bounds of all that they refer to; one
// that is not there yet is fine. A process may have been killed between a write and its sync. Its bytes are read now,
// so they must last. A commit overwrites the older of the two metas, and bolt opens a file of which one is good. If
// the newer meta is damaged, the file goes back by a commit without a word. A vote or acknowledged entries go with
// it. A torn write of a meta would be an alarm for nothing, but the 80 bytes lie in one sector.
func checkBolt(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := errors.Join(f.Sync(), (osFS{}).SyncDir(filepath.Dir(name))); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	first := make([]byte, boltMetaBytes)
	if err := readFull(f, first, boltPageHeader); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := checkBoltMeta(first); err != nil {
		return fmt.Errorf("%s: first page: %w", name, err)
	}
	page := int64(binary.LittleEndian.Uint32(first[8:]))
	if page < boltPageHeader+boltMetaBytes || page > boltMaxPage {
		return fmt.Errorf("%s: %w: pages of %d bytes", name, ErrCorrupt, page)
	}
	second := make([]byte, boltMetaBytes)
	if err := readFull(f, second, page+boltPageHeader); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := checkBoltMeta(second); err != nil {
		return fmt.Errorf("%s: second page: %w", name, err)
	}
	// The file is mapped: a page that is not there is a fault of the process, not an error.
	for _, m := range [][]byte{first, second} {
		if pages := binary.LittleEndian.Uint64(m[40:]); pages > uint64(info.Size()/page) {
			return fmt.Errorf("%s: %w: %d bytes for %d pages", name, ErrCorrupt, info.Size(), pages)
		}
	}
	if err := checkBoltPages(f, page, first, second); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func checkBoltMeta(m []byte) error {
	h := fnv.New64a()
	_, _ = h.Write(m[:boltMetaSum])
	if binary.LittleEndian.Uint32(m) != boltMagic || binary.LittleEndian.Uint32(m[4:]) != boltVersion ||
		binary.LittleEndian.Uint64(m[boltMetaSum:]) != h.Sum64() {
		return fmt.Errorf("%w: meta", ErrCorrupt)
	}
	return nil
}
