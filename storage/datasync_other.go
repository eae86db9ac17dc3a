//go:build !linux

package storage

import "os"

// dataSync makes what was written last.
func dataSync(f *os.File) error { return f.Sync() }
