package partition

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// BodyReader reads the bodies behind the image of a partition from r, exactly to their end. It calls each with the index
// of the entry that brought a body, with the offset in that entry, and with the bytes. The bytes may be used again after
// the call. Bodies come in order of index and offset. storage.EachBody is one.
type BodyReader func(r io.Reader, each func(index uint64, offset uint32, body []byte) error) error

// ImageReport is what CheckImage has found in the image of one partition.
type ImageReport struct {
	Partition fsm.PartitionID `json:"partition"`
	Index     uint64          `json:"index"` // of the last entry in it, which may be one of raft without a command
	Wall      fsm.Wall        `json:"wall"`  // stamped by the last entry with a command
	fsm.Census
	Bodies    uint64 `json:"bodies"` // that something refers to
	BodyBytes uint64 `json:"body_bytes"`
}

// CheckImage reads the image of a partition with the bodies behind it, as a backup holds them, to the end of r. It
// restores the image into an empty state machine, which counts everything anew. It checks the invariants of the state, and
// looks at every body that something refers to. It keeps no body, and needs memory for the state alone. An error names
// the place.
func CheckImage(r io.Reader, bodies BodyReader) (ImageReport, error) {
	var out ImageReport
	s, index, err := loadImage(r)
	if err != nil {
		return out, err
	}
	out.Partition, out.Index, out.Census = s.ID(), index, s.Census()
	out.Wall, _ = s.Clocks()
	if err := s.CheckInvariants(); err != nil {
		return out, fmt.Errorf("image of partition %d: %w", s.ID(), err)
	}
	w := wantedBodies(s)
	if err := bodies(r, func(index uint64, offset uint32, body []byte) error {
		return w.take(index, offset, body, func(_ fsm.BodyRef, b []byte) error {
			out.Bodies++
			out.BodyBytes += uint64(len(b))
			return nil
		})
	}); err != nil {
		return out, fmt.Errorf("bodies of partition %d: %w", s.ID(), err)
	}
	if err := w.end(); err != nil {
		return out, fmt.Errorf("bodies of partition %d: %w", s.ID(), err)
	}
	if n, err := r.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return out, fmt.Errorf("image of partition %d: %w: there is more behind its end (%v)", s.ID(), fsm.ErrFormat, err)
	}
	return out, nil
}

// loadImage reads the image of a partition, up to its bodies, and the index of the last entry in it. The state itself
// knows the last entry with a command, which may be an earlier one.
func loadImage(r io.Reader) (*fsm.State, uint64, error) {
	index, err := replica.ReadPreamble(r)
	if err != nil {
		return nil, 0, fmt.Errorf("image of a partition: %w", err)
	}
	s, err := fsm.Load(r)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("image of a partition at entry %d: %w", index, err)
	case s.Index() > index:
		return nil, 0, fmt.Errorf("image of partition %d: %w: it holds entry %d and names %d", s.ID(), fsm.ErrFormat, s.Index(),
			index)
	}
	return s, index, nil
}

// wanted are the places of bodies that a state refers to, each once, in order.
type wanted struct{ refs []fsm.BodyRef }

func wantedBodies(s *fsm.State) *wanted {
	w := &wanted{}
	s.EachBody(func(ref fsm.BodyRef) { w.refs = append(w.refs, ref) })
	slices.SortFunc(w.refs, func(a, b fsm.BodyRef) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Length, b.Length))
	})
	w.refs = slices.Compact(w.refs)
	return w
}

// take calls f with those of the wanted bodies that lie in the next one that was read. A body that was passed by is missing.
func (w *wanted) take(index uint64, offset uint32, body []byte, f func(fsm.BodyRef, []byte) error) error {
	for len(w.refs) > 0 {
		ref := w.refs[0]
		end := uint64(offset) + uint64(len(body))
		switch {
		case ref.Index > index || ref.Index == index && uint64(ref.Offset) >= end:
			return nil
		case ref.Index < index || ref.Offset < offset || uint64(ref.Offset)+uint64(ref.Length) > end:
			return w.missing()
		}
		at := ref.Offset - offset
		if err := f(ref, body[at:at+ref.Length]); err != nil {
			return err
		}
		w.refs = w.refs[1:]
	}
	return nil
}

func (w *wanted) missing() error {
	ref := w.refs[0]
	return fmt.Errorf("%w: the body of %d bytes at %d of entry %d is missing", fsm.ErrFormat, ref.Length, ref.Offset, ref.Index)
}

// end reports whether all wanted bodies were there.
func (w *wanted) end() error {
	if len(w.refs) > 0 {
		return w.missing()
	}
	return nil
}
