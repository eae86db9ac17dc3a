package storage

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// sweepPause lies between two removals. A removal keeps the disk, and on Linux a processor of the runtime, busy for
// some milliseconds. A snapshot may leave dozens of files. Segments of 16 MiB go at 800 MB/s so.
const sweepPause = 20 * time.Millisecond

// sweeper removes files nobody refers to any more, one after the other, while its owner goes on. Files that it had
// not come to when the process ended are found and removed at the next open. So nothing is synced.
type sweeper struct {
	logger hclog.Logger
	delete func(name string) error // os.Remove

	mu    sync.Mutex
	names []string      // the first is being removed
	ended chan struct{} // closed when the names are used up; nil while there are none
	hurry chan struct{} // closed when somebody waits for that; nil from then on
}

// remove takes the name of a file and returns at once.
func (s *sweeper) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
	if s.ended == nil {
		s.ended, s.hurry = make(chan struct{}), make(chan struct{})
		go s.run(s.ended, s.hurry)
	}
}

func (s *sweeper) run(ended, hurry chan struct{}) {
	defer close(ended)
	for name, ok := s.next(); ok; name, ok = s.next() {
		if err := s.delete(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.logger.Warn("a file that is no longer needed stays until the next start", "file", name, "error", err)
		}
		s.mu.Lock()
		s.names = s.names[1:]
		s.mu.Unlock()
		select {
		case <-hurry:
		case <-time.After(sweepPause):
		}
	}
}

// next is the file to remove now. Without one the caller has to end.
func (s *sweeper) next() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.names) == 0 {
		s.names, s.ended, s.hurry = nil, nil, nil
		return "", false
	}
	return s.names[0], true
}

// release returns when a file of that name can be made: one that is still to go would go later.
func (s *sweeper) release(name string) {
	s.mu.Lock()
	waits := slices.Contains(s.names, name)
	s.mu.Unlock()
	if waits {
		s.wait()
	}
}

// wait returns when every file is gone.
func (s *sweeper) wait() {
	s.mu.Lock()
	ended := s.ended
	if s.hurry != nil {
		close(s.hurry)
		s.hurry = nil
	}
	s.mu.Unlock()
	if ended != nil {
		<-ended
	}
}
