package storage

import (
	"errors"
	"os"
	"syscall"
)

// dataSync makes what was written last, without the times of the file: fdatasync(2).
func dataSync(f *os.File) error {
	return call(f, "fdatasync", syscall.Fdatasync)
}

// preallocate gives a file its length and reserves the space, where the file system can do that.
func preallocate(f *os.File, size int64) error {
	err := call(f, "fallocate", func(fd int) error { return syscall.Fallocate(fd, 0, 0, size) })
	if errors.Is(err, syscall.ENOTSUP) {
		return f.Truncate(size)
	}
	return err
}

// call makes a system call on an open file, again as long as a signal interrupts it.
func call(f *os.File, name string, do func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) {
		for {
			failed = do(int(fd))
			if !errors.Is(failed, syscall.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError(name, failed)
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
