package replica

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// calmLooks is at which Look a group is looked at that has been calm since the last time.
const calmLooks = 10

// looked is what Look found last.
type looked struct {
	calm   *raftnet.Calm
	spared int
}

// Look has the watcher look at what comes without notice. It waits for nothing; one goroutine of the node calls it about
// once a second. Little comes to a group that has nothing to do, so it is looked at more seldom.
func (r *Replica) Look() {
	c, l := r.calm.Load(), &r.looked
	if c != nil && c == l.calm && l.spared < calmLooks-1 && r.prop.oldest() == 0 && !r.asking.Load() {
		l.spared++
		return
	}
	*l = looked{calm: c}
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
