package main

import (
	"bytes"
	"strings"
	"sync"
)

// lockedBuffer keeps what a process writes, and closes seen when that has a text.
type lockedBuffer struct {
	mu   sync.Mutex
	all  bytes.Buffer
	text string
	seen chan struct{}
	told bool
}

func newLockedBuffer(text string) *lockedBuffer {
	return &lockedBuffer{text: text, seen: make(chan struct{})}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.all.Write(p)
	if !b.told && strings.Contains(b.all.String(), b.text) {
		b.told = true
		close(b.seen)
	}
	return n, err
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}
