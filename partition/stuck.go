package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/partition/wire"
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
	return f.tries, time.Since(f.at) > m.s.host.cfg.StuckAfter
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
	return &repairStep{what, n, func(ctx context.Context, s *Supervisor, r *replica.Replica) error {
		ctx, cancel := context.WithTimeout(ctx, admitTimeout)
		defer cancel()
		return askReopen(ctx, s.host.deps.Caller, n, g.id, tries > 0)
	}}
}

// reopenBytes is the length of a call to reopen: partition, and whether to give it up.
const reopenBytes = 2 + 1

func askReopen(ctx context.Context, c Caller, n fsm.NodeID, p fsm.PartitionID, giveUp bool) error {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, reopenBytes), uint16(p))
	_, err := c.Call(ctx, n, KindReopen, wire.AppendBool(b, giveUp))
	return err
}

var (
	errNotFollowing = errors.New("its leader sees that it does not advance")
	errGivenUp      = errors.New("its leader sees that it does not advance, and a new start did not help")
)

// serveReopen gives a follower that its leader sees standing still a new start, or gives it up. The leader then
// removes it and has it rebuilt. A leader is not asked to.
func (h *Host) serveReopen(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	if len(b) != reopenBytes || b[2] > 1 {
		return nil, fmt.Errorf("call to reopen of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	r := h.Replica(fsm.PartitionID(binary.BigEndian.Uint16(b)))
	if !h.allowed(from) || r == nil {
		return nil, fmt.Errorf("node %s: %w", from, raftnet.ErrSilent)
	}
	if leader, _ := r.Leader(); leader != from {
		return nil, fmt.Errorf("node %s does not lead here: %w", from, fsm.ErrNotLeader)
	}
	if b[2] == 0 {
		r.RestartStuck(errNotFollowing)
		return nil, nil
	}
	h.mu.Lock()
	h.stuckFound[r.ID()]++
	h.mu.Unlock()
	r.Fail(errGivenUp)
	return nil, nil
}
