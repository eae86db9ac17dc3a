package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// Group is what one replica of a raft group keeps on disk. Any error of its parts, but for a log
// entry or a key that is not there, means that the replica must stop (A15, R3).
type Group struct {
	log       *Log
	stable    *Stable
	snapshots *Snapshots
	bodies    *Bodies
	rejoins   bool
	forget    func() // tells the Dir

	once  sync.Once
	close error
}

// openGroup opens a group, creating what is missing, and verifies what is there.
func openGroup(fsys FS, dir string, cfg Config, logger hclog.Logger) (*Group, error) {
	g := &Group{}
	if err := g.open(fsys, dir, cfg, logger); err != nil {
		return nil, errors.Join(err, g.closeParts())
	}
	return g, nil
}

func (g *Group) open(fsys FS, dir string, cfg Config, logger hclog.Logger) (err error) {
	if err := makeDirs(fsys, dir); err != nil {
		return err
	}
	// The libraries below the log and the votes know only the operating system's files.
	if err := makeDirs(osFS{}, dir); err != nil {
		return err
	}
	if err := removeTmp(fsys, dir); err != nil {
		return err
	}
	g.bodies, err = openBodies(fsys, filepath.Join(dir, "bodies"), cfg, logger.Named("bodies"))
	if err != nil {
		return err
	}
	if g.log, err = openLog(dir, cfg, logger); err != nil {
		return err
	}
	if g.stable, err = openStable(filepath.Join(dir, "votes.db")); err != nil {
		return err
	}
	g.snapshots, err = openSnapshots(fsys, filepath.Join(dir, "snapshots"), cfg, g.bodies, g.log,
		logger.Named("snapshots"))
	if err != nil {
		return err
	}
	return g.log.reconcile(g.snapshots.newest())
}

// Rejoins reports whether an earlier replica here was given up (Dir.Rebuild). This one must wait until its group
// takes it in, and must never found the group.
func (g *Group) Rejoins() bool { return g.rejoins }

// Log returns the raft log.
func (g *Group) Log() *Log { return g.log }

// Stable returns the store of term and vote.
func (g *Group) Stable() *Stable { return g.stable }

// Snapshots returns the snapshots.
func (g *Group) Snapshots() *Snapshots { return g.snapshots }

// Bodies returns the bodies of messages.
func (g *Group) Bodies() *Bodies { return g.bodies }

// Stats are the counters of a group since it was opened.
type Stats struct {
	Log       LogStats
	Bodies    BodyStats
	Snapshots SnapshotStats
}

// Stats returns the counters.
func (g *Group) Stats() Stats {
	return Stats{Log: g.log.Stats(), Bodies: g.bodies.Stats(), Snapshots: g.snapshots.Stats()}
}

// Close closes the files of the group, after raft's own shutdown. It may be called twice.
func (g *Group) Close() error {
	g.once.Do(func() {
		g.close = g.closeParts()
		if g.forget != nil {
			g.forget()
		}
	})
	return g.close
}

func (g *Group) closeParts() error {
	var errs []error
	if g.log != nil {
		errs = append(errs, g.log.Close())
	}
	if g.stable != nil {
		errs = append(errs, g.stable.Close())
	}
	if g.bodies != nil {
		errs = append(errs, g.bodies.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close group: %w", err)
	}
	return nil
}
