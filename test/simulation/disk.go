package simulation

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// errGone is what a store of a machine that lost power says.
var errGone = errors.New("the machine is off")

// errDisk is a planned failure.
var errDisk = errors.New("input/output error")

// disk is the part of a node's disk that package storage keeps in files of other libraries: the log and the votes,
// per group. The data of a write that has not returned may be lost with the power, or half of it; what it has
// returned for stays.
type disk struct {
	mu     sync.Mutex
	rng    *rand.Rand
	groups map[fsm.PartitionID]*group
	off    bool
	thaw   chan struct{} // closed when a stuck disk goes on; nil while it is not stuck
	// slow is how long a sync takes at most, calm the same of a healthy disk; failNext is what the
	// next one says.
	slow     time.Duration
	calm     time.Duration
	failNext error
	keepFail bool // the failing write reaches the disk all the same (R3)
	writes   map[int]*write
	serial   int
}

// write is one under way.
type write struct {
	p     fsm.PartitionID
	n     int
	apply func(g *group, part int)
}

// group is what one raft group has on the disk.
type group struct {
	logs   []raft.Log // in order
	stable map[string][]byte
	// removed is that of the directory in which the group is: a replica that is rebuilt has a later one.
	removed uint64
}

func newDisk(rng *rand.Rand, calm time.Duration) *disk {
	return &disk{rng: rng, slow: calm, calm: calm, groups: map[fsm.PartitionID]*group{}, writes: map[int]*write{}}
}

// powerOff ends the disk's life for whoever holds it, and returns what the next one finds. A write
// under way has reached the disk to a random part.
func (d *disk) powerOff() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	for i := range d.serial { // in the order in which they began
		if w := d.writes[i+1]; w != nil {
			w.apply(d.groupLocked(w.p), d.rng.IntN(w.n+1))
		}
	}
	if d.thaw != nil {
		close(d.thaw)
		d.thaw = nil
	}
	n := newDisk(d.rng, d.calm)
	n.groups = d.groups
	d.groups = nil
	return n
}

// stick makes every write wait; unstick lets them go on.
func (d *disk) stick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.thaw == nil && !d.off {
		d.thaw = make(chan struct{})
	}
}

func (d *disk) unstick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.thaw != nil {
		close(d.thaw)
		d.thaw = nil
	}
}

func (d *disk) set(f func(*disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *disk) groupLocked(p fsm.PartitionID) *group {
	g := d.groups[p]
	if g == nil {
		g = &group{stable: map[string][]byte{}}
		d.groups[p] = g
	}
	return g
}

// sync performs a write as a disk does. It takes its time, may fail before or after its effect, and may be overtaken
// by the end of power, which leaves part of it. apply is called with the part of the write that reaches the disk, of
// n.
func (d *disk) sync(p fsm.PartitionID, n int, apply func(g *group, part int)) error {
	d.mu.Lock()
	wait := time.Duration(0)
	if d.slow > 0 {
		wait = time.Duration(d.rng.Int64N(int64(d.slow)))
	}
	thaw := d.thaw
	d.serial++
	id := d.serial
	d.writes[id] = &write{p, n, apply}
	d.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
	if thaw != nil {
		<-thaw
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return errGone
	}
	delete(d.writes, id)
	if err := d.failNext; err != nil {
		d.failNext = nil
		if d.keepFail {
			apply(d.groupLocked(p), d.rng.IntN(n+1))
		}
		return err
	}
	apply(d.groupLocked(p), n)
	return nil
}

// reconcile empties a log that the newest snapshot has overtaken, as package storage does when it opens one. The
// power went between the snapshot and the deletion that raft does after it.
func (d *disk) reconcile(p fsm.PartitionID, index, term uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.groupLocked(p)
	if len(g.logs) == 0 {
		return
	}
	first, last := g.logs[0].Index, g.logs[len(g.logs)-1].Index
	if last < index || first <= index && g.logs[index-first].Term != term {
		g.logs = nil
	}
}

// renew empties what a group has on the disk if it is of an earlier replica than the directory of the group.
func (d *disk) renew(p fsm.PartitionID, removed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.groupLocked(p); g.removed != removed {
		*g = group{stable: map[string][]byte{}, removed: removed}
	}
}

// each calls f with every entry that a group has.
func (d *disk) each(p fsm.PartitionID, f func(l *raft.Log)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.groupLocked(p)
	for i := range g.logs {
		f(&g.logs[i])
	}
}

// logStore is the raft log of one group.
type logStore struct {
	d *disk
	p fsm.PartitionID
	c *counters
	n *node
}

var (
	_ raft.LogStore          = (*logStore)(nil)
	_ raft.MonotonicLogStore = (*logStore)(nil)
)

// IsMonotonic implements raft.MonotonicLogStore, as package storage does.
func (*logStore) IsMonotonic() bool { return true }

func (l *logStore) read(f func(g *group) error) error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if l.d.off {
		return errGone
	}
	return f(l.d.groupLocked(l.p))
}

