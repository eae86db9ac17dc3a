package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A snapshot's data is stored in chunks that each carry a checksum. So damaged bytes are found before they are handed
// out, in the pass that reads them (docs/formats/snapshot.md).
const (
	chunkBytes       = 64 << 10 // large enough for the overhead not to show, small enough to buffer
	chunkHeaderBytes = 8
	chunkFileMagic   = "BSNP"
	chunkFileHeader  = 16
)

func chunkFileHead() []byte {
	h := make([]byte, chunkFileHeader)
	copy(h, chunkFileMagic)
	binary.LittleEndian.PutUint32(h[4:], formatSnapshot)
	binary.LittleEndian.PutUint32(h[8:], chunkBytes)
	binary.LittleEndian.PutUint32(h[12:], sum(h[:12]))
	return h
}

// storedBytes is the length of the file that holds a stream of n bytes.
func storedBytes(n int64) int64 {
	chunks := (n + chunkBytes - 1) / chunkBytes
	return chunkFileHeader + chunks*chunkHeaderBytes + n
}

// chunkSum covers the number of the chunk, so that chunks cannot change places.
func chunkSum(number uint64, data []byte) uint32 {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], number)
	return sum(n[:], data)
}

// chunkWriter writes a stream as chunks, all full but the last.
type chunkWriter struct {
	f      File
	at     int64 // where the next chunk goes in the file
	number uint64
	buf    []byte // a chunk with its header
	total  int64
}

func newChunkWriter(f File) (*chunkWriter, error) {
	if _, err := f.WriteAt(chunkFileHead(), 0); err != nil {
		return nil, err
	}
	buf := make([]byte, chunkHeaderBytes, chunkHeaderBytes+chunkBytes)
	return &chunkWriter{f: f, at: chunkFileHeader, buf: buf}, nil
}

func (w *chunkWriter) Write(p []byte) (int, error) {
	done := 0
	for len(p) > 0 {
		n := min(len(p), cap(w.buf)-len(w.buf))
		w.buf = append(w.buf, p[:n]...)
		p = p[n:]
		done += n
		w.total += int64(n)
		if len(w.buf) == cap(w.buf) {
			if err := w.flush(); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

func (w *chunkWriter) flush() error {
	if len(w.buf) == chunkHeaderBytes {
		return nil
	}
	data := w.buf[chunkHeaderBytes:]
	binary.LittleEndian.PutUint32(w.buf, uint32(len(data)))
	binary.LittleEndian.PutUint32(w.buf[4:], chunkSum(w.number, data))
	if _, err := w.f.WriteAt(w.buf, w.at); err != nil {
		return err
	}
	w.at += int64(len(w.buf))
	w.number++
	w.buf = w.buf[:chunkHeaderBytes]
	return nil
}

// chunkReader reads the bytes from pos to end of a stream of total bytes.
type chunkReader struct {
	f          File
	name       string
	pos, end   int64
	total      int64
	chunk      []byte // the current one, verified
	chunkStart int64
	buf        []byte
}

// newChunkReader checks the header and the length of the file.
func newChunkReader(f File, name string, total, pos, end int64) (*chunkReader, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size != storedBytes(total) {
		return nil, fmt.Errorf("%s: %w: %d bytes long, want %d",
			name, ErrCorrupt, size, storedBytes(total))
	}
	head := make([]byte, chunkFileHeader)
	if err := readFull(f, head, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if string(head) != string(chunkFileHead()) {
		return nil, fmt.Errorf("%s: %w: header", name, ErrCorrupt)
	}
	return &chunkReader{f: f, name: name, total: total, pos: pos, end: end}, nil
}

func (r *chunkReader) Read(p []byte) (int, error) {
	if r.pos >= r.end {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	if r.chunk == nil || r.pos < r.chunkStart || r.pos >= r.chunkStart+int64(len(r.chunk)) {
		if err := r.load(); err != nil {
			return 0, err
		}
	}
	p = p[:min(int64(len(p)), r.end-r.pos)]
	n := copy(p, r.chunk[r.pos-r.chunkStart:])
	r.pos += int64(n)
	return n, nil
}

// load reads and verifies the chunk that pos lies in.
func (r *chunkReader) load() error {
	if r.buf == nil {
		r.buf = make([]byte, chunkHeaderBytes+chunkBytes)
	}
	number := r.pos / chunkBytes
	start := number * chunkBytes
	n := min(chunkBytes, r.total-start)
	at := chunkFileHeader + number*(chunkHeaderBytes+chunkBytes)
	b := r.buf[:chunkHeaderBytes+n]
	r.chunk = nil
	if err := readFull(r.f, b, at); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	data := b[chunkHeaderBytes:]
	length, want := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	if length != uint32(n) || want != chunkSum(uint64(number), data) {
		return fmt.Errorf("%s: %w: checksum of chunk %d", r.name, ErrCorrupt, number)
	}
	r.chunk, r.chunkStart = data, start
	return nil
}

var errNotAtBodies = errors.New("the image of the snapshot was not read to its end")
