package control

import "github.com/busbar-mq/busbar/fsm"

// tellRebuild notes at which configuration a replica is told to rebuild: it heeds each only once.
func (m *repairer) tellRebuild(who memberOf, index uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rebuilt[who] = index
}

// toldToRebuild returns what tellRebuild has noted of a partition.
func (m *repairer) toldToRebuild(p fsm.PartitionID) map[fsm.NodeID]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	told := map[fsm.NodeID]uint64{}
	for who, index := range m.rebuilt {
		if who.p == p {
			told[who.n] = index
		}
	}
	return told
}
