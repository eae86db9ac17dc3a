package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
)

// Versions are the cluster versions of a node, as its hello tells them.
type Versions struct {
	// Newest and Oldest are what the program of the node knows and works with.
	Newest, Oldest fsm.Version
	// Has is the cluster version as the node has heard.
	Has fsm.Version
}

// untold are the versions of a program that does not tell any.
var untold = Versions{Newest: fsm.VersionPlacement, Oldest: fsm.VersionFirst}

// errVersions says that the programs of two nodes do not fit.
var errVersions = errors.New("the programs do not fit")

const versionsBytes = 3 * 4

func appendVersions(b []byte, v *Versions) []byte {
	if v == nil {
		return b
	}
	b = append(b, tagVersions, versionsBytes)
	for _, n := range []fsm.Version{v.Newest, v.Oldest, v.Has} {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	return b
}

func parseVersions(b []byte) *Versions {
	number := func(at int) fsm.Version { return fsm.Version(binary.BigEndian.Uint32(b[4*at:])) }
	return &Versions{Newest: number(0), Oldest: number(1), Has: number(2)}
}

// versions is what this node says of itself, nil if nobody told it.
func (m *Mesh) versions() *Versions {
	if m.cfg.Versions == nil {
		return nil
	}
	v := m.cfg.Versions()
	return &v
}

// checkVersions refuses a node whose program is more than one minor release away. It refuses one that does not know the
// version of the cluster here, and one of a cluster whose version this program does not know.
func (m *Mesh) checkVersions(peer identity) error {
	own, other := m.versions(), peer.versions
	if own == nil {
		return nil
	}
	if other == nil {
		other = &untold
	}
	return own.Fit(*other, "this node", fmt.Sprintf("node %s", peer.node))
}

// Fit returns why two nodes do not take each other, nil if they do. The names are for people.
func (v Versions) Fit(theirs Versions, here, there string) error {
	for _, c := range []struct {
		old, new   *Versions
		olds, news string
	}{{&theirs, &v, there, here}, {&v, &theirs, here, there}} {
		switch {
		case c.old.Newest < c.new.Has:
			return fmt.Errorf("%w: %s knows cluster versions up to %s, and the cluster of %s has %s: run release %s or later on "+
				"%s", errVersions, c.olds, c.old.Newest, c.news, c.new.Has, c.new.Has.Release(), c.olds)
		case c.old.Newest < c.new.Oldest:
			return fmt.Errorf("%w: %s knows cluster versions up to %s, and %s works with %s and later: upgrade by one minor "+
				"release at a time, to %s first", errVersions, c.olds, c.old.Newest, c.news, c.new.Oldest, c.new.Oldest.Release())
		}
	}
	return nil
}
