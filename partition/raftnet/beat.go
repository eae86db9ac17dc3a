package raftnet

import (
	"encoding/binary"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/wire"
)

// Beat is what a node tells another one of all groups that both have, several times a second. It stands for the
// heartbeats of the groups that rest (decision 0102).
type Beat struct {
	Life   fsm.Incarnation // of the sender
	Number uint64          // of this beat among those of the life to this receiver, from 1
	Heard  uint64          // the number of the last beat of the receiver that has come, 0 if none has
	// Leads are groups that the sender leads and the receiver follows, in their order. All that is in the log of the leader
	// is committed, and the receiver was told so.
	Leads []Place
	// Rests are groups that the receiver leads. The sender has everything that the receiver has said that there is, knows
	// that it is committed, and does without heartbeats.
	Rests []Place
}

// Addressed is a beat for a node that has no number yet.
type Addressed struct {
	To fsm.NodeID
	Beat
}

// Beats are the next beats for some nodes.
type Beats []Addressed

func (bs Beats) to(n fsm.NodeID) *Beat {
	for i := range bs {
		if bs[i].To == n {
			return &bs[i].Beat
		}
	}
	return nil
}

// Place is how far the log of a group goes in a term.
type Place struct {
	Group fsm.PartitionID
	Term  uint64
	Last  uint64 // the index of the last entry, which is committed
}

// lead adds a group that the sender leads.
func (b *Beat) lead(group fsm.PartitionID, s Standing) { add(&b.Leads, Place{group, s.Term, s.Last}) }

// rest adds a group in which the sender rests.
func (b *Beat) rest(group fsm.PartitionID, s Standing) { add(&b.Rests, Place{group, s.Term, s.Last}) }

func add(places *[]Place, p Place) {
	if len(*places) < maxBeatPlaces {
		*places = append(*places, p)
	}
}

const (
	beatVersion = 1
	// maxBeatPlaces bounds what one list of a beat holds. A group that finds no place has heartbeats of its own.
	maxBeatPlaces = 4096
)

// AppendBeat appends the bytes of a beat (docs/formats/raft.md).
func AppendBeat(b []byte, beat *Beat) []byte {
	b = append(b, beatVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(beat.Life))
	b = binary.AppendUvarint(b, beat.Number)
	b = binary.AppendUvarint(b, beat.Heard)
	for _, places := range [][]Place{beat.Leads, beat.Rests} {
		b = binary.AppendUvarint(b, uint64(len(places)))
		for _, p := range places {
			b = binary.BigEndian.AppendUint16(b, uint16(p.Group))
			b = binary.AppendUvarint(b, p.Term)
			b = binary.AppendUvarint(b, p.Last)
		}
	}
	return b
}

// ParseBeat reads the bytes of a beat. The error wraps fsm.ErrFormat.
func ParseBeat(b []byte) (*Beat, error) {
	r := wire.NewReader(b)
	if v := r.Byte(); r.OK() && v != beatVersion {
		return nil, fmt.Errorf("beat of version %d: %w", v, fsm.ErrFormat)
	}
	beat := &Beat{}
	for range 8 {
		beat.Life = beat.Life<<8 | fsm.Incarnation(r.Byte())
	}
	beat.Number, beat.Heard = r.Uint(), r.Uint()
	for _, places := range []*[]Place{&beat.Leads, &beat.Rests} {
		n := r.Uint()
		if n > maxBeatPlaces || n > uint64(r.Len()) {
			r.Fail("%d groups", n)
		}
		if r.OK() && n > 0 {
			*places = make([]Place, 0, n)
		}
		for ; r.OK() && n > 0; n-- {
			group := fsm.PartitionID(r.Byte())<<8 | fsm.PartitionID(r.Byte())
			if all := *places; len(all) > 0 && group <= all[len(all)-1].Group {
				r.Fail("group %d behind %d", group, all[len(all)-1].Group)
			}
			*places = append(*places, Place{group, r.Uint(), r.Uint()})
		}
	}
	return beat, r.Done()
}
