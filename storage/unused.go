package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveUnused removes a data directory that no process uses, and reports whether it did. A directory that was never
// opened stays, because a process may be about to.
func RemoveUnused(dir string) (bool, error) {
	name := filepath.Join(dir, lockFile)
	if _, err := os.Lstat(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	lock, err := osFS{}.Lock(name)
	var held *LockedError
	if errors.As(err, &held) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, errors.Join(os.RemoveAll(dir), lock.Close())
}
