package storage

import (
	"errors"
	"os"
	"syscall"
)

// dataSync makes what was written last, without the times of the file: fdatasync(2).
func dataSync(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) {
		for {
			failed = syscall.Fdatasync(int(fd))
			if !errors.Is(failed, syscall.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("fdatasync", failed)
}

// preallocate gives a file its length and reserves the space, where the file system can do that.
func preallocate(f *os.File, size int64) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) {
		for {
			failed = syscall.Fallocate(int(fd), 0, 0, size)
			if !errors.Is(failed, syscall.EINTR) {
				return
			}
		}
	})
	switch {
	case err != nil:
		return err
	case errors.Is(failed, syscall.ENOTSUP):
		return f.Truncate(size)
	}
	return os.NewSyscallError("fallocate", failed)
}

// openDirect opens a file for writes that go past the page cache; with sync they are on the disk for
// good when they return. Not every file system has them.
func openDirect(name string, sync bool) (*os.File, error) {
	flags := os.O_WRONLY | syscall.O_DIRECT
	if sync {
		flags |= syscall.O_DSYNC
	}
	return os.OpenFile(name, flags, 0)
}
