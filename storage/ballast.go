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
		err := d.fsys.Remove(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("give up ballast: %w", err)
		}
		return nil
	}
	if d.cfg.BallastBytes == 0 {
		return nil
	}
	_, total, err := d.Space()
	if err != nil {
		return err
	}
	if err := d.takeBallast(name, min(int64(d.cfg.BallastBytes), int64(total/ballastShare))); err != nil {
		return errors.Join(fmt.Errorf("take ballast: %w", err), d.fsys.Remove(name))
	}
	return nil
}

func (d *Dir) takeBallast(name string, size int64) error {
	f, err := d.fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = d.fsys.Create(name)
	}
	if err != nil {
		return err
	}
	at, err := f.Size()
	step := make([]byte, ballastStep)
	for i := range step {
		step[i] = byte(i) | 1 // some file systems keep no zeros
	}
	for ; err == nil && at < size; at += ballastStep {
		_, err = f.WriteAt(step, at)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
