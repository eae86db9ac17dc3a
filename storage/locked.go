package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// LockedError says that another process uses the data directory.
type LockedError struct {
	File string
	PID  int // 0 if the lock file does not tell
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data directory is in use by another process (lock file %s)", e.File)
	}
	return fmt.Sprintf("data directory is in use by process %d (lock file %s)", e.PID, e.File)
}

// lockWith opens a lock file, locks it as the system does, and writes the own process id into it. taken is what lock returns
// while another process has the lock.
func lockWith(name string, taken error, lock func(*os.File) error) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = lock(f)
	if errors.Is(err, taken) {
		held := &LockedError{File: name, PID: readPID(f)}
		_ = f.Close()
		return nil, held
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

func readPID(f io.ReaderAt) int {
	var b [20]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}
