//go:build !linux

package storage

import (
	"errors"
	"os"
)

// dataSync makes what was written last.
func dataSync(f *os.File) error { return f.Sync() }

// preallocate gives a file its length.
func preallocate(f *os.File, size int64) error { return f.Truncate(size) }

// openDirect is Linux's.
func openDirect(string, bool) (*os.File, error) { return nil, errors.ErrUnsupported }
