package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/busbar-mq/busbar/storage"
)

// Whoever reads it has a node that does not start.
func TestErrorsOfTheDataDirectorySayWhatToDo(t *testing.T) {
	wrap := func(err error) error {
		return fmt.Errorf("data directory: %w", &fs.PathError{Op: "open", Path: "/d/LOCK", Err: err})
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a read-only file system": {wrap(syscall.EROFS), "mount -o remount,rw"},
		"a full disk":             {wrap(syscall.ENOSPC), "rm /d/BALLAST"},
		"a quota":                 {wrap(syscall.EDQUOT), "make room"},
		"another user's":          {wrap(syscall.EACCES), "chown -R"},
		"forbidden":               {wrap(syscall.EPERM), "start the node as the user"},
		"a damaged file":          {wrap(storage.ErrCorrupt), "mv /d /d.damaged"},
	} {
		got := mendable(tc.err, "/d")
		if !errors.Is(got, tc.err) || !strings.Contains(got.Error(), tc.want) || !strings.Contains(got.Error(), "/d/LOCK") {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, err := range []error{nil, errors.New("something else"), &storage.LockedError{File: "/d/LOCK", PID: 7}} {
		if got := mendable(err, "/d"); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}
