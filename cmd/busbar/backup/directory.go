package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// directory is a store whose backups are directories in it. Files can be read by their owner only, because they hold keys.
type directory string

const (
	dirMode  = 0o700
	fileMode = 0o600
	// unfinished begins the name of a file that is written. No file of a backup begins so.
	unfinished = ".unfinished-"
)

func (d directory) Where(backup string) string { return filepath.Join(string(d), backup) }

func (d directory) Begin(_ context.Context, backup string) error {
	if err := os.MkdirAll(string(d), dirMode); err != nil {
		return err
	}
	if err := os.Mkdir(d.Where(backup), dirMode); err != nil {
		return err
	}
	return syncDir(string(d))
}

func (d directory) Put(_ context.Context, backup, file string, content func(io.Writer) error) (err error) {
	path := filepath.Join(d.Where(backup), file)
	temporary := filepath.Join(d.Where(backup), unfinished+file)
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	err = content(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDir(d.Where(backup))
}

// syncDir makes new names in a directory durable.
func syncDir(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Sync()
}

func (d directory) Get(_ context.Context, backup, file string) (io.ReadCloser, error) {
	path := filepath.Join(d.Where(backup), file)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe of somebody else would never end
		return nil, fmt.Errorf("%s is no file", path)
	}
	return os.Open(path)
}

func (d directory) Backups(_ context.Context) ([]string, error) {
	return d.names(string(d), func(e fs.DirEntry) bool { return e.IsDir() })
}

func (d directory) Files(_ context.Context, backup string) ([]string, error) {
	return d.names(d.Where(backup), func(fs.DirEntry) bool { return true })
}

func (d directory) names(path string, keep func(fs.DirEntry) bool) (names []string, err error) {
	entries, err := os.ReadDir(path) // in order
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !keep(e) {
			continue
		}
		if names = append(names, e.Name()); len(names) > maxListed {
			return nil, fmt.Errorf("%s: %w", path, errListed)
		}
	}
	return names, nil
}

func (d directory) Discard(_ context.Context, backup string, files []string) (err error) {
	for _, file := range files {
		if e := os.Remove(filepath.Join(d.Where(backup), file)); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	// Files of somebody else stay.
	if left, e := d.Files(context.Background(), backup); e == nil && len(left) > 0 {
		return errors.Join(err, fmt.Errorf("%s is not empty: it has %s", d.Where(backup), strings.Join(left[:min(len(left), 5)], ", ")))
	}
	return errors.Join(err, os.Remove(d.Where(backup)))
}
