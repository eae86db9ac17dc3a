package partition

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
)

// dateWatch compares the date of this node with those of the others (S-289). Locks do not depend on the date, but
// what users see and what is scheduled does. A node whose date is wrong leaves leading to others while they can, and
// says so. Only a majority of at least three can tell which node is wrong.
type dateWatch struct {
	h *Host

	mu    sync.Mutex
	ahead map[fsm.NodeID]clockSample // of other nodes, as far as they answer
	own   ClockStatus
}

// clockSample is by how much another node's date is ahead of this one's.
type clockSample struct {
	ahead time.Duration
	at    time.Time
}

// ClockStatus is what the comparison of clocks said of this node.
type ClockStatus struct {
	// Judged says that there were enough clocks to compare with, once at least.
	Judged bool
	// Ahead is by how much the date here is ahead of the median of all; negative if it is behind.
	Ahead time.Duration
	// Wrong says that it is more than five seconds.
	Wrong bool
}

const (
	// clockEvery is between two comparisons: one call of a few bytes per node. Until the first verdict
	// it is clockFirst, so that a node with a wrong date is known before its first election.
	clockEvery = 5 * time.Second
	clockFirst = time.Second
	// clockTimeout bounds the question; half of it is the error of the comparison.
	clockTimeout = time.Second
	// clockBound is the difference from the median at which a date is wrong, clockSlack the share of it
	// below which it is right again.
	clockBound = 5 * time.Second
	clockSlack = clockBound * 4 / 5
	// clockKeep is how long an answer counts.
	clockKeep = 3 * clockEvery
	// clockQuorum is how many clocks there must be, this one included: of two, either may be wrong.
	clockQuorum = 3
	clockBytes  = 8
)

// Clock returns what the comparison of clocks says of this node.
func (h *Host) Clock() ClockStatus {
	h.dates.mu.Lock()
	defer h.dates.mu.Unlock()
	return h.dates.own
}

// run compares until the host closes.
func (c *dateWatch) run() {
	for {
		pause := clockEvery
		if !c.h.Clock().Judged {
			pause = clockFirst
		}
		t := time.NewTimer(pause)
		select {
		case <-c.h.stop:
			t.Stop()
			return
		case <-t.C:
		}
		c.compare()
	}
}

// compare asks every node that shares a group with this one, and judges.
func (c *dateWatch) compare() {
	nodes := map[fsm.NodeID]bool{}
	for _, r := range c.h.list() {
		for _, n := range r.Others() {
			nodes[n] = true
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), clockTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for n := range nodes { // order-free: the answers go into a map
		wg.Go(func() {
			if err := c.ask(ctx, n); err != nil {
				c.h.deps.Log.Debug("clock of a peer is not known", "peer", n, "error", err)
			}
		})
	}
	wg.Wait()
	c.judge()
}

// ask compares with one node. The time that its answer took is divided between both ways.
func (c *dateWatch) ask(ctx context.Context, n fsm.NodeID) error {
	began := time.Now()
	b, err := c.h.deps.Caller.Call(ctx, n, KindClock, nil)
	if err != nil {
		return err
	}
	if len(b) != clockBytes {
		return fmt.Errorf("clock of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	theirs := fsm.Wall(binary.BigEndian.Uint64(b))
	ours := c.h.cfg.Date()
	if theirs < 0 {
		return fmt.Errorf("a date of %d: %w", theirs, fsm.ErrFormat)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead == nil {
		c.ahead = map[fsm.NodeID]clockSample{}
	}
	ahead := min(max(theirs.Since(ours), -maxClockMillis), maxClockMillis)
	c.ahead[n] = clockSample{time.Duration(ahead)*time.Millisecond + time.Since(began)/2, time.Now()}
	return nil
}

// maxClockMillis bounds a difference: a century, so that it fits a time.Duration.
const maxClockMillis = fsm.Millis(100 * 366 * 24 * 60 * 60 * 1000)

// judge compares with the median. Too few clocks leave the verdict as it was: that others went away
// makes a wrong clock no better.
func (c *dateWatch) judge() {
	c.mu.Lock()
	all := []time.Duration{0}
	for n, s := range c.ahead { // order-free: the list is sorted
		if time.Since(s.at) > clockKeep {
			delete(c.ahead, n)
			continue
		}
		all = append(all, s.ahead)
	}
	was := c.own
	if len(all) >= clockQuorum {
		c.own = judgeClock(all, was.Wrong)
	}
	now := c.own
	c.mu.Unlock()
	if now.Wrong != was.Wrong {
		c.h.deps.Log.Warn("clock of this node", "wrong", now.Wrong, "ahead of the others", now.Ahead,
			"mend", "set the date, and let it be kept (NTP): a node with a wrong one does not lead while others can")
		c.h.leaders.fire()
	}
}

// judgeClock says how far this node is ahead of the median of all; all are relative to it, itself
// included.
func judgeClock(all []time.Duration, wasWrong bool) ClockStatus {
	slices.Sort(all)
	half := len(all) / 2
	median := all[half]
	if len(all)%2 == 0 {
		median = all[half-1]/2 + all[half]/2
	}
	bound := clockBound
	if wasWrong {
		bound = clockSlack
	}
	return ClockStatus{Judged: true, Ahead: -median, Wrong: median.Abs() > bound}
}

// serveClock answers with the date here.
func (h *Host) serveClock(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	if len(b) != 0 {
		return nil, fmt.Errorf("question for the date of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	if !h.allowed(from) {
		return nil, fmt.Errorf("node %s: %w", from, raftnet.ErrSilent)
	}
	return binary.BigEndian.AppendUint64(nil, uint64(h.cfg.Date())), nil
}

// deferFor is for how long a node with a wrong clock leaves an election to others. Two of them have run out of
// patience by then, so something keeps them from it.
const deferFor = 5

// defers reports whether this replica leaves an election to others, because the date here is wrong
// and one of them could be elected.
func (h *Host) defers(ctx context.Context, r *replica.Replica) bool {
	if !h.Clock().Wrong {
		return false
	}
	if time.Since(r.Deferring()) > deferFor*h.cfg.HeartbeatTimeout {
		return false
	}
	own := r.Status()
	for _, o := range h.survivors(ctx, []replica.Status{own}, "") {
		if o.Partition == r.ID() && o.Failure == "" && !o.WrongClock && control.Votes(&own, o.Node) &&
			(o.LastTerm > own.LastTerm || o.LastTerm == own.LastTerm && o.Last >= own.Last) {
			return true
		}
	}
	return false
}

// rightTarget returns a voter that answers, follows closely, has no wrong clock and is not excluded; "" if there is
// none.
func (h *Host) rightTarget(ctx context.Context, r *replica.Replica, not func(fsm.NodeID) bool) fsm.NodeID {
	for _, s := range r.Servers() {
		n := fsm.NodeID(s.ID)
		if s.Suffrage != raft.Voter || n == h.cfg.Node || not(n) {
			continue
		}
		if st := h.follower(ctx, r, n); st != nil && !st.WrongClock && r.CloselyFollowedBy(st) {
			return n
		}
	}
	return ""
}
