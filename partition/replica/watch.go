package replica

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// Look has the watcher look at what comes without notice. It waits for nothing; the node calls it about once a second.
func (r *Replica) Look() {
	select {
	case r.looks <- struct{}{}:
	default:
	}
}

// watch tells the host when the leader changes, and takes snapshots.
func (r *Replica) watch() {
	seen := make(chan raft.Observation, 16)
	o := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.LeaderObservation, raft.RaftState:
			return true
		}
		return false
	})
	r.raft.RegisterObserver(o)
	defer r.raft.DeregisterObserver(o)
	shots, watch := &snapshots{r: r}, &stuckWatch{r: r, pulses: make(chan struct{}, 1)}
	var leader fsm.NodeID
	var term uint64
	for {
		if l, n := r.Leader(); l != leader || n != term {
			leader, term = l, n
			if l != "" {
				r.leaderKnown()
			}
			r.node.Changed(r)
			r.prop.poke()
		}
		select {
		case <-r.stopping:
			return
		case <-seen:
		case <-r.looks:
			if r.prop.astray() {
				r.prop.poke()
			}
			shots.look()
			r.machine.drops.flush(time.Now())
			if err := watch.look(); err != nil {
				r.RestartStuck(err)
			}
		}
	}
}
