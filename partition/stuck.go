package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/wire"
)

// A stuck group is one that does not advance although it is asked to and nothing that we know of keeps it. Raft has
// several (R5, R7, R10), and surely some that nobody has met. Three things are looked at: the entry that a leader has
// under way, raft's main loop, and each follower as its leader sees it. Only what is seen for StuckAfter without a
// break counts, because a slow disk, a long snapshot and an election look the same at first. The cure is the one of a
// restart, for one replica.

// stuckWatch looks at one replica from within.
type stuckWatch struct {
	r      *Replica
	pulses chan struct{} // an answer of raft's main loop; capacity 1
	asked  time.Time     // when it was asked; zero if no answer is due
	last   time.Time     // when it answered last
	index  uint64        // applied when it was asked
	bytes  uint64        // of snapshots received by then
}

// pulseEvery is how often raft's main loop is asked: one message through a channel.
const pulseEvery = 5 * time.Second

// look returns why the replica is stuck, nil if it is not.
func (w *stuckWatch) look() error {
	limit := w.r.cfg.StuckAfter
	if age := w.r.prop.oldest(); age > limit && w.r.raft.State() == raft.Leader && w.r.err() == nil {
		return fmt.Errorf("an entry is under way for %v, and a majority answers", age)
	}
	select {
	case <-w.pulses:
		w.asked, w.last = time.Time{}, time.Now()
	default:
	}
	index, bytes := w.r.machine.index(), w.r.net.Received()
	switch {
	case w.asked.IsZero() && time.Since(w.last) >= pulseEvery && w.r.raft.CurrentTerm() > 0:
		w.asked, w.index, w.bytes = time.Now(), index, bytes
		w.r.wg.Add(1) // the caller is counted too, so Close waits already
		go func() {
			defer w.r.wg.Done()
			w.r.net.Pulse()
			w.pulses <- struct{}{}
		}()
	case w.asked.IsZero():
	case index != w.index || bytes != w.bytes || w.r.guard.oldest() > 0:
		// It is busy: with entries, with a snapshot, or with the disk, which the watchdog minds.
		w.asked, w.index, w.bytes = time.Now(), index, bytes
	case time.Since(w.asked) > limit:
		return fmt.Errorf("raft has not answered for %v", time.Since(w.asked))
	}
	return nil
}

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
func (m *repairer) stuck(g *repairGroup, n fsm.NodeID, st *Status, applied uint64) (tries int, stuck bool) {
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
	return &repairStep{what, n, func(ctx context.Context, s *Supervisor, r *Replica) error {
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
		r.restartStuck(errNotFollowing)
		return nil, nil
	}
	h.mu.Lock()
	h.stuckFound[r.id]++
	h.mu.Unlock()
	r.fail(errGivenUp)
	return nil, nil
}
