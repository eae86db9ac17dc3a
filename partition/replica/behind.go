package replica

import "github.com/hashicorp/raft"

// behind takes away from an append what this replica has applied and no longer has in its log.
//
// Raft checks that the entry before the new ones is in the log, and refuses the append if it is not there. A leader
// that takes a follower for further back than it is then goes back entry by entry until its own log ends. It sends a
// snapshot, hears that the follower has it, sends the entry behind the snapshot, and is refused again. That goes on
// for ever if the follower's log begins right behind a snapshot. It never becomes a voter.
//
// An applied entry is committed, so every leader of this term has the same one (Raft, §5.4.3). Of such an append only
// the entries behind it are new.
func (r *Replica) behind(c *raft.AppendEntriesRequest) {
	applied := r.machine.index()
	if c.PrevLogEntry == 0 || c.PrevLogEntry >= applied {
		return
	}
	log := r.stores.Log
	first, err := log.FirstIndex()
	if err != nil || first != 0 && c.PrevLogEntry >= first {
		return // raft finds it, or meets the error itself
	}
	if n := len(c.Entries); n == 0 || c.Entries[n-1].Index <= applied {
		// Nothing is new. Without an entry before them raft agrees to no entries at all; what is committed it may take
		// from this call only as far as the call goes.
		c.PrevLogEntry, c.PrevLogTerm, c.Entries = 0, 0, nil
		c.LeaderCommitIndex = min(c.LeaderCommitIndex, applied)
		return
	}
	// The entry before the new ones is the last that was applied, if raft finds it. Raft finds it in the log, or as
	// the end of a snapshot with an empty log behind it. Otherwise it is the first of the log.
	anchor := applied
	if first > applied {
		anchor = first
	}
	i := anchor - c.Entries[0].Index
	if c.Entries[0].Index > anchor || i >= uint64(len(c.Entries)) || c.Entries[i].Index != anchor {
		return
	}
	if anchor == first {
		var here raft.Log
		if err := log.GetLog(first, &here); err != nil || here.Term != c.Entries[i].Term {
			return // raft has to clear it, and cannot without the entry before
		}
	}
	c.PrevLogEntry, c.PrevLogTerm, c.Entries = anchor, c.Entries[i].Term, c.Entries[i+1:]
}
