//go:build unix

package storage

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Lock holds the file with flock, so the lock ends with the process however it ends.
func (osFS) Lock(name string) (io.Closer, error) {
	return lockWith(name, unix.EWOULDBLOCK, func(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
}

// Space asks for what an unprivileged process may use; the reserve of the administrator is not free.
func (osFS) Space(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	size := uint64(st.Bsize) //nolint:gosec // a block size is positive
	return st.Bavail * size, st.Blocks * size, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		_ = d.Close()
		return err
	}
	return d.Close()
}
