package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

const (
	ballastFile = "BALLAST"
	// ballastStep is written at once; the file must have blocks of its own, so it is written, not
	// declared.
	ballastStep = 1 << 20
	// ballastShare bounds the ballast on a small disk: 1/64 of it.
	ballastShare = 64
)

// Ballast takes Config.BallastBytes of the disk, or gives them back when nothing else is left, so that
// logs can still be cut and elections held. Taking what is taken, or giving what is not there, does
// nothing.
func (d *Dir) Ballast(hold bool) error {
	d.witnessMu.Lock()
	defer d.witnessMu.Unlock()
	name := filepath.Join(d.cfg.Dir, ballastFile)
	if !hold {
		return d.giveBallast(name)
	}
	if d.cfg.BallastBytes == 0 {
		return nil
	}
	_, total, err := d.Space()
	if err != nil {
		return err
	}
	if err := d.takeBallast(name, min(int64(d.cfg.BallastBytes), int64(total/ballastShare))); err != nil {
		return errors.Join(fmt.Errorf("take ballast: %w", err), d.giveBallast(name))
	}
	return nil
}

// giveBallast removes the ballast and what there is of an unfinished one.
func (d *Dir) giveBallast(name string) error {
	for _, name := range []string{name, name + tmpSuffix} {
		if err := d.fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("give up ballast: %w", err)
		}
	}
	return nil
}

// takeBallast writes a file that is there whole or not at all. After a crash in the middle nobody would know which of
// its blocks the disk has.
func (d *Dir) takeBallast(name string, size int64) error {
	if f, err := d.fsys.Open(name); err == nil {
		has, err := f.Size()
		if err := errors.Join(err, f.Close()); err != nil || has >= size {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.fsys.Create(name + tmpSuffix)
	if err != nil {
		return err
	}
	step := make([]byte, ballastStep)
	for i := range step {
		step[i] = byte(i) | 1 // some file systems keep no zeros
	}
	for at := int64(0); err == nil && at < size; at += ballastStep {
		_, err = f.WriteAt(step, at)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := d.fsys.Rename(name+tmpSuffix, name); err != nil {
		return err
	}
	return d.fsys.SyncDir(d.cfg.Dir)
}
