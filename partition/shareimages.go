package partition

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// shareImages are the images of shares that this node has captured for moves to other partitions. A body is read when it
// is asked for: one that was freed meanwhile belongs to nobody any more.
type shareImages struct {
	mu   sync.Mutex
	held map[uint64]*shareImage
}

const (
	// shareImageLife is how long an image is kept that nobody reads.
	shareImageLife = time.Minute
	// maxShareImages bounds the images that one node holds.
	maxShareImages = 8
	// shareChunk is about how much of bodies or of an image one call reads.
	shareChunk = 512 << 10
)

// A call opens an image, reads bodies or records of it, or closes it.
const (
	shareOpen byte = iota
	shareBodies
	shareRecords
	shareClose
)

// shareAsk is one call about the image of a share. An image has a name, which the one who asks draws.
type shareAsk struct {
	Name   uint64       `json:"name"`
	Entity fsm.EntityID `json:"entity,omitempty"`
	Epoch  uint64       `json:"epoch,omitempty"` // the share is closed for that move; 0 for a share that serves
	After  uint64       `json:"after,omitempty"` // bodies of that entry and earlier ones are left out
	At     uint64       `json:"at,omitempty"`    // the next body, or the offset in the records
}

// sharePoint is what is known of an image.
type sharePoint struct {
	Index    uint64 `json:"index"`
	Closed   bool   `json:"closed"`
	Messages int    `json:"messages"`
	Bodies   int    `json:"bodies"`
	Bytes    uint64 `json:"bytes"`   // of bodies
	Records  uint64 `json:"records"` // length of the image of a closed share
	Sum      uint32 `json:"sum"`
}

type shareImage struct {
	refs    []fsm.BodyRef
	records []byte
	expiry  *time.Timer
}

// errNotClosed says that a replica has not closed a share for a move yet.
var errNotClosed = errors.New("the share is not closed for that move here")

// serve answers a call about the image of a share.
func (s *shareImages) serve(_ context.Context, r *replica.Replica, b []byte) ([]byte, error) {
	var ask shareAsk
	if len(b) == 0 || json.Unmarshal(b[1:], &ask) != nil {
		return nil, fmt.Errorf("image of a share, asked for in %d bytes: %w", len(b), fsm.ErrFormat)
	}
	if b[0] == shareOpen {
		return s.open(r, &ask)
	}
	s.mu.Lock()
	img := s.held[ask.Name]
	if img != nil && b[0] == shareClose {
		img.expiry.Stop()
		delete(s.held, ask.Name)
	}
	s.mu.Unlock()
	switch {
	case b[0] == shareClose:
		return success(0), nil
	case img == nil:
		return nil, fmt.Errorf("no such image of a share: %w", fsm.ErrUnavailable)
	}
	img.expiry.Reset(shareImageLife)
	if b[0] == shareRecords {
		at := min(ask.At, uint64(len(img.records)))
		return append(success(shareChunk), img.records[at:min(at+shareChunk, uint64(len(img.records)))]...), nil
	}
	return img.bodies(r, ask.At)
}

// sharer is a Machine that has images of shares; fsm.State is one.
type sharer interface {
	CaptureShare(id fsm.EntityID, epoch uint64) (*fsm.ShareImage, bool)
}

func (s *shareImages) open(r *replica.Replica, ask *shareAsk) ([]byte, error) {
	var captured *fsm.ShareImage
	r.View(func(m replica.Machine, _ uint64) {
		if c, ok := m.(sharer); ok {
			captured, _ = c.CaptureShare(ask.Entity, ask.Epoch)
		}
	})
	if captured == nil {
		return nil, fmt.Errorf("%w: %w", errNotClosed, fsm.ErrUnavailable)
	}
	point := sharePoint{Index: captured.Index, Closed: captured.Closed, Messages: captured.Messages}
	img := &shareImage{}
	captured.EachBody(func(ref fsm.BodyRef) {
		if ref.Index > ask.After {
			img.refs = append(img.refs, ref)
		}
	})
	slices.SortFunc(img.refs, func(a, b fsm.BodyRef) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Offset, b.Offset))
	})
	img.refs = slices.CompactFunc(img.refs, func(a, b fsm.BodyRef) bool { return a.Index == b.Index && a.Offset == b.Offset })
	for _, ref := range img.refs {
		point.Bytes += uint64(ref.Length)
	}
	point.Bodies = len(img.refs)
	if ask.Epoch != 0 {
		var w bytes.Buffer
		if _, err := captured.WriteTo(&w); err != nil {
			return nil, err
		}
		img.records = w.Bytes()
		point.Records = uint64(w.Len())
		point.Sum = crc32.Checksum(img.records, crc32.MakeTable(crc32.Castagnoli))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) >= maxShareImages {
		return nil, fmt.Errorf("%d images of shares are held already: %w", len(s.held), fsm.ErrBusy)
	}
	if s.held == nil {
		s.held = map[uint64]*shareImage{}
	}
	img.expiry = time.AfterFunc(shareImageLife, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.held, ask.Name)
	})
	s.held[ask.Name] = img
	text, err := json.Marshal(&point)
	return append(success(len(text)), text...), err
}

// bodies answers with the next bodies: how far they go, then place, length and bytes of each.
func (img *shareImage) bodies(r *replica.Replica, at uint64) ([]byte, error) {
	out := binary.BigEndian.AppendUint64(success(shareChunk), 0)
	head := len(out) - 8
	for n := 0; at < uint64(len(img.refs)) && n < shareChunk; at++ {
		ref := img.refs[at]
		one := []fsm.Delivery{{Ref: ref}}
		err := r.Fill(one)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = binary.BigEndian.AppendUint64(out, ref.Index)
		out = binary.BigEndian.AppendUint32(out, ref.Offset)
		out = binary.BigEndian.AppendUint32(out, uint32(len(one[0].Body)))
		out = append(out, one[0].Body...)
		n += len(one[0].Body) + 16
	}
	binary.BigEndian.PutUint64(out[head:], at)
	return out, nil
}

// close gives all images up.
func (s *shareImages) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, img := range s.held { // order-free: each for itself
		img.expiry.Stop()
	}
	s.held = nil
}

// movedBody is a body with its place at the old home.
type movedBody struct {
	at   fsm.BodyRef
	body []byte
}

// parseBodies reads what shareImage.bodies wrote.
func parseBodies(b []byte) (next uint64, list []movedBody, err error) {
	bad := fmt.Errorf("bodies of a share: %w", fsm.ErrFormat)
	if len(b) < 8 {
		return 0, nil, bad
	}
	next, b = binary.BigEndian.Uint64(b), b[8:]
	for len(b) > 0 {
		if len(b) < 16 {
			return 0, nil, bad
		}
		at := fsm.BodyRef{Index: binary.BigEndian.Uint64(b), Offset: binary.BigEndian.Uint32(b[8:]),
			Length: binary.BigEndian.Uint32(b[12:])}
		if b = b[16:]; uint64(at.Length) > uint64(len(b)) {
			return 0, nil, bad
		}
		list = append(list, movedBody{at, b[:at.Length:at.Length]})
		b = b[at.Length:]
	}
	return next, list, nil
}
