package backup

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// States of what a store has under a name.
const (
	Whole      = "whole"      // backup.json is there, and says what it said
	Unfinished = "unfinished" // files without backup.json
	Encrypted  = "encrypted"  // nothing that was given opens it
	Damaged    = "damaged"    // backup.json is not what was written
	Unreadable = "unreadable" // an error of the store, or another format
)

// Listed is one backup of a store.
type Listed struct {
	Name  string
	State string
	*Manifest
	Sealed bool
	Err    error // for Damaged and Unreadable
}

// List shows the backups of a store in the order of their names, which is that of their time unless they were named. It
// reads backup.json of each and nothing else.
func List(ctx context.Context, s Store, keys *Keys) ([]Listed, error) {
	names, err := s.Backups(ctx)
	if err != nil {
		return nil, err
	}
	var out []Listed
	for _, name := range names {
		b, err := Open(ctx, s, name, keys)
		l := Listed{Name: name, State: Whole}
		switch {
		case err == nil:
			l.Manifest, l.Sealed = b.m, b.sealed
		case errors.Is(err, ErrKeys):
			l.State, l.Sealed = Encrypted, true
		case errors.Is(err, ErrUnfinished):
			l.State = Unfinished
		case IsDamage(err):
			l.State, l.Err = Damaged, err
		case errors.Is(err, fs.ErrNotExist):
			continue
		default:
			l.State, l.Err = Unreadable, err
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
