package partition

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// candidateTimeout bounds the question that the survivors ask each other. Who does not answer
	// in time does not count; if two then stand for election, the votes decide.
	candidateTimeout = 20 * time.Millisecond
	// quorumTimeout bounds it as long as the answers so far would not elect anybody: on a busy
	// machine they may take longer, and standing without them is in vain.
	quorumTimeout = 250 * time.Millisecond
	// standEvery is the least time between two elections that a replica calls by itself.
	standEvery = 2 * time.Second
)

// PeerLost says that the process of a node is surely gone (A17): every group that it led gets a new
// leader at once, not after the heartbeat time-out. Each survivor is told by its own mesh and
// decides for itself; the best of them stands. A false alarm costs an election and nothing else.
//
// Whoever stands so raises the term without asking first, so only who hears a majority does: a node
// that lost the network and not its peers would otherwise come back with a term of its own, and
// depose every leader that served meanwhile.
func (h *Host) PeerLost(ctx context.Context, lost fsm.NodeID) {
	h.lost.add(lost)
	h.succeed(ctx, lost, func(*Status) bool { return true })
}

// succeed gives the groups that a node led a new leader, those that are meant: the best of the survivors
// stands.
func (h *Host) succeed(ctx context.Context, lost fsm.NodeID, meant func(*Status) bool) {
	var led []Status
	for _, r := range h.list() {
		s := r.Status()
		if s.Leader == lost && s.Failure == "" && votes(&s, h.cfg.Node) && meant(&s) {
			led = append(led, s)
		}
	}
	if len(led) == 0 {
		return
	}
	others := h.survivors(ctx, led, lost)
	for i := range led {
		if r := h.Replica(led[i].Partition); r != nil && heard(&led[i], others) && best(&led[i], others) {
			r.stand(ctx, lost)
		}
	}
}

func votes(s *Status, n fsm.NodeID) bool {
	for _, v := range s.Voters {
		if v == n {
			return true
		}
	}
	return false
}

// survivors asks the other voters of the groups for their state, each once.
func (h *Host) survivors(ctx context.Context, led []Status, lost fsm.NodeID) []Status {
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
	answers := make(chan []Status, len(nodes))
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
	var all []Status
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

// heard reports whether a majority of the voters answered, this one included.
func heard(own *Status, others []Status) bool {
	n := 1
	for i := range others {
		o := &others[i]
		if o.Partition == own.Partition && o.Failure == "" && votes(own, o.Node) {
			n++
		}
	}
	return n > len(own.Voters)/2
}

func allHeard(led, others []Status) bool {
	for i := range led {
		if !heard(&led[i], others) {
			return false
		}
	}
	return true
}

// best reports whether no other voter that answered has more log; equals go to one whose clock is right,
// and then to the lowest id.
func best(own *Status, others []Status) bool {
	for i := range others {
		o := &others[i]
		if o.Partition != own.Partition || o.Failure != "" || !votes(own, o.Node) {
			continue
		}
		switch {
		case o.Leading:
			return false
		case o.LastTerm != own.LastTerm:
			if o.LastTerm > own.LastTerm {
				return false
			}
		case o.Last != own.Last:
			if o.Last > own.Last {
				return false
			}
		case o.WrongClock != own.WrongClock:
			if own.WrongClock {
				return false
			}
		case o.Node < own.Node:
			return false
		}
	}
	return true
}

// stand calls an election now, if this replica still follows lost ("" for nobody) and has not
// called one lately.
func (r *Replica) stand(ctx context.Context, lost fsm.NodeID) {
	r.mu.Lock()
	recent := !r.stoodAt.IsZero() && time.Since(r.stoodAt) < standEvery
	leader, _ := r.Leader()
	if recent || leader != lost || r.raft.State() != raft.Follower || r.err() != nil || r.blank() {
		r.mu.Unlock()
		return
	}
	r.stoodAt = time.Now()
	r.mu.Unlock()
	r.log.Info("standing for election", "lost", lost)
	if err := r.wire.standNow(ctx); err != nil {
		r.log.Debug("did not stand for election", "error", err)
	}
}

// lastTerm returns the term of the last log entry. Raft offers it only as text.
func (r *Replica) lastTerm() uint64 {
	n, err := strconv.ParseUint(r.raft.Stats()["last_log_term"], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
