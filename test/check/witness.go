package check

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
)

// Witness is what the replicas of the data partitions applied, every one of them in every life. An entry that was
// applied once was committed, even if every machine has lost its power since. A replica that applies anything else at
// the same index has lost or invented something.
type Witness struct {
	mu    sync.Mutex
	parts map[fsm.PartitionID]*Log
}

// Log is the committed log of one partition.
type Log struct {
	Partition fsm.PartitionID
	entries   map[uint64]*Entry
	digests   map[uint64]digest // by index
	wrong     []string          // disagreements, as they were seen
	last      uint64
}

type digest struct {
	sum uint64
	who string
}

// Entry is one committed entry.
type Entry struct {
	Index uint64
	Data  []byte // as encoded by package fsm
	sum   uint64 // of what applying it did
	who   string
}

// maxWrong bounds the disagreements that are told; one is enough to fail.
const maxWrong = 20

// NewWitness returns a witness that saw nothing.
func NewWitness() *Witness { return &Witness{parts: map[fsm.PartitionID]*Log{}} }

func (w *Witness) logLocked(p fsm.PartitionID) *Log {
	l := w.parts[p]
	if l == nil {
		l = &Log{Partition: p, entries: map[uint64]*Entry{}, digests: map[uint64]digest{}}
		w.parts[p] = l
	}
	return l
}

func (l *Log) complain(format string, args ...any) {
	if len(l.wrong) < maxWrong {
		l.wrong = append(l.wrong, fmt.Sprintf("partition %d: ", l.Partition)+fmt.Sprintf(format, args...))
	}
}

// Applied notes that a replica applied an entry, and what that did.
func (w *Witness) Applied(who string, p fsm.PartitionID, index uint64, e *fsm.Entry, r *fsm.Result) {
	data := fsm.AppendEntry(nil, e)
	sum := resultSum(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.logLocked(p)
	l.last = max(l.last, index)
	old := l.entries[index]
	switch {
	case old == nil:
		l.entries[index] = &Entry{Index: index, Data: data, sum: sum, who: who}
	case !bytes.Equal(old.Data, data):
		l.complain("entry %d: %s applied %s, %s applied %s", index, old.who, Brief(old.Data), who, Brief(data))
	case old.sum != sum:
		l.complain("entry %d: %s and %s did different things with %s", index, old.who, who, Brief(data))
	}
}

// Digested notes the digest of a replica's state after an entry.
func (w *Witness) Digested(who string, p fsm.PartitionID, index, sum uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.logLocked(p)
	old, ok := l.digests[index]
	if ok && old.sum != sum {
		l.complain("the states of %s and %s differ after entry %d", old.who, who, index)
	}
	l.digests[index] = digest{sum, who}
}

// Stored notes what a replica has in its store at an index that it knows to be committed.
func (w *Witness) Stored(who string, p fsm.PartitionID, index uint64, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.logLocked(p)
	if old := l.entries[index]; old != nil && !bytes.Equal(old.Data, data) {
		l.complain("entry %d: %s applied %s, the store of %s has %s", index, old.who, Brief(old.Data), who,
			Brief(data))
	}
}

// Logs returns the committed logs by partition.
func (w *Witness) Logs() []*Log {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*Log
	for _, l := range w.parts {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *Log) int { return int(a.Partition) - int(b.Partition) })
	return out
}

// Each calls f with every entry in order.
func (l *Log) Each(f func(e *Entry, decoded *fsm.Entry) error) error {
	indexes := make([]uint64, 0, len(l.entries))
	for i := range l.entries {
		indexes = append(indexes, i)
	}
	slices.Sort(indexes)
	for _, i := range indexes {
		d, err := fsm.DecodeEntry(l.entries[i].Data)
		if err != nil {
			return fmt.Errorf("partition %d, entry %d: %w", l.Partition, i, err)
		}
		if err := f(l.entries[i], d); err != nil {
			return err
		}
	}
	return nil
}

func resultSum(r *fsm.Result) uint64 {
	h := fnv.New64a()
	var b []byte
	for i := range r.Outcomes {
		b = fsm.AppendOutcome(b[:0], &r.Outcomes[i], false)
		h.Write(b)
	}
	fmt.Fprint(h, r.Freed, r.Wake, r.Dropped)
	return h.Sum64()
}

// Brief tells what an encoded entry is about.
func Brief(data []byte) string {
	e, err := fsm.DecodeEntry(data)
	if err != nil {
		return err.Error()
	}
	s := fmt.Sprintf("[epoch %d wall %d lease %d:", e.Epoch, e.Wall, e.Lease)
	for i := range e.Requests {
		q := &e.Requests[i]
		s += fmt.Sprintf(" %T(%v e%d)", q.Command, q.ID, q.Entity)
	}
	return s + "]"
}
