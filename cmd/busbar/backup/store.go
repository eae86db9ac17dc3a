package backup

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
)

// Store holds backups, each under a name, with files in it. An error about what is not there is fs.ErrNotExist, about what
// is there already fs.ErrExist, and about a refused key fs.ErrPermission.
type Store interface {
	// Begin reserves a name for a new backup.
	Begin(ctx context.Context, backup string) error
	// Put makes a file that is there with all its content or not at all.
	Put(ctx context.Context, backup, file string, content func(io.Writer) error) error
	// Get opens a file.
	Get(ctx context.Context, backup, file string) (io.ReadCloser, error)
	// Backups lists the names in the store, of things that are no backups, too.
	Backups(ctx context.Context) ([]string, error)
	// Files lists what is under a name.
	Files(ctx context.Context, backup string) ([]string, error)
	// Discard deletes these files of a backup that was not finished, and its name.
	Discard(ctx context.Context, backup string, files []string) error
	// Where names a backup as people write it.
	Where(backup string) string
}

// Options reach a store that is no directory.
type Options struct {
	Endpoint string      // URL of the S3 service; empty for that of AWS
	Region   string      // empty for the one that the service names
	TLS      *tls.Config // nil for the authorities of the system
	// PartBytes are in memory while an object is written; 0 for 64 MiB. S3 takes 10,000 parts, so an object has up to 640 GiB.
	PartBytes uint64
}

// maxListed bounds a list of names from a store.
const maxListed = 100_000

var errListed = fmt.Errorf("the list has more than %d names", maxListed)
