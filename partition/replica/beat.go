package replica

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// never is raft's own time-out while the beats of the node take its place. Raft draws a time of up to twice as much.
const never = 365 * 24 * time.Hour

// clockwork is what the beats of a node do for raft in one group (decision 0102). Raft has a timer for each heartbeat to
// each follower, one for the lease of a leader, and one for a follower's patience. Here the beat of the node looks at all
// groups at once, so a node wakes for its beats and not for its groups.
type clockwork struct {
	mu        sync.Mutex
	patience  time.Duration // after which the replica stands for election, drawn anew after each contact
	contact   time.Time     // when it last heard of its leader, or led
	awake     bool          // raft has its own time-outs for once
	transfer  *transfer     // of the leadership, under way; nil if none is
	term      uint64        // that it leads
	led       time.Time     // since when it leads in that term
	ended     uint64        // the last term whose lease ended
	beats     int           // while it led
	unheeded  int           // heartbeats that raft was asked for and has not sent
	sentSoFar uint64
}

// Beat is called at each beat of the node, by one goroutine. It waits for nothing. It adds to beats for other nodes what the
// group has to tell them.
func (r *Replica) Beat(now time.Time, beats raftnet.Beats) {
	r.clockwork.mu.Lock()
	c, heard := r.stillCalm(now)
	if c != nil && !r.clockwork.awake && r.clockwork.transfer == nil {
		r.stayCalm(c, heard, now)
	} else {
		r.lookAround(now)
	}
	r.clockwork.mu.Unlock()
	r.say(c, beats)
}

// lookAround is what a beat does for a group that was not calm at the last one.
func (r *Replica) lookAround(now time.Time) {
	r.net.Look(now)
	version := r.net.Version()
	switch r.raft.State() {
	case raft.Leader:
		r.clockwork.contact = now
		r.setTimers(r.clockwork.transfer != nil)
		r.keepLeading(now)
	case raft.Follower:
		left := r.patienceLeft(now)
		r.setTimers(left <= 0)
		if left > 0 && left < r.beatEvery {
			// Two followers whose beats fall together must not stand together.
			time.AfterFunc(left, r.impatient)
		}
	case raft.Candidate:
		r.setTimers(true)
	}
	r.calm.Store(r.calmNow(version, now))
}

// impatient has a follower stand that has waited for its leader for long enough.
func (r *Replica) impatient() {
	r.clockwork.mu.Lock()
	defer r.clockwork.mu.Unlock()
	if r.raft.State() == raft.Follower && r.patienceLeft(time.Now()) <= 0 {
		r.setTimers(true)
	}
}

// patienceLeft returns for how long a follower goes on waiting for its leader.
func (r *Replica) patienceLeft(now time.Time) time.Duration {
	c := &r.clockwork
	contact := r.LastContact()
	if contact.IsZero() || contact.Before(r.openedAt) {
		contact = r.openedAt
	}
	if newer := contact.After(c.contact); newer || c.patience == 0 {
		c.patience = r.cfg.HeartbeatTimeout + rand.N(r.cfg.HeartbeatTimeout)
		if newer {
			c.contact = contact
		}
	}
	return c.patience - now.Sub(c.contact)
}

// transfer is one of the leadership to another node.
type transfer struct {
	to    fsm.NodeID
	ended chan struct{} // closed when raft has ended it
	lost  bool          // EndTransfer was called; to be read when ended is closed
}

// transferring begins a transfer, in which raft has its own time-outs. It returns nil if one is under way already.
func (r *Replica) transferring(to fsm.NodeID) *transfer {
	r.clockwork.mu.Lock()
	defer r.clockwork.mu.Unlock()
	if r.clockwork.transfer != nil {
		return nil
	}
	r.net.HandTo(to)
	r.clockwork.transfer = &transfer{to: to, ended: make(chan struct{})}
	r.setTimers(true)
	return r.clockwork.transfer
}

func (r *Replica) transferred(t *transfer) {
	r.clockwork.mu.Lock()
	defer r.clockwork.mu.Unlock()
	r.net.HandTo("")
	r.clockwork.transfer = nil
	close(t.ended)
}

// EndTransfer ends a transfer of the leadership to a node that was lost. Raft would go on with it for an election time-out
// and take no entry. So this replica gives its leadership up, in the same term. EndTransfer reports whether it did, and
// raft knows no leader then.
func (r *Replica) EndTransfer(ctx context.Context, to fsm.NodeID) bool {
	s := r.standing()
	r.clockwork.mu.Lock()
	t := r.clockwork.transfer
	if !s.Leads || t == nil || t.to != to {
		r.clockwork.mu.Unlock()
		return false
	}
	t.lost = true
	r.net.Abdicate(s.Term)
	r.heartbeat()
	r.clockwork.mu.Unlock()
	select {
	case <-t.ended:
	case <-ctx.Done():
	}
	return true
}

