package storage

import (
	"io"
	"os"

	"golang.org/x/sys/windows"
)

// lockPlace is the byte of the lock file that is locked. It is far behind the process id, because Windows lets nobody read
// what another process has locked.
const lockPlace = 1 << 20

// Lock locks a byte of the file, so the lock ends with the process however it ends.
func (osFS) Lock(name string) (io.Closer, error) {
	return lockWith(name, windows.ERROR_LOCK_VIOLATION, func(f *os.File) error {
		place := windows.Overlapped{Offset: lockPlace}
		return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &place)
	})
}

// Space asks for what the user of the process may use.
func (osFS) Space(dir string) (free, total uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if err := windows.GetDiskFreeSpaceEx(name, &free, &total, nil); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return free, total, nil
}

// SyncDir does nothing: NTFS keeps names in a journal of its own, and Windows flushes no directory for a user.
func (osFS) SyncDir(string) error { return nil }
