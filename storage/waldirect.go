package storage

import (
	"errors"
	"io"
	"os"
	"syscall"
	"unsafe"
)

const (
	// blockBytes is the unit of a disk's writes. Direct writes begin and end at a multiple of it, and so does their
	// memory. No disk in use asks for more.
	blockBytes = 4 << 10
	// maxDirectBytes bounds one direct write, and so the memory that a log keeps for them: four entries
	// of the usual limit.
	maxDirectBytes = 1 << 20
)

// directWriter appends to a file past the page cache, each append with its own sync. The log is written once and
// hardly ever read. In the cache it costs a copy, new pages each time, and their way out. A separate sync costs one
// more call.
//
// It leaves in the file the bytes of a plain write, and zeros up to the end of the block.
type directWriter struct {
	file  *os.File    // opened with O_DIRECT
	plain io.ReaderAt // the same file
	buf   *directBuf
	end   int64            // of the last append; -1 if the file was just opened
	last  [blockBytes]byte // the block that the end lies in, up to the end
}

// writeAt writes p at an offset, and behind it as many zeros as zeros says, rounded up to a block.
// It returns the end of the blocks that were written.
func (w *directWriter) writeAt(p []byte, at, zeros int64) (written int64, err error) {
	head := int(at % blockBytes)
	if at != w.end && head > 0 {
		if err := readFull(w.plain, w.last[:head], at-int64(head)); err != nil {
			return 0, err
		}
	}
	w.end = -1 // until all is written, nobody knows what the last block holds
	start, until := at-int64(head), at+int64(len(p))+zeros
	until += -until & (blockBytes - 1)
	kept := w.last[:head]
	for left := p; start < until; {
		room := w.buf.room(min(until-start, maxDirectBytes))
		n := copy(room, kept)
		m := copy(room[n:], left)
		clear(room[n+m:])
		if _, err := w.file.WriteAt(room, start); err != nil {
			return 0, err
		}
		if left = left[m:]; len(left) == 0 && m > 0 {
			end := (n + m) / blockBytes * blockBytes
			copy(w.last[:], room[end:n+m])
		}
		kept, start = nil, start+int64(len(room))
	}
	w.end = at + int64(len(p))
	return until, nil
}

// refused reports whether a file system that let a file be opened for direct writes does not take
// them after all.
func refused(err error) bool { return errors.Is(err, syscall.EINVAL) }

// directBuf is memory that begins at a multiple of blockBytes. It belongs to one goroutine at a time.
type directBuf struct{ b []byte }

// room returns n bytes, a multiple of blockBytes, until the next call.
func (b *directBuf) room(n int64) []byte {
	if n > int64(len(b.b)) {
		size := int64(16 * blockBytes)
		for size < n {
			size *= 2
		}
		b.b = alignedBytes(int(size))
	}
	return b.b[:n]
}

// alignedBytes returns n bytes that begin at a multiple of blockBytes.
func alignedBytes(n int) []byte {
	raw := make([]byte, n+blockBytes)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % blockBytes
	return raw[skip:][:n:n]
}
