package storage

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
	// unreadPuts is the number of entries without a reader after which written entries are no longer kept in memory.
	// On a follower nobody reads. Using all of the memory there would only push others out of the processor's caches.
	unreadPuts = 256
	// maxPassing is the largest record for which memory is kept: an entry is 256 KiB and a little.
	maxPassing = 512 << 10
)

// passing returns memory for a record that is written at once. The caller holds putMu.
func (b *Bodies) passing(n int) []byte {
	if n > maxPassing {
		return make([]byte, n)
	}
	if cap(b.scratch) < n {
		b.scratch = make([]byte, n)
	}
	return b.scratch[:n]
}
