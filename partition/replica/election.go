package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// campaignEvery is the least time between two elections that a replica calls by itself.
const campaignEvery = 2 * time.Second

// Leader returns who this replica believes to lead, and the term it knows.
func (r *Replica) Leader() (leader fsm.NodeID, term uint64) {
	term = r.inOneTerm(func() {
		_, id := r.raft.LeaderWithID()
		leader = fsm.NodeID(id)
	})
	return leader, term
}

// Leading reports whether this replica leads and takes proposals. Raft is asked, too. The proposer sees the end of a
// leadership a moment later, and until then a group would seem to have two leaders.
func (r *Replica) Leading() bool {
	return r.Err() == nil && r.prop.accepting() && r.raft.State() == raft.Leader
}

// campaignAlone lets the only voter of a group lead as soon as it is verified, instead of after an
// election time-out (A17).
func (r *Replica) campaignAlone() {
	if !r.OnlyVoter() {
		return
	}
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		select {
		case <-r.verified:
		case <-r.stopping:
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), r.cfg.ElectionTimeout)
		defer cancel()
		if err := r.net.CampaignNow(ctx); err != nil {
			r.log.Debug("did not stand for election", "error", err)
		}
	}()
}

// given notes that another node hands the leadership to this replica.
func (r *Replica) given() {
	r.mu.Lock()
	r.givenAt = time.Now()
	r.mu.Unlock()
}

// GivenWithin reports whether another node handed this replica its leadership within d.
func (r *Replica) GivenWithin(d time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.givenAt.IsZero() && time.Since(r.givenAt) < d
}

// Campaign calls an election now, if this replica has a vote, still follows lost ("" for nobody) and has not called one
// lately.
func (r *Replica) Campaign(ctx context.Context, lost fsm.NodeID) {
	r.mu.Lock()
	recent := !r.stoodAt.IsZero() && time.Since(r.stoodAt) < campaignEvery
	leader, _ := r.Leader()
	if recent || leader != lost || r.raft.State() != raft.Follower || r.Err() != nil || !r.Votes() {
		r.mu.Unlock()
		return
	}
	r.stoodAt = time.Now()
	r.mu.Unlock()
	r.log.Info("standing for election", "lost", lost)
	if err := r.net.CampaignNow(ctx); err != nil {
		r.log.Debug("did not stand for election", "error", err)
	}
}

// Deferring returns since when this replica leaves elections to others; it begins now if there was a leader.
func (r *Replica) Deferring() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.defersSince.IsZero() {
		r.defersSince = time.Now()
	}
	return r.defersSince
}

// leaderKnown ends what Deferring counted.
func (r *Replica) leaderKnown() {
	r.mu.Lock()
	r.defersSince = time.Time{}
	r.mu.Unlock()
}

// ErrPeerLost ends a transfer to a node that was reported lost.
var ErrPeerLost = errors.New("the node is lost")

// Transfer returns without an error only when this replica is not Leading: raft ends the future behind
// its leadership.
//
// Raft takes no entries meanwhile. So the transfer ends by raft's own election time-out at the latest, even if ctx ended
// before.
func (r *Replica) Transfer(ctx context.Context, to fsm.NodeID) error {
	t := r.transferring(to)
	if t == nil {
		return fmt.Errorf("transfer leadership of partition %d to %s: %w", r.id, to, raft.ErrLeadershipTransferInProgress)
	}
	if r.node.Lost(to) { // looked at behind transferring: whoever is told of a loss later ends this transfer
		r.transferred(t)
		return fmt.Errorf("transfer leadership of partition %d to %s: %w", r.id, to, ErrPeerLost)
	}
	f := r.raft.LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(to))
	done := make(chan error, 1)
	go func() {
		err := f.Error()
		r.transferred(t)
		if t.lost {
			err = ErrPeerLost
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("transfer leadership of partition %d to %s: %w", r.id, to, err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.stopping:
		return fsm.ErrClosed
	}
}

// closeBy is how many entries a follower that is closely behind may lack: one is under way, some
// more come while it is asked.
const closeBy = 8

// CloselyFollowedBy reports whether a follower lacks few entries.
func (r *Replica) CloselyFollowedBy(s *Status) bool { return s.Last+closeBy >= r.raft.LastIndex() }

// Led returns the epoch of the present leadership, once it is applied.
func (r *Replica) Led() (epoch uint64, ok bool) { return r.prop.led() }

// NotLeader returns the error that says who may lead.
func (r *Replica) NotLeader() error { return r.prop.notLeader() }

// LastContact returns when this replica last heard of its leader, by a call or by a beat.
func (r *Replica) LastContact() time.Time {
	contact := r.raft.LastContact()
	if beat := r.net.LedBy(r.Leader()); beat.After(contact) {
		return beat
	}
	return contact
}

// LastIndex returns the index of the last entry of the log.
func (r *Replica) LastIndex() uint64 { return r.raft.LastIndex() }
