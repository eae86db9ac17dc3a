package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// FileReader reads the content of one file of a backup. It hands out bytes of a chunk when the whole chunk is verified, and
// ends with io.EOF when the whole file is.
type FileReader struct {
	r      io.Reader
	name   string
	number uint32
	id     ID
	want   *Extent // that the manifest names; nil where the manifest comes later
	alone  bool    // nothing may follow the file

	offset int64 // of the next byte in the file
	got    Extent
	sum    hash.Hash // of the content
	chunk  []byte    // memory of a chunk
	rest   []byte    // verified, and not handed out
	short  bool      // the last chunk was not full, so the end must follow
	err    error     // that ended the reading
}

// newFileReader reads the head of a file. An empty name is found by the number in the head.
func newFileReader(r io.Reader, name string) (*FileReader, error) {
	f := &FileReader{r: r, name: name, sum: sha256.New()}
	head := make([]byte, headBytes)
	if err := f.fill(head, -1); err != nil {
		return nil, err
	}
	switch {
	case string(head[:4]) != magic:
		return nil, f.damage(-1, 0, "it does not begin as a file of a backup does")
	case crc32.Checksum(head[:headBytes-4], castagnoli) != binary.LittleEndian.Uint32(head[headBytes-4:]):
		return nil, f.damage(-1, 0, "the checksum of its head is wrong")
	}
	if format := binary.LittleEndian.Uint32(head[4:]); format != Format {
		return nil, fmt.Errorf("%s has format %d, and this program reads format %d", name, format, Format)
	}
	f.number = binary.LittleEndian.Uint32(head[8:])
	copy(f.id[:], head[12:])
	known, ok := nameOf(f.number)
	switch {
	case !ok:
		return nil, f.damage(-1, 0, fmt.Sprintf("no file has the number %d", f.number))
	case name == "":
		f.name = known
	case name != known:
		return nil, f.damage(-1, 0, "it is the file "+known+" under another name")
	}
	return f, nil
}

// Name is the name of the file.
func (f *FileReader) Name() string { return f.name }

// Partition is the number of the partition of the file, and 0 of the catalog.
func (f *FileReader) Partition() uint16 { return uint16(f.number) }

// Extent is how much content was read so far. SHA256 is zero before the end.
func (f *FileReader) Extent() Extent { return f.got }

func (f *FileReader) Read(p []byte) (n int, err error) {
	for len(f.rest) == 0 && f.err == nil {
		f.err = f.next()
	}
	if len(f.rest) == 0 {
		return 0, f.err
	}
	n = copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// next reads one chunk. It returns io.EOF behind the last one.
func (f *FileReader) next() error {
	at, number := f.offset, int64(f.got.Chunks)
	var head [chunkHeadBytes]byte
	if err := f.fill(head[:], number); err != nil {
		return err
	}
	length := binary.LittleEndian.Uint32(head[8:])
	if length > ChunkBytes { // before anything is taken for it
		return f.damage(number, at, fmt.Sprintf("it claims to have %d bytes, at most %d are allowed", length, ChunkBytes))
	}
	size := int(length)
	if length == 0 {
		size = sha256.Size
	}
	if f.chunk == nil {
		f.chunk = make([]byte, ChunkBytes)
	}
	content := f.chunk[:size]
	if err := f.fill(content, number); err != nil {
		return err
	}
	file, chunk := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
	switch {
	case chunkSum(head[:], content) != binary.LittleEndian.Uint32(head[12:]):
		return f.damage(number, at, "its checksum is wrong")
	case file != f.number:
		return f.damage(number, at, fmt.Sprintf("it is a chunk of file %d", file))
	case int64(chunk) != number:
		return f.damage(number, at, fmt.Sprintf("it is chunk %d", chunk))
	case length > 0 && f.short:
		return f.damage(number, at, "the chunk before it is not full")
	case length == 0:
		return f.end(content, at)
	}
	f.short = length < ChunkBytes
	f.sum.Write(content)
	f.got.Chunks++
	f.got.Bytes += uint64(length)
	f.rest = content
	return nil
}

// end compares what was read with the sum in the last chunk, which begins at that offset, and with the manifest.
func (f *FileReader) end(sum []byte, at int64) error {
	number := int64(f.got.Chunks)
	f.sum.Sum(f.got.SHA256[:0])
	if !bytes.Equal(f.got.SHA256[:], sum) {
		return f.damage(number, at, "the SHA-256 of the file is another one")
	}
	if f.want != nil && f.got != *f.want {
		return f.damage(number, at, fmt.Sprintf("backup.json names a file of %d bytes with SHA-256 %s, and this one has %d with %s",
			f.want.Bytes, f.want.SHA256, f.got.Bytes, f.got.SHA256))
	}
	if !f.alone {
		return io.EOF
	}
	var more [1]byte
	n, err := io.ReadFull(f.r, more[:])
	switch {
	case n > 0:
		return f.damage(-1, f.offset, "something follows its end")
	case errors.Is(err, errSealBroken):
		return f.damage(-1, f.offset, err.Error())
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("read %s at byte %d: %w", f.name, f.offset, err)
	}
	return io.EOF
}

// fill reads all of p. number is that of the chunk, or -1.
func (f *FileReader) fill(p []byte, number int64) error {
	n, err := io.ReadFull(f.r, p)
	f.offset += int64(n)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return f.damage(number, f.offset, "it ends here")
	case errors.Is(err, errSealBroken):
		return f.damage(number, f.offset, err.Error())
	}
	return fmt.Errorf("read %s at byte %d: %w", f.name, f.offset, err)
}

func (f *FileReader) damage(chunk, offset int64, reason string) error {
	return &Damage{File: f.name, Chunk: chunk, Offset: offset, Reason: reason}
}

// Whole tells whether the file was read to its end, and was whole.
func (f *FileReader) Whole() bool { return errors.Is(f.err, io.EOF) && len(f.rest) == 0 }
