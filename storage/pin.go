package storage

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/tidwall/btree"
)

// pin is the result of Pin: a copy of the index, and the segments that it points to. The copy takes microseconds
// whatever its size (A8). The segments stay until Close.
type pin struct {
	b     *Bodies
	nonce uint64
	index *btree.Map[uint64, recordAt]
	dead  *btree.BTreeG[deadBody]
	segs  []pinnedSegment
	// Guarded by b.mu.
	written blockTrailer // of the manifest; length 0 until it is written
	closed  bool
}

type pinnedSegment struct {
	seg    *segment
	extent uint32
}

// Pin freezes what is kept now for a snapshot or a backup. WriteTo appends a manifest to the snapshot, after the
// image; what it names is durable by then. Inline writes the bodies themselves. The segments live until Close, or as long as the
// snapshot that was made of it.
func (b *Bodies) Pin() interface {
	io.WriterTo
	Inline(io.Writer) (int64, error)
	io.Closer
} {
	// The nonce tells the manifests of this process from anything that a peer may send: only a
	// manifest of our own may name our segments.
	var nonce [8]byte
	_, _ = rand.Read(nonce[:])

	b.mu.Lock()
	defer b.mu.Unlock()
	p := &pin{b: b, nonce: binary.LittleEndian.Uint64(nonce[:]), index: b.index.IsoCopy(),
		dead: b.dead.IsoCopy()}
	for _, seg := range b.segments {
		if seg.entries > 0 {
			seg.pins++
			p.segs = append(p.segs, pinnedSegment{seg, seg.end})
		}
	}
	slices.SortFunc(p.segs, func(a, b pinnedSegment) int { return cmp.Compare(a.seg.id, b.seg.id) })
	b.pins[p.nonce] = p
	return p
}

// WriteTo syncs the segments and writes the manifest.
func (p *pin) WriteTo(w io.Writer) (int64, error) {
	for _, s := range p.segs {
		if err := p.b.syncSegment(s); err != nil {
			return 0, err
		}
	}
	if err := p.b.syncNames(); err != nil {
		return 0, err
	}
	bw := newBlockWriter(w)
	t, err := p.writeManifest(bw)
	if err == nil {
		err = bw.finish(t)
	}
	if err != nil {
		return int64(bw.length), fmt.Errorf("write manifest of bodies: %w", err)
	}
	t.length = bw.length
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.written = t
	return int64(bw.length), nil
}

func (p *pin) writeManifest(bw *blockWriter) (t blockTrailer, err error) {
	t = blockTrailer{kind: kindManifest, nonce: p.nonce, entries: uint64(p.index.Len())}
	if _, err := bw.Write(blockHeader(kindManifest, p.nonce)); err != nil {
		return t, err
	}
	if err := bw.numbers(uint64(len(p.segs))); err != nil {
		return t, err
	}
	for _, s := range p.segs {
		if err := bw.numbers(uint64(s.seg.id), uint64(s.extent)); err != nil {
			return t, err
		}
	}
	if err := bw.numbers(t.entries); err != nil {
		return t, err
	}
	var last uint64
	p.index.Scan(func(index uint64, at recordAt) bool {
		var dead []Span
		if at.waste > 0 {
			dead = deadOf(p.dead, index)
		}
		err = bw.numbers(index-last,
			uint64(at.seg), uint64(at.offset), uint64(at.length), uint64(len(dead)))
		last = index
		end := uint32(0)
		for _, s := range dead {
			if err == nil {
				err = bw.numbers(uint64(s.Offset-end), uint64(s.Length))
			}
			end = s.Offset + s.Length
		}
		t.bytes += uint64(at.length - at.waste)
		return err == nil
	})
	return t, err
}

// Close gives the segments back.
func (p *pin) Close() error {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	delete(p.b.pins, p.nonce)
	p.b.unpinLocked(p.segs)
	p.segs, p.index, p.dead = nil, nil, nil
	return nil
}

// syncSegment makes a segment durable up to what the pin needs of it.
func (b *Bodies) syncSegment(s pinnedSegment) error {
	b.mu.Lock()
	done, failed := s.seg.synced >= s.extent, b.failed
	b.mu.Unlock()
	if failed != nil {
		return failed
	}
	if done {
		return nil
	}
	if err := b.flush(s); err != nil {
		return fmt.Errorf("write segment %d of bodies: %w", s.seg.id, err)
	}
	if err := s.seg.file.Sync(); err != nil {
		return b.fail(fmt.Errorf("sync segment %d of bodies: %w", s.seg.id, err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.seg.synced = max(s.seg.synced, s.extent)
	b.stats.Syncs++
	return nil
}

// syncNames makes the names of the segments durable.
func (b *Bodies) syncNames() error {
	b.mu.Lock()
	dirty := b.dirDirty
	b.dirDirty = false
	b.mu.Unlock()
	if !dirty {
		return nil
	}
	if err := b.fsys.SyncDir(b.dir); err != nil {
		return b.fail(fmt.Errorf("sync directory of bodies: %w", err))
	}
	return nil
}

func (b *Bodies) unpinLocked(segs []pinnedSegment) {
	for _, s := range segs {
		s.seg.pins--
		b.retireLocked(s.seg)
	}
}

func (b *Bodies) unpin(segs []pinnedSegment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unpinLocked(segs)
}

// claimPin pins the segments of a manifest for the snapshot that now ends with it. It refuses a
// manifest that no open pin of this process wrote.
func (b *Bodies) claimPin(t blockTrailer) ([]pinnedSegment, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pins[t.nonce]
	if p == nil || p.written.length == 0 || p.written.length != t.length ||
		p.written.entries != t.entries || p.written.bytes != t.bytes {
		return nil, fmt.Errorf("snapshot names bodies that are not of this node: %w", ErrCorrupt)
	}
	segs := append([]pinnedSegment(nil), p.segs...)
	for _, s := range segs {
		s.seg.pins++
	}
	return segs, nil
}

// claimSegments opens and pins the segments of a snapshot that was found at open.
func (b *Bodies) claimSegments(extents []segmentExtent) (segs []pinnedSegment, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range extents {
		seg := b.segments[e.ID]
		if seg == nil {
			f, err := b.fsys.Open(segmentName(b.dir, e.ID))
			if err != nil {
				b.unpinLocked(segs)
				return nil, err
			}
			seg = &segment{id: e.ID, file: f, sealed: true}
		}
		if err := checkHeader(seg.file, e.ID, e.Extent); err != nil {
			if b.segments[e.ID] == nil {
				_ = seg.file.Close()
			}
			b.unpinLocked(segs)
			return nil, fmt.Errorf("%s: %w", segmentName(b.dir, e.ID), err)
		}
		seg.size = max(seg.size, e.Extent)
		seg.end, seg.written, seg.synced = seg.size, seg.size, seg.size
		seg.pins++
		b.segments[e.ID] = seg
		segs = append(segs, pinnedSegment{seg, e.Extent})
	}
	return segs, nil
}
