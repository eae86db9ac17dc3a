package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// logEnd is the content of the file that says where the log ended when it was closed. raft-wal takes the first
// damaged batch of its last segment for a write that a crash tore. It forgets that batch and all that follow, even
// acknowledged ones. After an orderly stop there is no such excuse.
type logEnd struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
}

const logEndSuffix = ".end"

// takeEnd compares the end of the log of a name with the note that was made when it was closed. It removes the note,
// durably: after the first write it would speak of another log.
func takeEnd(fsys FS, log string, last position) error {
	name := log + logEndSuffix
	text, err := readSmall(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the process was killed, or this is the first start
	}
	if err != nil {
		return err
	}
	var end logEnd
	if err := json.Unmarshal(text, &end); err != nil {
		return fmt.Errorf("%s: %w: %w", name, ErrCorrupt, err)
	}
	if (position{end.Index, end.Term}) != last {
		return fmt.Errorf("%w: it ends at entry %d of term %d and was closed at %d of term %d",
			ErrCorrupt, last.index, last.term, end.Index, end.Term)
	}
	if err := fsys.Remove(name); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// writeEnd notes where a log ends that takes no more writes.
func writeEnd(fsys FS, log string, last position) error {
	return writeJSON(fsys, log+logEndSuffix, logEnd{Index: last.index, Term: last.term})
}
