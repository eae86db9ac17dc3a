package storage

import (
	"fmt"
	"io"
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

func readPID(f io.ReaderAt) int {
	var b [20]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}
