package replica

import (
	"errors"
	"syscall"
)

// RepairText says to people what to do about a replica that failed.
const RepairText = "its group has it rebuilt when the others are a majority and well; if it does not, see " +
	"'When a disk fails' in docs/operating.md"

// repairHint says to people what to do about a replica that failed with an error.
func repairHint(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return "the file system of the data directory is read-only: see to the disk, mount it for writing, " +
			"and start the node again; the others go on without it ('When a disk fails' in docs/operating.md)"
	case OutOfFiles(err):
		return "the process has no descriptor left: raise its limit of open files, or lower limits.connections; " +
			"the replica starts anew by itself"
	case outOfRoom(err):
		return "make room on the disk: the replica starts anew by itself"
	}
	return RepairText
}

// outOfRoom reports whether an error says that a disk is full.
func outOfRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// OutOfFiles reports whether an error says that the process, or the machine, has no descriptor left.
func OutOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Starvation reports whether an error is about something that comes back without a person: room on the disk, or
// descriptors.
func Starvation(err error) bool { return outOfRoom(err) || OutOfFiles(err) }

// Starved returns the error if the replica failed for want of something that comes back by itself, else nil.
func (r *Replica) Starved() error {
	if err := r.Failure(); err != nil && Starvation(err) {
		return err
	}
	return nil
}
