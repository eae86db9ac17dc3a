package storage

import (
	"path/filepath"

	"github.com/hashicorp/go-hclog"
)

// Replica is what of a group goes through the seam: all but the log and the votes.
type Replica struct {
	Bodies    *Bodies
	Snapshots *Snapshots
}

// Bounds are those of a log that a test makes up.
type Bounds struct{ First, Last uint64 }

func (b Bounds) FirstIndex() (uint64, error) { return b.First, nil }
func (b Bounds) LastIndex() (uint64, error)  { return b.Last, nil }

// OpenReplica opens bodies and snapshots on any file system.
func OpenReplica(fsys FS, dir string, cfg Config, log Bounds) (*Replica, error) {
	logger := hclog.NewNullLogger()
	b, err := openBodies(fsys, filepath.Join(dir, "bodies"), cfg, logger)
	if err != nil {
		return nil, err
	}
	s, err := openSnapshots(fsys, filepath.Join(dir, "snapshots"), cfg, b, log, logger)
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	return &Replica{b, s}, nil
}

// SweepAll does what the sweeper would do in the background, now.
func (b *Bodies) SweepAll() {
	for b.sweepStep() { //nolint:revive // the step is the work
	}
}

// WriteSmall and ReadSmall are the small files.
var (
	WriteSmall = writeSmall
	ReadSmall  = readSmall
	ScanInline = scanInline
)

// OS is the operating system's file system.
var OS FS = osFS{}

// DirectFile is what a file system gives for writes past the page cache.
type DirectFile = directFile

// Whole says that an entry is one body.
func Whole(entry []byte) []Span { return []Span{{Length: uint32(len(entry))}} }

// Admit and Rejoins are what Group does before it opens anything.
func (d *Dir) Admit(id uint16) error {
	_, err := d.admit(id)
	return err
}

func (d *Dir) Rejoins(id uint16) bool {
	rec, _, err := d.record(id)
	return err == nil && rec.Removed > 0
}

// TakeEnd and WriteEnd are what a log does with the note of its end when it is opened and closed.
func TakeEnd(fsys FS, log string, index uint64) error {
	return takeEnd(fsys, log, position{index: index, term: 1})
}

func WriteEnd(fsys FS, log string, index uint64) error {
	return writeEnd(fsys, log, position{index: index, term: 1})
}
