package simulation

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/cluster/callnet"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/partition/replica"
)

// program is the program that a node runs, as far as the other nodes can tell: the newest cluster version that it knows.
// The code is that of today, so an earlier program is played by what it is told to know.
type program struct {
	fsm.Version
	says fsm.Version // to the others; a lie only in a canary
}

// plays are the cluster versions that a run may begin with. Programs from before VersionPlacement take no wishes.
var plays = []fsm.Version{fsm.VersionPlacement, fsm.VersionUpgrades, fsm.VersionBackups, fsm.VersionRehoming,
	fsm.VersionChosen}

// raised notes the cluster version of a catalog. None is higher than one that was committed.
func (w *world) raised(v fsm.Version) {
	for {
		was := w.cluster.Load()
		if uint32(v) <= was || w.cluster.CompareAndSwap(was, uint32(v)) {
			return
		}
	}
}

// version is the highest cluster version that a catalog has had.
func (w *world) version() fsm.Version { return fsm.Version(w.cluster.Load()) }

// tooNew notes a command that the cluster, or the program of a node, does not know (I31).
func (w *world) tooNew(n *node, p fsm.PartitionID, index uint64, what string, e *fsm.Entry) {
	for i := range e.Requests {
		c := e.Requests[i].Command
		if err := replica.TooNew(c, w.version()); err != nil {
			w.spoil("I31", fmt.Errorf("%s %s entry %d of partition %d: %w", n.id, what, index, p, err))
		}
		if err := replica.TooNew(c, n.runs.Version); err != nil {
			w.spoil("I31", fmt.Errorf("%s, whose program knows %s, %s entry %d of partition %d: %w", n.id, n.runs.Version, what,
				index, p, err))
		}
	}
}

// storing looks at entries that are about to be written. Once the cluster has the newest version nothing is too new.
func (w *world) storing(n *node, p fsm.PartitionID, logs []*raft.Log) {
	if w.version() >= fsm.NewestVersion {
		return
	}
	for _, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		if e, err := fsm.DecodeEntry(l.Data); err == nil {
			w.tooNew(n, p, l.Index, "stores", e)
		}
	}
}

// calling looks at a call before it begins. A node that is asked to admit a version refuses it by itself (KindVersion).
func (w *world) calling(from, to fsm.NodeID, kind uint8) {
	since := w.calls[kind]
	if since <= fsm.VersionFirst || kind == partition.KindVersion {
		return
	}
	if m := w.computerOf(to); m != nil && fsm.Version(m.running.Load()) < since {
		w.spoil("I31", fmt.Errorf("%s makes call %d, which came with %s, to %s, whose program knows %s", from, kind, since, to,
			fsm.Version(m.running.Load())))
	}
}

// writing looks at the form of an image of a partition.
func (w *world) writing(n *node, image []byte) {
	head, has := []byte("BBSTATE"), w.version()
	if len(image) <= len(head) || !bytes.HasPrefix(image, head) || has >= fsm.NewestVersion {
		return
	}
	for _, f := range fsm.Formats() {
		if f.Name == "image" && f.Number == int(image[len(head)]) && f.Since > has {
			w.spoil("I31", fmt.Errorf("%s writes an image of form %d, which came with %s, and the cluster has %s", n.id, f.Number,
				f.Since, has))
		}
	}
}

// greeter is a port that takes the hellos of the mesh into account: nodes whose programs do not fit do not speak.
type greeter struct {
	*callnet.Port
	n    *node
	host atomic.Pointer[partition.Host] // nil while it is made
}

// versions is what a hello of the node would tell.
func (g *greeter) versions() cluster.Versions {
	v := cluster.Versions{Newest: g.n.runs.says, Oldest: fsm.OldestVersion}
	if h := g.host.Load(); h != nil {
		v.Has = min(h.ClusterVersion(), g.n.w.version()) // hasty programs greet like others
	}
	return v
}

func (g *greeter) fit(to fsm.NodeID) error {
	m := g.n.w.computerOf(to)
	if m == nil || m == g.n.machine {
		return nil
	}
	theirs := cluster.Versions{Newest: fsm.Version(m.says.Load()), Oldest: fsm.OldestVersion}
	if o := m.node; o != nil {
		theirs = o.greeter.versions()
	}
	if err := g.versions().Fit(theirs, string(g.n.id), string(to)); err != nil {
		g.n.w.c.add("hellos refused", 1)
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable, err)
	}
	return nil
}

// Call implements partition.Caller.
func (g *greeter) Call(ctx context.Context, to fsm.NodeID, kind uint8, b []byte) ([]byte, error) {
	if err := g.fit(to); err != nil {
		return nil, err
	}
	return g.Port.Call(ctx, to, kind, b)
}

// Begin implements partition.Caller.
func (g *greeter) Begin(to fsm.NodeID, kind uint8, b []byte, done func([]byte, error)) (func(error), bool) {
	if g.fit(to) != nil {
		return nil, false
	}
	return g.Port.Begin(to, kind, b, done)
}

// CallStream implements partition.Caller.
func (g *greeter) CallStream(ctx context.Context, to fsm.NodeID, kind uint8, head []byte, body io.Reader) ([]byte, error) {
	if err := g.fit(to); err != nil {
		return nil, err
	}
	return g.Port.CallStream(ctx, to, kind, head, body)
}

// programName is what a refusal to open data calls the program.
const programName = "a program of the simulation"

// refusedStart reports whether a start failed because the program is too old for the data directory, and said so.
func refusedStart(err error) bool {
	// by text: what the operator reads is what is looked for
	return err != nil && strings.Contains(err.Error(), "and this program, "+programName+", knows versions up to")
}

// hasty is a catalog that takes the version of the cluster for the newest one before it is. A program that asks it
// proposes too early.
func hasty(s *catalog.State) *catalog.View {
	if s.View().ClusterVersion() >= fsm.NewestVersion {
		return s.View()
	}
	var image bytes.Buffer
	early := catalog.New()
	if _, err := s.Capture().WriteTo(&image); err != nil {
		return s.View()
	}
	if err := early.Restore(&image); err != nil {
		return s.View()
	}
	raise := &catalog.Change{Raise: fsm.NewestVersion}
	early.Apply(1<<40, &fsm.Entry{Requests: []fsm.Request{{Command: raise.Command()}}})
	return early.View()
}
