package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// fileWriter cuts content into chunks. Each chunk is one Write of the writer below.
type fileWriter struct {
	w      io.Writer
	number uint32
	chunk  []byte // the head of the next chunk, and its content as far as it is known
	done   Extent
	sum    hash.Hash // of the content
	err    error     // that ended the file
}

// newFileWriter writes the head of a file.
func newFileWriter(w io.Writer, id ID, number uint32) (*fileWriter, error) {
	head := make([]byte, headBytes)
	copy(head, magic)
	binary.LittleEndian.PutUint32(head[4:], Format)
	binary.LittleEndian.PutUint32(head[8:], number)
	copy(head[12:], id[:])
	binary.LittleEndian.PutUint32(head[headBytes-4:], crc32.Checksum(head[:headBytes-4], castagnoli))
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	f := &fileWriter{w: w, number: number, sum: sha256.New(), chunk: make([]byte, chunkHeadBytes, chunkHeadBytes+ChunkBytes)}
	return f, nil
}

func (f *fileWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 && f.err == nil {
		take := min(len(p), chunkHeadBytes+ChunkBytes-len(f.chunk))
		f.chunk = append(f.chunk, p[:take]...)
		p, n = p[take:], n+take
		if len(f.chunk) == chunkHeadBytes+ChunkBytes {
			f.flush()
		}
	}
	return n, f.err
}

// flush writes the chunk that is at hand.
func (f *fileWriter) flush() {
	content := f.chunk[chunkHeadBytes:]
	if f.done.Chunks == maxChunks {
		f.err = fmt.Errorf("a file of a backup has at most %d chunks", uint64(maxChunks))
		return
	}
	f.sum.Write(content)
	f.put(len(content))
	f.done.Chunks++
	f.done.Bytes += uint64(len(content))
	f.chunk = f.chunk[:chunkHeadBytes]
}

// put fills in the head of the chunk and writes it. length is that of its content as the head has it.
func (f *fileWriter) put(length int) {
	if f.err != nil {
		return
	}
	head := f.chunk[:chunkHeadBytes]
	binary.LittleEndian.PutUint32(head, f.number)
	binary.LittleEndian.PutUint32(head[4:], uint32(f.done.Chunks))
	binary.LittleEndian.PutUint32(head[8:], uint32(length))
	binary.LittleEndian.PutUint32(head[12:], chunkSum(head, f.chunk[chunkHeadBytes:]))
	_, f.err = f.w.Write(f.chunk)
}

// end writes the last chunk, which holds the SHA-256 of the content.
func (f *fileWriter) end() (Extent, error) {
	if len(f.chunk) > chunkHeadBytes && f.err == nil {
		f.flush()
	}
	f.sum.Sum(f.done.SHA256[:0])
	f.chunk = append(f.chunk[:chunkHeadBytes], f.done.SHA256[:]...)
	f.put(0)
	err := f.err
	if err == nil {
		f.err = errors.New("the file has ended")
	}
	return f.done, err
}
