package storage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// The log stores to choose from (A7).
const (
	LogWAL  = "wal"    // hashicorp/raft-wal
	LogBolt = "boltdb" // hashicorp/raft-boltdb/v2
)

// Config is everything that this room wants to know. Start from [Defaults].
type Config struct {
	// Dir is the data directory; it is created with mode 0700 if it is missing.
	Dir string
	// Log is LogWAL or LogBolt. It is a hard setting: it cannot change once there is data.
	Log string
	// LogSegmentBytes is the size of a segment of the write-ahead log. raft-wal reserves a whole segment ahead, in
	// every group. Its own default of 64 MiB would take half a gigabyte for eight idle groups. Rotation costs about
	// three syncs, so the segment must hold many full entries.
	LogSegmentBytes int
	// BodySegmentBytes is the size at which a segment of bodies is sealed. A larger entry gets a
	// segment of its own.
	BodySegmentBytes int
	// BodyCacheBytes bounds the memory of recent entries per group. A message is usually delivered right after it was
	// enqueued, and settled before anybody needs its bytes on the disk. A quarter of it may wait to be written. A
	// quarter more is used for entries read back from the disk. Memory is touched only as far as messages wait. With
	// 0 all is written at once.
	BodyCacheBytes int
	// BallastBytes is the size of the file that is given up when the disk is full; 0 for none.
	BallastBytes int
	// RetainSnapshots is how many snapshots a group keeps, at least 1.
	RetainSnapshots int
	// Hard are the hard settings of other rooms (the version of the hash, of the entry's encoding).
	// They are written at the first start and compared at every other.
	Hard map[string]int
	// FirstVersion is the cluster version that a new directory tells, 0 for none.
	FirstVersion int
	// AdmitVersion judges the cluster version that the directory tells, 0 for none, before anything is read or written; its
	// error is that of Open. nil: every version is good.
	AdmitVersion func(version int) error
	// FS is the file system; nil is the operating system's. Tests put faultfs here.
	FS FS
}

// Limits of the configuration.
const (
	minLogSegmentBytes  = 1 << 20 // below, every entry of full size would rotate the log
	maxLogSegmentBytes  = 1 << 30 // raft-wal counts in 32 bits
	minBodySegmentBytes = 4 << 10
	maxBodySegmentBytes = 1 << 30 // offsets are 32 bits, a segment may grow by one entry
	maxBodyCacheBytes   = 4 << 30
	maxRetainSnapshots  = 64
	maxBallastBytes     = 1 << 30
)

// Defaults returns the settings of a node with a handful of groups, without Dir.
func Defaults() Config {
	return Config{
		Log:              LogWAL,
		LogSegmentBytes:  16 << 20,
		BodySegmentBytes: 16 << 20,
		BodyCacheBytes:   32 << 20,
		RetainSnapshots:  2,
	}
}

// Validate reports every problem of the configuration at once.
func (c Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("storage: Dir is empty"))
	}
	if c.Log != LogWAL && c.Log != LogBolt {
		errs = append(errs, fmt.Errorf("storage: Log is %q, want %q or %q", c.Log, LogWAL, LogBolt))
	}
	within := func(name string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("storage: %s is %d, want %d to %d", name, v, lo, hi))
		}
	}
	within("LogSegmentBytes", c.LogSegmentBytes, minLogSegmentBytes, maxLogSegmentBytes)
	within("BodySegmentBytes", c.BodySegmentBytes, minBodySegmentBytes, maxBodySegmentBytes)
	within("BodyCacheBytes", c.BodyCacheBytes, 0, maxBodyCacheBytes)
	within("BallastBytes", c.BallastBytes, 0, maxBallastBytes)
	within("RetainSnapshots", c.RetainSnapshots, 1, maxRetainSnapshots)
	for _, name := range slices.Sorted(maps.Keys(c.Hard)) {
		if !plainName(name) {
			errs = append(errs, fmt.Errorf("storage: Hard has the name %q, want letters, digits, -", name))
		}
	}
	return errors.Join(errs...)
}

// plainName reports whether a name is safe as a file name and as a key: letters, digits, '-', '.',
// not beginning with a dot.
func plainName(name string) bool {
	if name == "" || len(name) > 64 || name[0] == '.' {
		return false
	}
	for _, r := range name {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.'
		if !ok {
			return false
		}
	}
	return true
}
