package storage

import "sort"

// arena keeps the records of recent entries in one ring of memory, oldest dropped first: a message
// is usually delivered right after it was enqueued, and then costs no read. It allocates per arena,
// not per entry. When all that it holds is dead it starts again at its beginning, so that a broker
// whose receivers keep up touches little of it. The caller guards it.
type arena struct {
	limit int
	ring  []byte // allocated with the first record
	// recent are the records in the ring, in order of index, the oldest first.
	recent []cached
	first  int // of recent; what lies before is dropped
	next   int // where the next record begins
}

// cached is one record of the ring; at is where its header begins.
type cached struct {
	index  uint64
	at     int
	length int // of the entry
	dead   bool
}

// room returns space for a record of n bytes, nil if it is too large to keep. The space is the
// caller's until keep.
func (a *arena) room(n int) []byte {
	if n > a.limit/4 {
		return nil
	}
	if a.ring == nil {
		a.ring = make([]byte, a.limit)
	}
	for a.first < len(a.recent) && a.recent[a.first].dead {
		a.first++
	}
	if a.first == len(a.recent) {
		a.reset()
	}
	if a.next+n > a.limit {
		// Everything behind next is older than what lies before it.
		for a.first < len(a.recent) && a.recent[a.first].at >= a.next {
			a.first++
		}
		a.next = 0
	}
	for a.first < len(a.recent) {
		oldest := a.recent[a.first]
		if oldest.at < a.next || oldest.at >= a.next+n {
			break
		}
		a.first++
	}
	a.shrink()
	return a.ring[a.next : a.next+n : a.next+n]
}

// keep enters the record that was written to the space of room.
func (a *arena) keep(index uint64, n int) {
	if last := len(a.recent) - 1; last >= a.first && a.recent[last].index >= index {
		a.forgetAll() // a replay: indexes begin again
	}
	a.recent = append(a.recent, cached{index: index, at: a.next, length: n - recordHeaderBytes})
	a.next += n
}

// get returns the entry, in the ring's own memory.
func (a *arena) get(index uint64) ([]byte, bool) {
	c := a.find(index)
	if c == nil || c.dead {
		return nil, false
	}
	return a.ring[c.at+recordHeaderBytes : c.at+recordHeaderBytes+c.length], true
}

// drop forgets an entry.
func (a *arena) drop(index uint64) {
	if c := a.find(index); c != nil {
		c.dead = true
	}
}

func (a *arena) find(index uint64) *cached {
	live := a.recent[a.first:]
	i := sort.Search(len(live), func(i int) bool { return live[i].index >= index })
	if i == len(live) || live[i].index != index {
		return nil
	}
	return &live[i]
}

// shrink gives the dropped front of recent back.
func (a *arena) shrink() {
	if a.first > 64 && a.first*2 > len(a.recent) {
		n := copy(a.recent, a.recent[a.first:])
		a.recent, a.first = a.recent[:n], 0
	}
}

// forgetAll drops every entry but leaves next where it is, because a record is being entered there.
func (a *arena) forgetAll() { a.recent, a.first = a.recent[:0], 0 }

func (a *arena) reset() {
	a.forgetAll()
	a.next = 0
}

// readBack keeps a few entries that were read from the disk: whoever drains a backlog takes the
// messages of one entry one after the other. Oldest dropped first. The caller guards it.
type readBack struct {
	limit   int
	bytes   int
	entries []readEntry
}

type readEntry struct {
	index uint64
	entry []byte
}

func (c *readBack) get(index uint64) ([]byte, bool) {
	for i := len(c.entries) - 1; i >= 0; i-- {
		if c.entries[i].index == index {
			return c.entries[i].entry, true
		}
	}
	return nil, false
}

// maxReadBack bounds the linear search of get.
const maxReadBack = 32

func (c *readBack) add(index uint64, entry []byte) {
	if _, ok := c.get(index); ok || len(entry) > c.limit/2 {
		return
	}
	for len(c.entries) > 0 && (c.bytes+len(entry) > c.limit || len(c.entries) >= maxReadBack) {
		c.bytes -= len(c.entries[0].entry)
		n := copy(c.entries, c.entries[1:])
		c.entries[n] = readEntry{}
		c.entries = c.entries[:n]
	}
	c.entries = append(c.entries, readEntry{index, entry})
	c.bytes += len(entry)
}

func (c *readBack) drop(index uint64) {
	for i, e := range c.entries {
		if e.index == index {
			c.bytes -= len(e.entry)
			c.entries = append(c.entries[:i], c.entries[i+1:]...)
			return
		}
	}
}

func (c *readBack) reset() { c.entries, c.bytes = nil, 0 }

const (
	// unreadPuts is after how many entries of which nobody read one what is put is no longer kept in
	// memory: on a follower nobody reads, and to fill the cache would only push others out of the
	// processor's.
	unreadPuts = 256
	// maxPassing is the largest record for which memory is kept: an entry is 256 KiB and a little.
	maxPassing = 512 << 10
)

// passing returns memory for a record that is written and not kept. The caller holds putMu.
func (b *Bodies) passing(n int) []byte {
	if n > maxPassing {
		return make([]byte, n)
	}
	if cap(b.scratch) < n {
		b.scratch = make([]byte, n)
	}
	return b.scratch[:n]
}
