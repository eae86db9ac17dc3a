package raftnet

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// heard notes what leaders and followers said of how far the group has come. Reads that may be stale use it (S-305);
// no decision of raft does.
//
// A leader sends a peer one append at a time. So the content of an append was true when the append before it was
// answered, and that is after the append before it arrived here. So a delay of the network or a pause of a process
// never makes a state seem younger than it is, with two exceptions. If answers to the leader are lost, the leader
// sends the same append again with a newer commit index; until the next append the state can seem younger then. And a
// leader that was deposed while this replica could not hear of it still counts until it notices, which is LeaderLease
// of the configuration; that concerns groups of five replicas, and replicas without a vote.
type heard struct {
	mu    sync.Mutex
	term  uint64
	last  time.Time            // when the last append of this term arrived
	own   uint64               // index of the first known entry of this term; 0 if none is known
	words [heardWords]word     // what leaders said, the oldest is overwritten
	next  int                  // of words
	acks  map[string]time.Time // of peers that took this replica for their leader: when it asked
	acked uint64               // the term of acks
}

// word is a leader's: the group had committed nothing beyond commit at the time at.
type word struct {
	commit uint64
	at     time.Time
}

// Words are kept for at least heardWords*heardPause: a replica that takes longer to apply what it was told
// knows less well how old it is.
const (
	heardWords = 32
	heardPause = 100 * time.Millisecond
)

// append notes an append that raft has taken.
func (h *heard) append(a *raft.AppendEntriesRequest, arrived time.Time) {
	if a.LeaderCommitIndex == 0 {
		return // a heartbeat
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before, same := h.last, h.term == a.Term
	h.last, h.term = arrived, a.Term
	if !same {
		h.own = 0
	}
	h.findOwn(a)
	if !same {
		return // nothing was heard of this leader before
	}
	// Until an entry of its own is committed a leader does not know what its predecessors had committed.
	if h.own == 0 || a.LeaderCommitIndex < h.own {
		return
	}
	// An append tells the commit index up to its last entry at most (see wire.AppendEntries). If it is that very
	// entry, there may be more.
	if n := uint64(len(a.Entries)); n > 0 && a.LeaderCommitIndex >= a.PrevLogEntry+n {
		return
	}
	h.noteLocked(a.LeaderCommitIndex, before)
}

// rests notes that a group rests: its leader has committed an entry, and had committed nothing behind it at a time. The
// follower has taken an append of the leader in that term.
func (h *heard) rests(term, commit uint64, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.term == term && h.own != 0 && commit >= h.own {
		h.noteLocked(commit, at)
	}
}

// counts reports whether what a leader says in a beat is news: rests would note it.
func (h *heard) counts(term, commit uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term == term && h.own != 0 && commit >= h.own && commit >= h.words[(h.next+heardWords-1)%heardWords].commit
}

// noteLocked notes a word of a leader.
func (h *heard) noteLocked(commit uint64, at time.Time) {
	newest := &h.words[(h.next+heardWords-1)%heardWords]
	if commit < newest.commit {
		return // a copy of an earlier append that was under way for long
	}
	if newest.commit == commit {
		if at.After(newest.at) {
			newest.at = at
		}
		return
	}
	if older := h.words[(h.next+heardWords-2)%heardWords]; at.Sub(older.at) < heardPause {
		*newest = word{commit, at}
		return
	}
	h.words[h.next] = word{commit, at}
	h.next = (h.next + 1) % heardWords
}

// findOwn looks for an entry of the leader's own term.
func (h *heard) findOwn(a *raft.AppendEntriesRequest) {
	if h.own == 0 && a.PrevLogTerm == a.Term {
		h.own = a.PrevLogEntry
	}
	for _, e := range a.Entries {
		if h.own != 0 {
			return
		}
		if e.Term == a.Term {
			h.own = e.Index
		}
	}
}

// answered notes that a peer answered an append of this replica's leadership that began at that time.
func (h *heard) answered(term uint64, peer string, began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if term < h.acked {
		return
	}
	if h.acks == nil || term > h.acked {
		h.acks, h.acked = map[string]time.Time{}, term
	}
	if began.After(h.acks[peer]) {
		h.acks[peer] = began
	}
}

// current returns until when a state that has applied up to index held everything; zero if nobody said.
func (h *heard) current(index uint64) (at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.words {
		if w.commit <= index && w.at.After(at) {
			at = w.at
		}
	}
	return at
}

// led returns when a majority of the voters last took self for their leader in a term; zero if not all
// that it takes have yet. The function rested returns since when a voter is known by its beats to do so.
func (h *heard) led(term uint64, self fsm.NodeID, voters []raft.Server, now time.Time, rested func(raft.ServerID) time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var asked []time.Time
	for _, v := range voters {
		switch {
		case v.Suffrage != raft.Voter:
		case v.ID == raft.ServerID(self):
			asked = append(asked, now)
		default:
			at := rested(v.ID)
			if acked := h.acks[string(v.ID)]; h.acked == term && acked.After(at) {
				at = acked
			}
			asked = append(asked, at)
		}
	}
	if len(asked) == 0 {
		return time.Time{}
	}
	slices.SortFunc(asked, func(a, b time.Time) int { return b.Compare(a) })
	return asked[len(asked)/2] // of three the second, of four the third
}
