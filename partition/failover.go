package partition

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
)

const (
	// candidateTimeout bounds the question that the survivors ask each other. A survivor that does not answer in time
	// does not count. If two then campaign, the votes decide.
	candidateTimeout = 20 * time.Millisecond
	// quorumTimeout bounds it as long as the answers so far would not elect anybody. On a busy machine they may take
	// longer, and standing without them is in vain.
	quorumTimeout = 250 * time.Millisecond
	// The survivors are compared again after againFirst, and after pauses that double up to againMost.
	againFirst, againMost = 50 * time.Millisecond, 500 * time.Millisecond
	// aliveAfter is when a survivor that hears of the leader takes it to live after all. Before, that may have been
	// its last entry. It is also for how long another survivor that stands already is left to win.
	aliveAfter = 250 * time.Millisecond
)

// PeerLost says that the process of a node is surely gone (A17). Every group that it led gets a new leader at once,
// not after the heartbeat time-out. Each survivor is told by its own mesh and decides for itself; the best of them
// stands. A false alarm costs an election and nothing else.
//
// A survivor that stands so raises the term without asking first, so only one that hears a majority does. Otherwise a
// node that lost the network and not its peers would come back with a term of its own. It would depose every leader
// that served meanwhile.
func (h *Host) PeerLost(ctx context.Context, lost fsm.NodeID) {
	h.lost.add(lost)
	h.beats.forget(lost)
	var ends sync.WaitGroup
	defer ends.Wait()
	ends.Go(func() { h.keep(ctx, lost) })
	h.succeed(ctx, lost, func(s *replica.Status) bool { return s.Leader == lost || s.Leader == "" })
}

// keep ends the transfers of a leadership to a node that was lost, and takes the leadership back. This replica has all that
// the group has, so it may stand at once. It does so only if it hears a majority: see PeerLost.
func (h *Host) keep(ctx context.Context, lost fsm.NodeID) {
	var given []replica.Status
	for _, r := range h.list() {
		if r.EndTransfer(ctx, lost) {
			given = append(given, r.Status())
		}
	}
	if len(given) == 0 {
		return
	}
	others := h.survivors(ctx, given, lost)
	for i := range given {
		if r := h.Replica(given[i].Partition); r != nil && control.Heard(&given[i], others) {
			r.Campaign(ctx, "")
		}
	}
}

// succeed gives groups a new leader that a node led, and those that are without one since: the best of the
// survivors stands.
//
// The last entries of the lost leader may be under way to the disks while the survivors ask each other. Each may then
// have seen the other one ahead, so that nobody stands. Or the one that stands is behind by the time that it asks for
// votes. So they are compared again while the group has no other leader. A survivor that did not hear a majority does
// not ask again: see PeerLost.
func (h *Host) succeed(ctx context.Context, lost fsm.NodeID, meant func(*replica.Status) bool) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 2*h.cfg.HeartbeatTimeout) // then raft's own time-outs are over
	defer cancel()
	led := h.voting(meant)
	for pause := againFirst; len(led) > 0; pause = min(2*pause, againMost) {
		others := h.survivors(ctx, led, lost)
		led = slices.DeleteFunc(led, func(s replica.Status) bool { return !control.Heard(&s, others) })
		for i := range led {
			h.takeOver(ctx, &led[i], others, began)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-h.stop:
		}
		if t.Stop() {
			return
		}
		before := led
		led = h.voting(func(s *replica.Status) bool {
			return slices.ContainsFunc(before, func(b replica.Status) bool {
				return b.Partition == s.Partition && (s.Leader == "" || s.Leader == lost && s.Term == b.Term)
			})
		})
	}
}

// takeOver stands for election in a group whose leader was reported lost at a time, if nobody fits better.
func (h *Host) takeOver(ctx context.Context, own *replica.Status, others []replica.Status, reported time.Time) {
	r := h.Replica(own.Partition)
	if r == nil {
		return
	}
	fit := control.Best
	switch {
	case time.Since(reported) < aliveAfter && control.Stands(own, others):
		return // a leader that stops hands over, and then its heir stands: its request for this vote is under way
	case own.Leader == "": // somebody stands already, and may get all the votes it needs
		fit = control.Ahead
	case time.Since(reported) > aliveAfter && time.Since(r.LastContact()) < h.cfg.HeartbeatTimeout/4:
		return // raft's heartbeats are a fifth of the time-out apart at most
	}
	if fit(own, others) {
		r.Campaign(ctx, own.Leader)
	}
}

// voting returns the groups in which this node has a vote, those that are meant.
func (h *Host) voting(meant func(*replica.Status) bool) []replica.Status {
	var all []replica.Status
	for _, r := range h.list() {
		if s := r.Status(); s.Failure == "" && control.Votes(&s, h.cfg.Node) && meant(&s) {
			all = append(all, s)
		}
	}
	return all
}

// survivors asks the other voters of the groups for their state, each once.
func (h *Host) survivors(ctx context.Context, led []replica.Status, lost fsm.NodeID) []replica.Status {
	nodes := map[fsm.NodeID]bool{}
	for i := range led {
		for _, v := range led[i].Voters {
			if v != lost && v != h.cfg.Node {
				nodes[v] = true
			}
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithTimeout(ctx, quorumTimeout)
	defer cancel() // who has not answered by then is no longer asked
	answers := make(chan []replica.Status, len(nodes))
	for n := range nodes { // order-free: the answers are compared, not ordered
		wg.Go(func() {
			s, err := askStatus(ctx, h.deps.Caller, n)
			if err != nil {
				s = nil
			}
			answers <- s
		})
	}
	enough := time.NewTimer(candidateTimeout)
	defer enough.Stop()
	var all []replica.Status
	late := false
	for pending := len(nodes); pending > 0 && !(late && allHeard(led, all)); {
		select {
		case s := <-answers:
			all, pending = append(all, s...), pending-1
		case <-enough.C:
			late = true
		}
	}
	return all
}

func allHeard(led, others []replica.Status) bool {
	for i := range led {
		if !control.Heard(&led[i], others) {
			return false
		}
	}
	return true
}
