package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/busbar-mq/busbar/storage"
)

// mendable adds to an error of the data directory what a person does about it. The text is a command
// where there is one: whoever reads it has a node that does not start.
func mendable(err error, dir string) error {
	const manual = `see "When a disk fails" in docs/operating.md`
	var hard *storage.HardError
	var held *storage.LockedError
	switch {
	case err == nil, errors.As(err, &hard), errors.As(err, &held):
		return err // these say it themselves
	case errors.Is(err, storage.ErrCorrupt):
		return fmt.Errorf("%w; to mend it: mv %s %s.damaged, and start again with the same flags: the "+
			"node comes back empty and its peers fill it; a node without peers needs the file as it "+
			"was (%s)", err, dir, dir, manual)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; to mend it: chown -R %d %s, or start the node as the user that owns it",
			err, os.Getuid(), dir)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; to mend it: mount -o remount,rw the file system of %s once its disk is "+
			"well, or replace the disk (%s)", err, dir, manual)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; to mend it: make room on the file system of %s: rm %s/BALLAST gives "+
			"what the node itself holds back (%s)", err, dir, dir, manual)
	}
	return err
}
