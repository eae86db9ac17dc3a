package cluster

import (
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// tellAgain is after how long the same refusal of a node is logged again: peers try about once in a second.
	tellAgain = 10 * time.Minute
	// maxRefusals bounds the nodes of which a refusal is remembered. Of more, nothing is logged until one is forgotten.
	maxRefusals = 128
)

// refusal is what was last logged of a node.
type refusal struct {
	reason string
	at     time.Time
}

// tellOnce logs why a node is refused, or refuses, unless the same was logged a short while ago.
func (m *Mesh) tellOnce(what string, node fsm.NodeID, reason error) {
	m.told.Lock()
	defer m.told.Unlock()
	now, text := time.Now(), reason.Error() // by text: a line that says the same is not logged again
	if last, known := m.refusals[node]; known && last.reason == text && now.Sub(last.at) < tellAgain {
		return
	}
	for n, r := range m.refusals { // order-free: drops what is old
		if now.Sub(r.at) >= tellAgain {
			delete(m.refusals, n)
		}
	}
	if _, known := m.refusals[node]; !known && len(m.refusals) >= maxRefusals {
		return
	}
	m.refusals[node] = refusal{text, now}
	m.log.Warn(what, "peer", node, "reason", reason)
}
