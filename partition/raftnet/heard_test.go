package raftnet

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// S-305: what an append says was so when the one before it was answered, never later.
func TestHeardAreAsOldAsTheAppendBefore(t *testing.T) {
	began := time.Unix(1_000, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	idle := func(term, commit uint64) *raft.AppendEntriesRequest {
		return &raft.AppendEntriesRequest{Term: term, PrevLogTerm: term, PrevLogEntry: commit, LeaderCommitIndex: commit}
	}
	busy := func(prev, commit uint64) *raft.AppendEntriesRequest {
		return &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: prev,
			Entries: []*raft.Log{{Index: prev + 1, Term: 1}}, LeaderCommitIndex: commit}
	}
	target := func(commit uint64) *raft.AppendEntriesRequest { // of which the predecessor's last word is not known
		return &raft.AppendEntriesRequest{Term: 2, PrevLogTerm: 1, PrevLogEntry: 6,
			Entries: []*raft.Log{{Index: 7, Term: 2}}, LeaderCommitIndex: commit}
	}
	type arrival struct {
		ms int
		a  *raft.AppendEntriesRequest
	}
	for name, c := range map[string]struct {
		heard []arrival
		index uint64
		want  int // -1: nothing is known
	}{
		"one append says nothing":                {[]arrival{{0, idle(1, 5)}}, 5, -1},
		"the second is as old as the first":      {[]arrival{{0, idle(1, 5)}, {250, idle(1, 5)}}, 5, 0},
		"the same word again is younger":         {[]arrival{{0, idle(1, 5)}, {250, idle(1, 5)}, {500, idle(1, 5)}}, 5, 250},
		"what is not applied yet does not count": {[]arrival{{0, idle(1, 5)}, {250, idle(1, 5)}, {500, idle(1, 6)}}, 5, 0},
		"a target that has committed nothing":    {[]arrival{{0, target(5)}, {250, target(5)}, {500, target(5)}}, 6, -1},
		"a target that has":                      {[]arrival{{0, target(5)}, {250, idle(2, 7)}}, 7, 0},
		"a heartbeat says nothing":               {[]arrival{{0, idle(1, 5)}, {250, &raft.AppendEntriesRequest{Term: 1}}}, 5, -1},
		"a new leader is heard twice":            {[]arrival{{0, idle(1, 5)}, {250, idle(2, 5)}}, 5, -1},
		"entries that are not committed yet":     {[]arrival{{0, busy(5, 5)}, {3, busy(6, 6)}}, 6, 0},
		"a copy that comes late":                 {[]arrival{{0, idle(1, 5)}, {250, idle(1, 5)}, {500, idle(1, 6)}, {750, idle(1, 5)}}, 5, 0},
		"a part of what is committed":            {[]arrival{{0, busy(5, 6)}, {3, busy(6, 7)}}, 7, -1},
	} {
		var h heard
		for _, x := range c.heard {
			h.append(x.a, at(x.ms))
		}
		got := h.current(c.index)
		if c.want < 0 && !got.IsZero() || c.want >= 0 && !got.Equal(at(c.want)) {
			t.Errorf("%s: current until %v", name, got.Sub(began))
		}
	}
}

// S-305: a replica that lags by a second under load knows how old it is, within the pause between words.
func TestHeardOfALaggingReplica(t *testing.T) {
	began := time.Unix(1_000, 0)
	var h heard
	for i := range 10_000 { // an entry a millisecond
		h.append(&raft.AppendEntriesRequest{Term: 1, PrevLogEntry: uint64(i), Entries: []*raft.Log{{Index: uint64(i) + 1, Term: 1}},
			LeaderCommitIndex: uint64(i)}, began.Add(time.Duration(i)*time.Millisecond))
	}
	for _, lag := range []int{1, 500, 2_000} {
		got := int(h.current(uint64(9_999 - lag)).Sub(began).Milliseconds())
		if best := 9_999 - lag; got > best || got < best-2*int(heardPause.Milliseconds()) {
			t.Errorf("%d ms behind: current until %d ms, at best %d", lag, got, best)
		}
	}
}

// notRested says that no voter is known by its beats.
func notRested(raft.ServerID) (never time.Time) { return never }

// S-305: a leader leads as of when the slowest of a majority was asked.
func TestALeaderLedWhenAMajorityWasAsked(t *testing.T) {
	now := time.Unix(1_000, 0)
	ago := func(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }
	voters := []raft.Server{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "d", Suffrage: raft.Nonvoter}}
	var h heard
	if got := h.led(3, "a", voters, now, notRested); !got.IsZero() {
		t.Errorf("nobody was asked: %v", got)
	}
	if got := h.led(3, "a", voters[:1], now, notRested); !got.Equal(now) {
		t.Errorf("alone: %v", got)
	}
	h.answered(3, "d", ago(1))
	if got := h.led(3, "a", voters, now, notRested); !got.IsZero() {
		t.Errorf("a replica without a vote was counted: %v", got)
	}
	h.answered(3, "b", ago(9))
	h.answered(3, "c", ago(5))
	h.answered(3, "c", ago(6)) // an answer that came late
	if got := h.led(3, "a", voters, now, notRested); !got.Equal(ago(5)) {
		t.Errorf("of three: %v ago", now.Sub(got))
	}
	h.answered(2, "b", now)
	if got := h.led(3, "a", append(voters[:3:3], raft.Server{ID: "e"}), now, notRested); !got.Equal(ago(9)) {
		t.Errorf("of four: %v ago", now.Sub(got))
	}
	if got := h.led(4, "a", voters, now, notRested); !got.IsZero() {
		t.Errorf("of another term: %v", got)
	}
	beats := func(id raft.ServerID) time.Time { return map[raft.ServerID]time.Time{"c": ago(2), "d": ago(1)}[id] }
	if got := h.led(4, "a", voters, now, beats); !got.Equal(ago(2)) {
		t.Errorf("known by beats alone: %v ago", now.Sub(got))
	}
	if got := h.led(3, "a", voters, now, beats); !got.Equal(ago(2)) {
		t.Errorf("known by later beats: %v ago", now.Sub(got))
	}
	older := func(raft.ServerID) time.Time { return ago(20) }
	if got := h.led(3, "a", voters, now, older); !got.Equal(ago(5)) {
		t.Errorf("known by earlier beats: %v ago", now.Sub(got))
	}
}
