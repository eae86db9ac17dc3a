package catalog

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"github.com/busbar-mq/busbar/fsm"
)

// An image is magic and version, the length of a JSON text, that text, and its CRC-32C
// (docs/formats/snapshot.md).
var imageMagic = [8]byte{'b', 'b', 'c', 'a', 't', 'a', 'l', 1}

// maxImageBytes bounds what a corrupt length can make Restore read.
const maxImageBytes = 1 << 30

type image struct {
	Wall     fsm.Wall
	Lease    fsm.Lease
	Epoch    uint64
	Index    uint64
	Version  uint64
	NextID   fsm.EntityID
	Entities []*fsm.Descriptor
	Groups   []Group
	Nodes    []Node
	Lost     []fsm.Incarnation
	Removed  []fsm.NodeID `json:",omitempty"`
	Level    fsm.Version  `json:",omitempty"` // the cluster version
	// Rehomings is absent when it is empty.
	Rehomings []Rehoming `json:",omitempty"`
	Results   []remembered
}

type remembered struct {
	pump
	result
}

// capture is what Capture takes along: a view, which never changes, and copies of the small rest.
type capture struct {
	State
	view *View
}

// Capture returns an image of the catalog as it is now; it may be written while Apply goes on.
func (s *State) Capture() io.WriterTo {
	c := &capture{State: *s, view: s.view}
	c.results = maps.Clone(s.results)
	return c
}

// WriteTo writes the image.
func (c *capture) WriteTo(w io.Writer) (int64, error) {
	m := image{Wall: c.wall, Lease: c.lease, Epoch: c.epoch, Index: c.index, Version: c.view.version,
		NextID: c.view.nextID, Entities: c.view.ids.Values(), Groups: c.view.Groups(),
		Nodes: c.view.Nodes(), Lost: c.view.lost, Removed: c.view.removed, Level: c.view.cluster,
		Rehomings: c.view.Rehomings()}
	for k, r := range c.results { // ordered: sorted below
		m.Results = append(m.Results, remembered{k, r})
	}
	slices.SortFunc(m.Results, func(a, b remembered) int {
		if older(a.pump, a.result, b.pump, b.result) {
			return -1
		}
		return 1
	})
	text := encode(&m)
	b := append([]byte(nil), imageMagic[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(text)))
	b = append(b, text...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
	n, err := w.Write(b)
	return int64(n), err
}

// Restore replaces the catalog by an image and reads no byte more than that.
func (s *State) Restore(r io.Reader) error {
	var head [16]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("catalog image: %w", err)
	}
	if [8]byte(head[:8]) != imageMagic {
		return fmt.Errorf("%w: not a catalog image of version 1", fsm.ErrFormat)
	}
	n := binary.LittleEndian.Uint64(head[8:])
	if n > maxImageBytes {
		return fmt.Errorf("%w: catalog image of %d bytes", fsm.ErrFormat, n)
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n)+4)) // grows with what is really there
	if err != nil {
		return fmt.Errorf("catalog image: %w", err)
	}
	if uint64(len(b)) != n+4 {
		return fmt.Errorf("%w: catalog image is truncated", fsm.ErrFormat)
	}
	text := b[:n]
	if crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(b[n:]) {
		return fmt.Errorf("%w: catalog image has a wrong checksum", fsm.ErrFormat)
	}
	var m image
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("%w: catalog image: %w", fsm.ErrFormat, err)
	}
	if m.Level > fsm.NewestVersion {
		return fmt.Errorf("%w: catalog image of cluster version %s, this program knows %s at most", fsm.ErrFormat, m.Level,
			fsm.NewestVersion)
	}
	s.install(&m)
	return nil
}

func (s *State) install(m *image) {
	v := &View{version: m.Version, nextID: m.NextID, names: btree.Map[string, *fsm.Descriptor]{},
		lost: m.Lost, removed: m.Removed, cluster: m.Level}
	for _, d := range m.Entities {
		if d != nil {
			v.put(d)
		}
	}
	for _, g := range m.Groups {
		v.groups.Set(g.ID, g)
	}
	for _, r := range m.Rehomings {
		v.rehomings.Set(r.ID, r)
	}
	for _, n := range m.Nodes {
		v.nodes.Set(n.ID, n)
	}
	*s = State{wall: m.Wall, lease: m.Lease, epoch: m.Epoch, index: m.Index, view: v,
		results: map[pump]result{}}
	for _, r := range m.Results {
		s.results[r.pump] = r.result
	}
}
