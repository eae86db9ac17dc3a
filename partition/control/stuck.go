package control

import (
	"context"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// A stuck group is one that does not advance although it is asked to and nothing that we know of keeps it. Raft has
// several (R5, R7, R10), and surely some that nobody has met. Three things are looked at: the entry that a leader has
// under way, raft's main loop, and each follower as its leader sees it. Only what is seen for StuckAfter without a
// break counts, because a slow disk, a long snapshot and an election look the same at first. The cure is the one of a
// restart, for one replica.

// follow is what a leader knows of a follower's advance.
type follow struct {
	epoch    uint64    // of the leadership that looks
	applied  uint64    // of the follower, when it was last seen to advance
	received uint64    // bytes of snapshots, then
	at       time.Time // when that was
	goal     uint64    // what the leader had applied when the follower was last seen caught up
	tries    int       // what was tried against it since
}

// stuck notes what a follower says of itself, and reports whether it stands still although it works
// and there is something to follow.
func (m *repairer) stuck(g *repairGroup, n fsm.NodeID, st *replica.Status, applied uint64) (tries int, stuck bool) {
	key := memberOf{g.id, n}
	f := m.follows[key]
	switch {
	case f == nil || f.epoch != g.epoch || st.Applied >= f.goal:
		m.follows[key] = &follow{g.epoch, st.Applied, st.Received, time.Now(), applied, 0}
		return 0, false
	case st.Applied != f.applied || st.Received != f.received || st.Failure != "":
		f.applied, f.received, f.at = st.Applied, st.Received, time.Now()
		return f.tries, false
	}
	return f.tries, time.Since(f.at) > m.s.timing.StuckAfter
}

// restartFollower is the step against a follower that stands still. It is opened anew. If that was tried before, it
// is given up and rebuilt, which gives its leader a new start with it as well.
func (m *repairer) restartFollower(g *repairGroup, n fsm.NodeID) *repairStep {
	f := m.follows[memberOf{g.id, n}]
	tries := g.stuck[n]
	what := "open anew what does not follow"
	if tries > 0 {
		what = "give up what does not follow"
	}
	f.tries, f.at = tries+1, time.Now()
	return &repairStep{what: what, node: n, do: func(ctx context.Context, s *Supervisor, r *replica.Replica) error {
		ctx, cancel := context.WithTimeout(ctx, admitTimeout)
		defer cancel()
		return s.host.Reopen(ctx, n, g.id, tries > 0)
	}}
}
