package fsm

import "github.com/tidwall/btree"

// originKey names a queue in one partition from which messages were moved here.
type originKey struct {
	entity    EntityID
	partition PartitionID
	sub       SubQueue
}

func (a originKey) less(b originKey) bool {
	switch {
	case a.entity != b.entity:
		return a.entity < b.entity
	case a.partition != b.partition:
		return a.partition < b.partition
	}
	return a.sub < b.sub
}

// origin says that every number below is settled at the source and will not be asked for again.
type origin struct {
	originKey
	below uint64
}

// decided is the answer about one number that the source may ask for again (S-311).
type decided struct {
	originKey
	number  uint64
	refusal Refusal
}

func (a decided) less(b decided) bool {
	if a.originKey != b.originKey {
		return a.originKey.less(b.originKey)
	}
	return a.number < b.number
}

// moves are the messages of one queue that are in transit, by their numbers.
type moves struct {
	last  uint64 // number given last
	table *btree.Map[uint64, moving]
}

// moving is one message in transit. The destination stays what it was when the message was taken, so
// that a repetition goes to the same place.
type moving struct {
	arrival uint64
	to      EntityID
}