// FirstIndex implements raft.LogStore.
func (l *logStore) FirstIndex() (n uint64, err error) {
	err = l.read(func(g *group) error {
		if len(g.logs) > 0 {
			n = g.logs[0].Index
		}
		return nil
	})
	return n, err
}

// LastIndex implements raft.LogStore.
func (l *logStore) LastIndex() (n uint64, err error) {
	err = l.read(func(g *group) error {
		if k := len(g.logs); k > 0 {
			n = g.logs[k-1].Index
		}
		return nil
	})
	return n, err
}

// GetLog implements raft.LogStore.
func (l *logStore) GetLog(index uint64, out *raft.Log) error {
	return l.read(func(g *group) error {
		if len(g.logs) == 0 || index < g.logs[0].Index || index > g.logs[len(g.logs)-1].Index {
			return raft.ErrLogNotFound
		}
		*out = g.logs[index-g.logs[0].Index]
		return nil
	})
}

// StoreLog implements raft.LogStore.
func (l *logStore) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (l *logStore) StoreLogs(logs []*raft.Log) error {
	l.n.w.reached(l.n, l.p, BeforeStored, logs[len(logs)-1].Index)
	l.n.w.storing(l.n, l.p, logs)
	var gap error
	copies := make([]raft.Log, len(logs))
	for i, e := range logs {
		copies[i] = *e
		copies[i].Data = bytes.Clone(e.Data)
		copies[i].Extensions = bytes.Clone(e.Extensions)
	}
	err := l.d.sync(l.p, len(logs), func(g *group, part int) {
		if n := len(g.logs); n > 0 && part > 0 && copies[0].Index != g.logs[n-1].Index+1 {
			gap = fmt.Errorf("entry %d does not follow %d", copies[0].Index, g.logs[n-1].Index)
			return
		}
		g.logs = append(g.logs, copies[:part]...)
	})
	return errors.Join(gap, err)
}

// DeleteRange implements raft.LogStore: a prefix or a suffix.
func (l *logStore) DeleteRange(lo, hi uint64) error {
	return l.d.sync(l.p, 1, func(g *group, part int) {
		if len(g.logs) == 0 || part == 0 {
			return
		}
		first, last := g.logs[0].Index, g.logs[len(g.logs)-1].Index
		lo, hi := max(lo, first), min(hi, last)
		if lo > hi {
			return
		}
		if lo == first {
			g.logs = append([]raft.Log(nil), g.logs[hi-first+1:]...)
			return
		}
		l.c.add(truncations, 1)
		g.logs = append([]raft.Log(nil), g.logs[:lo-first]...)
	})
}

// stableStore keeps term and vote of one group. As in package storage, a vote is written at once: its
// term waits for its candidate (R9).
type stableStore struct {
	d *disk
	p fsm.PartitionID

	mu   sync.Mutex
	term []byte
}

var _ raft.StableStore = (*stableStore)(nil)

const (
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
)

// errNotFound has the text by which raft knows a missing key.
var errNotFound = errors.New("not found")

// Set implements raft.StableStore.
func (s *stableStore) Set(key, val []byte) error {
	val = bytes.Clone(val)
	s.mu.Lock()
	term := s.term
	s.mu.Unlock()
	return s.d.sync(s.p, 1, func(g *group, part int) {
		if part == 0 {
			return
		}
		if string(key) == keyVoteCandidate {
			g.stable[keyVoteTerm] = term
		}
		g.stable[string(key)] = val
	})
}

// SetUint64 implements raft.StableStore.
func (s *stableStore) SetUint64(key []byte, val uint64) error {
	b := binary.BigEndian.AppendUint64(nil, val)
	if string(key) == keyVoteTerm {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.term = b
		return nil
	}
	return s.Set(key, b)
}

// Get implements raft.StableStore.
func (s *stableStore) Get(key []byte) ([]byte, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.d.off {
		return nil, errGone
	}
	v, ok := s.d.groupLocked(s.p).stable[string(key)]
	if !ok {
		return nil, errNotFound
	}
	return bytes.Clone(v), nil
}

// GetUint64 implements raft.StableStore.
func (s *stableStore) GetUint64(key []byte) (uint64, error) {
	v, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), nil
}
