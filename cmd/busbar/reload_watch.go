package main

import (
	"crypto/sha256"
	"io"
	"maps"
	"os"
	"time"
)

const (
	// watchEvery is how often the files of the configuration are looked at. They are read: a mounted secret of Kubernetes
	// is a link to a link, which no watch of one file follows.
	watchEvery = 3 * time.Second
	// maxWatchedBytes bounds what is read of one file.
	maxWatchedBytes = 4 << 20
)

// fileWatch finds out that files have changed, when they are at rest again. A certificate and its key are two files, and
// they do not fit while one of them is still the old one.
type fileWatch struct {
	files   func() []string
	known   map[string][sha256.Size]byte // as they were read last
	pending map[string][sha256.Size]byte // as they were at the last look, if they differed
}

func newFileWatch(files func() []string) *fileWatch {
	w := &fileWatch{files: files}
	w.accept()
	return w
}

// accept takes the files as they are for known.
func (w *fileWatch) accept() { w.known, w.pending = w.look(), nil }

// reread has the files read, and takes them for known as they were before: a file that changes meanwhile is read again.
func (w *fileWatch) reread(read func()) {
	before := w.look()
	read()
	w.accept()
	for file := range w.known {
		if sum, watched := before[file]; watched {
			w.known[file] = sum
		}
	}
}

// changed reports whether files differ from those that are known, and have not changed since the last look.
func (w *fileWatch) changed() bool {
	now := w.look()
	if maps.Equal(now, w.known) {
		w.pending = nil
		return false
	}
	atRest := w.pending != nil && maps.Equal(now, w.pending)
	w.pending = now
	return atRest
}

// look returns the sums of the files; that of one that cannot be read is of its error.
func (w *fileWatch) look() map[string][sha256.Size]byte {
	sums := map[string][sha256.Size]byte{}
	for _, file := range w.files() {
		sums[file] = sumOf(file)
	}
	return sums
}

func sumOf(file string) [sha256.Size]byte {
	f, err := os.Open(file)
	if err != nil {
		return sha256.Sum256([]byte(err.Error()))
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, maxWatchedBytes)); err != nil {
		return sha256.Sum256([]byte(err.Error()))
	}
	return [sha256.Size]byte(sum.Sum(nil))
}
