package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Manifest is backup.json. It is written last, so a backup that has it is whole.
type Manifest struct {
	Format  int       `json:"format"`
	ID      ID        `json:"id"`
	Created time.Time `json:"created"` // by the clock of the node that made the images
	Cluster string    `json:"cluster"` // id of the cluster
	Version string    `json:"version"` // of the broker that made the images
	// Files has the catalog, then the partitions in ascending order: the order in which a pipe has them.
	Files []File `json:"files"`
}

// File is one file of a backup.
type File struct {
	Name  string     `json:"name"`
	Index uint64     `json:"index,omitempty"` // entry that the image is of; 0 for the catalog
	Wall  *time.Time `json:"wall,omitempty"`  // wall clock of that entry; nil for the catalog
	Extent
}

// Partition is the number of the partition of the file, and 0 of the catalog.
func (f *File) Partition() uint16 {
	n, _ := numberOf(f.Name)
	return uint16(n)
}

// Bytes is the content of all files.
func (m *Manifest) Bytes() (sum uint64) {
	for i := range m.Files {
		sum += m.Files[i].Extent.Bytes
	}
	return sum
}

// maxManifestBytes bounds backup.json. A file in it takes less than 300 bytes, and there are 2^16 at most.
const maxManifestBytes = 20 << 20

// The end of backup.json is a field with the SHA-256 of all bytes before it.
const (
	sumField   = `,"sha256":"`
	sumEnd     = "\"}\n"
	sumTailLen = len(sumField) + 2*sha256.Size + len(sumEnd)
)

// encode writes backup.json.
func (m *Manifest) encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	text = text[:len(text)-1] // without the brace
	sum := sha256.Sum256(text)
	text = append(text, sumField...)
	text = append(text, hex.EncodeToString(sum[:])...)
	return append(text, sumEnd...), nil
}

// readManifest reads backup.json to its end.
func readManifest(r io.Reader) (*Manifest, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxManifestBytes+1))
	switch {
	case errors.Is(err, errSealBroken), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, manifestDamage(len(text), err.Error())
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", ManifestName, err)
	case len(text) > maxManifestBytes:
		return nil, manifestDamage(maxManifestBytes, "it is larger than any")
	}
	return parseManifest(text)
}

func manifestDamage(offset int, reason string) error {
	return &Damage{File: ManifestName, Chunk: -1, Offset: int64(offset), Reason: reason}
}

// parseManifest verifies the sum before it looks at anything else.
func parseManifest(text []byte) (*Manifest, error) {
	at := len(text) - sumTailLen
	if at < 1 || !bytes.HasPrefix(text[at:], []byte(sumField)) || !bytes.HasSuffix(text, []byte(sumEnd)) {
		return nil, manifestDamage(max(at, 0), "it does not end with its SHA-256")
	}
	sum := sha256.Sum256(text[:at])
	if hex.EncodeToString(sum[:]) != string(text[at+len(sumField):len(text)-len(sumEnd)]) {
		return nil, manifestDamage(at, "its SHA-256 is another one")
	}
	text = append(text[:at:at], '}')
	var any struct{ Format int }
	if err := json.Unmarshal(text, &any); err != nil {
		return nil, manifestDamage(0, err.Error())
	}
	if any.Format != Format {
		return nil, fmt.Errorf("%s has format %d, and this program reads format %d", ManifestName, any.Format, Format)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	m := &Manifest{}
	if err := in.Decode(m); err != nil {
		return nil, manifestDamage(0, err.Error())
	}
	if err := m.check(); err != nil {
		return nil, manifestDamage(0, err.Error())
	}
	return m, nil
}

// check refuses a list of files that no backup has.
func (m *Manifest) check() error {
	if m.Format != Format {
		return fmt.Errorf("format %d", m.Format)
	}
	if len(m.Files) == 0 || m.Files[0].Name != CatalogName {
		return errors.New("its first file is not the catalog")
	}
	last := uint32(0)
	for i := range m.Files {
		f := &m.Files[i]
		n, ok := numberOf(f.Name)
		switch {
		case !ok:
			return fmt.Errorf("no file has the name %.40q", f.Name)
		case i > 0 && n <= last:
			return fmt.Errorf("the file %s does not stand in order", f.Name)
		case f.Chunks != (f.Extent.Bytes+ChunkBytes-1)/ChunkBytes || f.Chunks > maxChunks:
			return fmt.Errorf("%s has %d bytes in %d chunks", f.Name, f.Extent.Bytes, f.Chunks)
		}
		last = n
	}
	return nil
}
