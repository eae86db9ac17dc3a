package replica

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// calmNow returns what the group stands on if it has nothing to do, nil otherwise. Version is that of the transport before
// this beat looked at anything.
func (r *Replica) calmNow(version uint64, now time.Time) *raftnet.Calm {
	c := &r.clockwork
	if c.awake || c.transfer != nil || r.raft.State() == raft.Candidate {
		return nil
	}
	return r.net.Calm(version, r.standing(), r.Others(), now)
}

// Others returns the other nodes that have replicas of the group.
func (r *Replica) Others() (ids []fsm.NodeID) {
	if c := r.calm.Load(); c != nil && r.raft.LastIndex() == c.Last && r.raft.CurrentTerm() == c.Term {
		return c.Others
	}
	for _, o := range r.Servers() {
		if o.ID != raft.ServerID(r.cfg.Node) {
			ids = append(ids, fsm.NodeID(o.ID))
		}
	}
	return ids
}

// stillCalm returns what the last beat found the group to stand on, nil if that may have changed, and when it was heard of
// last. It reads little, because a node with many groups does it for all of them, several times a second. Each call
// of another node that changes the group changes the term, the last index, the role or the version, and so ends its calm.
func (r *Replica) stillCalm(now time.Time) (c *raftnet.Calm, heard time.Time) {
	c = r.calm.Load()
	if c == nil || r.silent() || r.raft.CurrentTerm() != c.Term || r.raft.LastIndex() != c.Last {
		return nil, heard
	}
	if state := r.raft.State(); c.Leads != (state == raft.Leader) || !c.Leads && state != raft.Follower {
		return nil, heard
	}
	heard, still := r.net.Still(c, now)
	if !still {
		return nil, heard
	}
	return c, heard
}

// stayCalm is what a beat does for a group that is calm.
func (r *Replica) stayCalm(c *raftnet.Calm, heard, now time.Time) {
	if !c.Leads {
		r.clockwork.contact = heard
		r.net.Note(c)
		return
	}
	r.clockwork.contact = now
	if r.clockwork.beats++; c.Followed() && r.clockwork.beats%refreshBeats == 0 {
		r.refresh()
	}
}

// refresh has raft send heartbeats to followers that rest, which the transport answers. A leader of raft does so when its
// heartbeat time-out becomes shorter, which costs less than to verify its leadership. That time-out is put off for so long
// that it may lose a microsecond each time.
func (r *Replica) refresh() {
	c := r.raft.ReloadableConfig()
	c.HeartbeatTimeout -= time.Microsecond
	if err := r.raft.ReloadConfig(c); err != nil {
		r.log.Error("raft did not take its time-outs", "error", err)
	}
}

// Say adds to beats for other nodes what this group has to tell them.
func (r *Replica) Say(beats raftnet.Beats) {
	c, _ := r.stillCalm(time.Now())
	r.say(c, beats)
}

func (r *Replica) say(c *raftnet.Calm, beats raftnet.Beats) {
	if c != nil {
		r.net.SayCalm(c, beats)
		return
	}
	for i := range beats {
		r.net.Say(beats[i].To, &beats[i].Beat)
	}
}
