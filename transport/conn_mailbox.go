package transport

import "sync"

// mailbox holds what others want done on the loop of a connection. The loop is whoever takes its turns: a goroutine that
// puts something in while nobody does. So whoever has news goes on with it, and no goroutine has to be woken for that. The mutex
// guards everything here.
type mailbox struct {
	mu      sync.Mutex
	taken   bool     // a goroutine takes turns
	closed  bool     // the connection has ended, and nothing is taken any more
	batches []*batch // from the reader, in their order
	posts   []func()
	leave   bool   // the connection is to end in good order
	tick    bool   // the timer has fired
	wrote   *wrote // what became of the buffer of the writer; nil without one
}

// takeLocked reports whether the caller has to take turns now. It must if nobody does.
func (m *mailbox) takeLocked() bool {
	if m.taken || m.closed {
		return false
	}
	m.taken = true
	return true
}

// put adds something and reports whether the caller has to take turns.
func (m *mailbox) put(add func(*mailbox)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	add(m)
	return m.takeLocked()
}

// arrive adds a batch, as put does.
func (m *mailbox) arrive(b *batch) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches = append(m.batches, b)
	return m.takeLocked()
}

// post adds a function, as put does.
func (m *mailbox) post(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.posts = append(m.posts, f)
	return m.takeLocked()
}

// news is what the loop has taken out of the mailbox.
type news struct {
	batch       *batch
	leave, tick bool
	wrote       *wrote
}

// close has nothing be taken any more.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.batches, m.posts = true, nil, nil
}

// collect takes the news out of the mailbox, but only one batch, and none while reading has to wait. It is false if there is
// nothing to do. Then the loop is nobody's.
func (c *conn) collect() (n news, more bool) {
	m := &c.mail
	m.mu.Lock()
	defer m.mu.Unlock()
	n = news{leave: m.leave, tick: m.tick, wrote: m.wrote}
	if len(m.batches) > 0 && !c.paused() {
		n.batch = m.batches[0]
		m.batches = append(m.batches[:0], m.batches[1:]...)
	}
	if n == (news{}) && len(m.posts) == 0 && !c.unfinished() {
		c.disownLoop()
		m.taken = false
		return n, false
	}
	m.leave, m.tick, m.wrote = false, false, nil
	c.posts = append(c.posts, m.posts...)
	clear(m.posts)
	m.posts = m.posts[:0]
	return n, true
}