// setTimers gives raft the time-outs of the configuration, or puts them off. A follower whose contact is older than that
// then stands at once.
func (r *Replica) setTimers(awake bool) {
	if r.clockwork.awake == awake {
		return
	}
	c := r.raft.ReloadableConfig()
	c.HeartbeatTimeout, c.ElectionTimeout = never, never
	if awake {
		c.HeartbeatTimeout, c.ElectionTimeout = r.cfg.HeartbeatTimeout, r.cfg.ElectionTimeout
	}
	if err := r.raft.ReloadConfig(c); err != nil {
		r.log.Error("raft did not take its time-outs", "error", err)
		return
	}
	r.clockwork.awake, r.clockwork.unheeded = awake, 0
}

// refreshBeats is after how many beats raft hears from followers that rest. Raft has a lease of its own, which is a
// heartbeat time-out long here: eight beats at least. So three beats may come late, as in the leader's lease.
const refreshBeats = 5

const (
	// unheededMost is how many heartbeats may be asked for in vain in a row, then only each unheededPause is. Raft's queue
	// of them holds 64, and whoever asks for more waits.
	unheededMost  = 16
	unheededPause = 32
)

// keepLeading ends a leadership that no majority has answered to for the lease. Otherwise it has raft send heartbeats, if a
// follower needs one.
func (r *Replica) keepLeading(now time.Time) {
	c := &r.clockwork
	servers, s := r.Servers(), r.standing()
	if !s.Leads || r.OnlyVoter() { // raft sends no heartbeats for a leader that is a majority by itself
		return
	}
	if c.term != s.Term {
		c.term, c.led = s.Term, now
	}
	led := r.net.LedAt(s.Term, servers, now)
	if led.Before(c.led) {
		led = c.led
	}
	if now.Sub(led) > r.cfg.LeaderLease {
		if c.ended != s.Term { // raft's loop may hang in a disk, and lead for it until then
			c.ended = s.Term
			r.log.Warn("no majority has answered, so this replica leads no more", "term", s.Term, "for", now.Sub(led))
		}
		r.net.Abdicate(s.Term)
	} else if c.beats++; c.beats%refreshBeats != 0 && !slices.ContainsFunc(servers, func(o raft.Server) bool {
		return o.ID != raft.ServerID(r.cfg.Node) && r.net.Misses(fsm.NodeID(o.ID), s.Term, s.Last)
	}) {
		return
	}
	r.heartbeat()
}

// heartbeat has raft send heartbeats to all followers. The transport spares those that need none.
func (r *Replica) heartbeat() {
	c := &r.clockwork
	if sent := r.net.Heartbeats(); sent != c.sentSoFar {
		c.sentSoFar = sent
		if !c.awake { // with time-outs of its own raft sends some that nobody asked for, even while its loop hangs
			c.unheeded = 0
		}
	}
	if c.unheeded++; c.unheeded > unheededMost && c.unheeded%unheededPause != 0 {
		return
	}
	r.raft.VerifyLeader() // what it finds is nobody's business here
}

// standing returns where raft stands.
func (r *Replica) standing() (s raftnet.Standing) {
	s.Term = r.inOneTerm(func() {
		_, id := r.raft.LeaderWithID()
		s.Leader, s.Leads = fsm.NodeID(id), r.raft.State() == raft.Leader
		s.Commit, s.Last = r.raft.CommitIndex(), r.raft.LastIndex()
	})
	return s
}

// inOneTerm repeats a look at raft until no term began meanwhile, and returns the term. Raft changes what it shows one
// after the other: a leader must not be told under another's term.
func (r *Replica) inOneTerm(look func()) uint64 {
	for {
		term := r.raft.CurrentTerm()
		look()
		if r.raft.CurrentTerm() == term {
			return term
		}
	}
}

// Rested reports whether this replica leads and all others of its group rest.
func (r *Replica) Rested() bool {
	if c, _ := r.stillCalm(time.Now()); c != nil {
		return c.Leads
	}
	servers, s := r.Servers(), r.standing()
	return s.Leads && !slices.ContainsFunc(servers, func(o raft.Server) bool {
		return o.ID != raft.ServerID(r.cfg.Node) && !r.net.Rests(fsm.NodeID(o.ID), s.Term, s.Last)
	})
}

// Transport returns raft's transport of this group, which exchanges beats for it.
func (r *Replica) Transport() *raftnet.Transport { return r.net }
