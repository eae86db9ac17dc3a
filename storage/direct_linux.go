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

// openDirect opens a file for writes that go past the page cache and are on the disk when they return.
// Not every file system has them.
func openDirect(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|syscall.O_DIRECT|syscall.O_DSYNC, 0)
}
