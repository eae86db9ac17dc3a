package storage

import (
	"errors"
	"fmt"
	"path/filepath"
)

const (
	lifeFile    = "life.json"
	witnessFile = "witness.json"
)

// maxWitnessed bounds the nodes remembered; a cluster has a handful.
const maxWitnessed = 4096

// lifeText counts the starts of the node with this data directory. Its peers remember the highest
// count they heard of, so that an old copy of the whole directory does not pass for the node.
type lifeText struct {
	Life uint64 `json:"life"`
}

// Sighting is what a node remembers of another: the last of its lives that it heard of.
type Sighting struct {
	Life        uint64 `json:"life"`
	Incarnation uint64 `json:"incarnation"`
}

// beginLife counts this start, durably, before anything else is opened.
func (d *Dir) beginLife() error {
	var l lifeText
	name := filepath.Join(d.cfg.Dir, lifeFile)
	if _, err := readJSON(d.fsys, name, &l); err != nil {
		return err
	}
	l.Life++
	d.life = l.Life
	return writeJSON(d.fsys, name, l)
}

// Life returns how many times the node was started with this data directory.
func (d *Dir) Life() uint64 { return d.life }

// Witness remembers, durably, that a life of another node was heard of, and returns what was
// remembered before. Of two lives with the same number the first is kept.
func (d *Dir) Witness(node string, now Sighting) (before Sighting, err error) {
	d.witnessMu.Lock()
	defer d.witnessMu.Unlock()
	name := filepath.Join(d.cfg.Dir, witnessFile)
	seen := map[string]Sighting{}
	if _, err := readJSON(d.fsys, name, &seen); err != nil {
		return before, err
	}
	before = seen[node]
	if now.Life <= before.Life {
		return before, nil
	}
	if before.Life == 0 && len(seen) >= maxWitnessed {
		return before, errors.New("too many nodes are remembered")
	}
	seen[node] = now
	if err := writeJSON(d.fsys, name, seen); err != nil {
		return before, fmt.Errorf("remember node %s: %w", node, err)
	}
	return before, nil
}

// Outlive sets the count of starts above one that this directory does not know of. The next start is not taken for an
// old copy then. Distrust must have been called before.
func (d *Dir) Outlive(life uint64) error {
	return writeJSON(d.fsys, filepath.Join(d.cfg.Dir, lifeFile), lifeText{max(life, d.life)})
}
