package simulation

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

// machine is the computer that a node runs on: what survives the process.
type machine struct {
	id fsm.NodeID
	// name is what people call the node. A machine that comes in the place of one whose disk was lost has its name.
	name string
	ip   string
	zone string // "" without zones
	dir  string // for the files that package storage gives to other libraries; they stay empty
	fs   *faultfs.FS
	disk *disk
	life int
	// knows is the newest cluster version that the program knows with which the machine starts next; the nemesis owns it.
	knows fsm.Version
	// running is what the program of the present life knows, and says what it tells the others.
	running, says atomic.Uint32
	node          *node // nil while it is down
	// failed are the errors of starts that did not succeed.
	failed []error
	// founder says that the node is one of those that founded the cluster.
	founder bool
	// wish is what an operator wants of the node; the nemesis owns it.
	wish catalog.Wish
	// stopped says that the process ended in good order and was not started since: gossip tells that the node has left.
	stopped atomic.Bool
	// over says that nothing runs here again: the disk is lost, or an operator has switched the machine off.
	over atomic.Bool
	// out says that the cluster has forgotten the node.
	out atomic.Bool
}

// machines returns all machines that ever were, in the order in which they came.
func (w *world) machines() []*machine { return *w.all.Load() }

// there returns the machines of the nodes that belong to the cluster, or will.
func (w *world) there() []*machine {
	return slices.DeleteFunc(slices.Clone(w.machines()), func(m *machine) bool { return m.over.Load() || m.out.Load() })
}

// founder adds a machine whose node founds the cluster with the other founders.
func (w *world) founder() *machine {
	m := w.addMachine("", "", "")
	m.founder = true
	if w.cfg.Begins > 0 {
		m.knows = w.cfg.Begins
	}
	return m
}

// addMachine adds a machine whose node does not run yet. Empty texts get values of their own. With the name, the
// address and the zone of another machine it takes that one's place. Identity and disk are its own.
func (w *world) addMachine(name, ip, zone string) *machine {
	rng := w.rng()
	w.mu.Lock()
	defer w.mu.Unlock()
	all := *w.all.Load()
	number := len(all) + 1
	id := fmt.Sprintf("n%d", number)
	m := &machine{id: fsm.NodeID(id), name: name, ip: ip, zone: zone, dir: filepath.Join(w.cfg.Dir, id),
		knows: fsm.NewestVersion, fs: faultfs.New(), disk: newDisk(rng, w.cfg.SyncTime)}
	if name == "" {
		m.name, m.ip = id, fmt.Sprintf("10.0.0.%d", number)
		if w.cfg.Zones > 0 {
			m.zone = fmt.Sprintf("z%d", number%w.cfg.Zones+1)
		}
	}
	longer := append(slices.Clone(all), m)
	w.all.Store(&longer)
	return m
}

// computerOf returns the machine of a node, nil if there never was one.
func (w *world) computerOf(id fsm.NodeID) *machine {
	for _, m := range w.machines() {
		if m.id == id {
			return m
		}
	}
	return nil
}

// alive returns the nodes whose processes run, as gossip tells a node that looks for its name.
func (w *world) alive() (ids []fsm.NodeID) {
	for _, m := range w.machines() {
		if m.node != nil {
			ids = append(ids, m.id)
		}
	}
	return ids
}

// left reports whether gossip tells that a node was stopped in good order.
func (w *world) left(id fsm.NodeID) bool {
	m := w.computerOf(id)
	return m != nil && m.stopped.Load()
}

// view returns the newest catalog that a node has.
func (w *world) view() (newest *catalog.View) {
	for _, m := range w.machines() {
		n := m.node
		if n == nil {
			continue
		}
		if v := n.directory.View(); v != nil && (newest == nil || v.Version() > newest.Version()) {
			newest = v
		}
	}
	return newest
}
