package waist

import (
	"slices"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// holderTime is how long the name of a link that has ended is remembered. Its locks go on without it (RUL-2), and
	// the longest of the original is five minutes.
	holderTime = 10 * time.Minute
	// maxHolders bounds the names of ended links, some 10 MiB; the oldest go first.
	maxHolders = 65_536
	// maxLives is how many lives of this node are known to be ours; locks of earlier ones are over.
	maxLives = 16
)

// Holder names who took a lock (S-272).
type Holder struct {
	Client string // container id
	Link   string
	Remote string // address of the socket
}

// Holders knows the links of this node by their pumps, which is what the state keeps of who took a lock.
// It decides nothing.
type Holders struct {
	mu    sync.Mutex
	lives []fsm.Incarnation // of this process, the last ones
	names map[uint64]Holder // by pump
	ended []endedHolder     // in the order in which they ended
}

type endedHolder struct {
	pump uint64
	at   time.Time
}

// born notes a life of this node.
func (h *Holders) born(life fsm.Incarnation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lives = append(h.lives, life)
	h.lives = h.lives[max(0, len(h.lives)-maxLives):]
}

// Begin names the link that a pump asks for.
func (h *Holders) Begin(pump uint64, name Holder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.names == nil {
		h.names = map[uint64]Holder{}
	}
	h.names[pump] = name
}

// End says that the pump asks no more.
func (h *Holders) End(pump uint64) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, named := h.names[pump]; named {
		h.ended = append(h.ended, endedHolder{pump, now})
	}
	gone := 0
	for gone < len(h.ended) && (len(h.ended)-gone > maxHolders || now.Sub(h.ended[gone].at) > holderTime) {
		delete(h.names, h.ended[gone].pump)
		gone++
	}
	h.ended = h.ended[gone:]
}

// Of tells who took a lock, given the request that took it; nothing if that was not a link of this
// node, or one that ended long ago.
func (h *Holders) Of(by fsm.RequestID) Holder {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.lives, by.Node) {
		return Holder{}
	}
	return h.names[by.Pump]
}
