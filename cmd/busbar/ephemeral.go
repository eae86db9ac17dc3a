package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/busbar-mq/busbar/storage"
)

// ephemeralPrefix begins the names of directories of ephemeral nodes.
const ephemeralPrefix = "busbar-ephemeral-"

// ephemeralDir is the data directory of this process if it is an ephemeral node. Nobody can make it before the node does,
// because the name is drawn.
var ephemeralDir = sync.OnceValue(func() string {
	return filepath.Join(os.TempDir(), ephemeralPrefix+rand.Text())
})

// validateEphemeral reports settings that an ephemeral node cannot have.
func (c *Config) validateEphemeral(bad func(string, ...any)) {
	if c.DataDir != "" {
		bad("ephemeral and data-dir exclude each other: an ephemeral node keeps nothing")
	}
	if c.BootstrapExpect != 1 || len(c.Join) > 0 {
		bad("ephemeral is for a cluster of one node: set bootstrap-expect to 1, and leave join out")
	}
}

// openEphemeral makes the directory of an ephemeral node, which goes when the node is closed. Directories of ephemeral
// nodes that were killed go, too. An ephemeral node reserves little space ahead.
func (n *node) openEphemeral(cfg *storage.Config) error {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), ephemeralPrefix+"*"))
	for _, dir := range left {
		if removed, err := storage.RemoveUnused(dir); err != nil {
			n.log.Debug("the directory of an ephemeral node stays", "dir", dir, "error", err)
		} else if removed {
			n.log.Info("removed the directory of an ephemeral node that was killed", "dir", dir)
		}
	}
	if err := os.Mkdir(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("ephemeral: %w", err)
	}
	n.onClose(func(context.Context) error { return os.RemoveAll(cfg.Dir) })
	cfg.BallastBytes, cfg.LogSegmentBytes = 0, ephemeralSegment
	return nil
}

// ephemeralSegment is the size of a segment of a log. Each partition reserves one.
const ephemeralSegment = 1 << 20
