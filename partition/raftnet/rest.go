package raftnet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// Standing is where the raft of a replica stands.
type Standing struct {
	Leads  bool
	Leader fsm.NodeID // "" if none is known
	Term   uint64
	Last   uint64 // the index of the last entry of the log
	Commit uint64 // the index of the last entry that is known to be committed
}

// rest is what a group knows of its other replicas from beats, so that it need not call them (decision 0102).
//
// A follower rests if it has all that its leader says there is. The leader's transport then answers heartbeats and
// empty appends by itself. Such an answer tells raft only that the follower is there: raft counts no entry as stored by
// it. So whatever a beat says wrongly can cost an election, and never an entry.
type rest struct {
	// written is the index of the last entry that raft gave to the log here, 0 if it gave none.
	written    atomic.Uint64
	parked     atomic.Int32
	heartbeats atomic.Uint64 // that raft has sent

	// version changes with everything below.
	version atomic.Uint64

	mu      sync.Mutex
	stirred chan struct{}             // closed when those that are parked must look again; nil if nobody is
	leads   map[fsm.NodeID]heardPlace // what nodes last said that they lead
	resting map[fsm.NodeID]heardPlace // what nodes last said that they follow this one in
	acked   map[fsm.NodeID]ack
}

// heardPlace is a place, and the pulse of the node that said it.
type heardPlace struct {
	term, last uint64
	*Pulse
	gone   bool // later beats have another place, or none
	missed bool // it was not fresh at the last look
}

// ack is what a follower has answered in a term.
type ack struct {
	term   uint64
	last   uint64    // the follower has the log up to here
	commit uint64    // and was told that it is committed up to here
	began  time.Time // the last call that it answered
}

// Heartbeats returns how many heartbeats raft has sent, or would have.
func (t *Transport) Heartbeats() uint64 { return t.rest.heartbeats.Load() }

// fresh reports whether a place was heard a moment ago.
func (t *Transport) fresh(p heardPlace, now time.Time) bool { return t.freshAt(p.At(), now) }

func (t *Transport) freshAt(at, now time.Time) bool {
	return !at.IsZero() && now.Sub(at) <= t.cfg.BeatEvery*8/5
}

// Say adds to a beat for a node what this group has to tell it.
func (t *Transport) Say(to fsm.NodeID, b *Beat) {
	if t.replica.Silent() {
		return
	}
	s := t.replica.Standing()
	if s.Commit != s.Last || s.Last == 0 {
		return
	}
	t.rest.mu.Lock()
	defer t.rest.mu.Unlock()
	switch a := t.rest.acked[to]; {
	case s.Leads && a.has(s):
		b.lead(t.cfg.Group, s)
	case !s.Leads && s.Leader == to && t.rest.leads[to].is(s) && t.fresh(t.rest.leads[to], time.Now()):
		b.rest(t.cfg.Group, s)
	}
}

// is reports whether a place is where a replica stands.
func (p heardPlace) is(s Standing) bool {
	return p.Pulse != nil && p.term == s.Term && p.last == s.Last
}

// has reports whether the follower has all that the leader has, and was told that it is committed.
func (a ack) has(s Standing) bool { return a.term == s.Term && a.last == s.Last && a.commit == s.Last }

// HearLeader takes what a node says in a beat: that it leads. The place counts while the pulse goes on, until the node is
// heard again of the group. The users of the place judge whether this replica follows that node in that term.
func (t *Transport) HearLeader(from fsm.NodeID, p Place, pulse *Pulse) {
	t.hear(&t.rest.leads, from, p, pulse)
}

// HearFollower takes what a node says in a beat: that it follows this replica. It does so as HearLeader does.
func (t *Transport) HearFollower(from fsm.NodeID, p Place, pulse *Pulse) {
	t.hear(&t.rest.resting, from, p, pulse)
}

func (t *Transport) hear(places *map[fsm.NodeID]heardPlace, from fsm.NodeID, p Place, pulse *Pulse) {
	t.rest.mu.Lock()
	defer t.rest.mu.Unlock()
	if *places == nil {
		*places = map[fsm.NodeID]heardPlace{}
	}
	(*places)[from] = heardPlace{term: p.Term, last: p.Last, Pulse: pulse}
	t.rest.version.Add(1)
}

// Miss is called when a beat of a node lacks the place that an earlier one had. The place is as old as the pulse is now, and
// later pulses say nothing of it.
func (t *Transport) Miss(from fsm.NodeID) {
	s := t.replica.Standing()
	t.rest.mu.Lock()
	led, rested := t.rest.leads[from], t.rest.resting[from]
	if led.Pulse != nil {
		led.Pulse, led.gone = led.stopped(), true
		t.rest.leads[from] = led
	}
	if rested.Pulse != nil {
		rested.Pulse, rested.gone = rested.stopped(), true
		t.rest.resting[from] = rested
	}
	t.rest.version.Add(1)
	t.rest.mu.Unlock()
	if since := led.Since(); !since.IsZero() && t.follows(from, led.term, s) {
		t.heard.rests(led.term, led.last, since)
	}
	if since := rested.Since(); !since.IsZero() && s.Leads && s.Term == rested.term {
		t.heard.answered(rested.term, string(from), since)
	}
}

// follows reports whether this replica follows a node in a term.
func (t *Transport) follows(leader fsm.NodeID, term uint64, s Standing) bool {
	return !s.Leads && s.Leader == leader && s.Term == term && !t.replica.Silent()
}

// Forget drops what a node said in beats: it was lost.
func (t *Transport) Forget(n fsm.NodeID) {
	t.rest.mu.Lock()
	delete(t.rest.resting, n)
	delete(t.rest.acked, n)
	delete(t.rest.leads, n)
	t.rest.version.Add(1)
	t.rest.stirLocked()
	t.rest.mu.Unlock()
}

// toldBy returns what the leader that this replica follows said last, and since when that is known to be true.
func (t *Transport) toldBy(s Standing) (p heardPlace, since time.Time, follows bool) {
	t.rest.mu.Lock()
	p = t.rest.leads[s.Leader]
	since = p.Since() // here, because a beat without the place takes the mutex before it renews the pulse
	t.rest.mu.Unlock()
	return p, since, !since.IsZero() && t.follows(s.Leader, p.term, s)
}

// LedBy returns when a beat last said that the leader of a term leads, zero if none did.
func (t *Transport) LedBy(leader fsm.NodeID, term uint64) time.Time {
	t.rest.mu.Lock()
	defer t.rest.mu.Unlock()
	p := t.rest.leads[leader]
	if p.term != term || !t.follows(leader, term, t.replica.Standing()) {
		return time.Time{}
	}
	return p.At()
}

// Writing is called before raft gives entries up to an index to the log. No append may be parked then: it has something to
// say now.
func (t *Transport) Writing(index uint64) {
	t.rest.written.Store(index)
	if t.rest.parked.Load() > 0 {
		t.stir()
	}
}

func (t *Transport) stir() {
	t.rest.mu.Lock()
	defer t.rest.mu.Unlock()
	t.rest.stirLocked()
}

func (r *rest) stirLocked() {
	if r.stirred != nil {
		close(r.stirred)
		r.stirred = nil
	}
}

// Look wakes what is parked for followers that are not heard of any more, and drops what they said last. It notes what the
// leader said last. It is called at each beat, unless the group is calm.
func (t *Transport) Look(now time.Time) {
	s := t.replica.Standing()
	if p, since, follows := t.toldBy(s); follows {
		t.heard.rests(p.term, p.last, since)
	}
	t.rest.mu.Lock()
	defer t.rest.mu.Unlock()
	for n, p := range t.rest.resting { // order-free: each is judged for itself
		missed := !s.Leads || p.term != s.Term || !t.fresh(p, now)
		if missed != p.missed {
			p.missed = missed
			t.rest.resting[n] = p
			t.rest.stirLocked()
		}
		if missed && p.gone {
			delete(t.rest.resting, n)
		}
	}
}

// Misses reports whether a follower needs a heartbeat: it does not rest, and no call to it was answered lately.
func (t *Transport) Misses(id fsm.NodeID, term, last uint64) bool {
	return !t.lately(id, term) && !t.Rests(id, term, last)
}

// Abdicate ends a leadership. Raft steps down when a heartbeat of that term is answered with a refusal, and each is so
// from now on, here. Calls that are under way end.
func (t *Transport) Abdicate(term uint64) {
	t.abdicated.Store(term)
	t.rest.version.Add(1)
	t.endCalls.Lock()
	defer t.endCalls.Unlock()
	t.cancelCalls()
	t.calls, t.cancelCalls = context.WithCancel(t.ctx)
}

// HandTo says that the leadership goes to a node, "" if to none any more. An append to that node is not repeated meanwhile.
func (t *Transport) HandTo(n fsm.NodeID) { t.handing.Store(&n) }

func (t *Transport) handsTo(n fsm.NodeID) bool {
	target := t.handing.Load()
	return target != nil && *target == n
}

// gaveUp refuses a heartbeat of a leadership that has given up, and reports whether it did.
func (t *Transport) gaveUp(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) bool {
	if !heartbeats(args) || t.abdicated.Load() != args.Term {
		return false
	}
	*resp = raft.AppendEntriesResponse{Term: args.Term}
	return true
}

// Rests reports whether a follower rests with all of the log of the leader of a term, which ends with last.
func (t *Transport) Rests(id fsm.NodeID, term, last uint64) bool {
	t.rest.mu.Lock()
	defer t.rest.mu.Unlock()
	return t.restsLocked(id, term, last)
}

func (t *Transport) restsLocked(id fsm.NodeID, term, last uint64) bool {
	p := t.rest.resting[id]
	return p.term == term && p.last == last && t.fresh(p, time.Now())
}

// lately reports whether a follower has answered a call of a term that began less than a beat ago.
func (t *Transport) lately(id fsm.NodeID, term uint64) bool {
	t.rest.mu.Lock()
	defer t.rest.mu.Unlock()
	a := t.rest.acked[id]
	return a.term == term && time.Since(a.began) < t.cfg.BeatEvery
}

// acknowledged notes the answer to an append.
func (t *Transport) acknowledged(id fsm.NodeID, args *raft.AppendEntriesRequest, success bool, began time.Time) {
	t.rest.mu.Lock()
	defer t.rest.mu.Unlock()
	if t.rest.acked == nil {
		t.rest.acked = map[fsm.NodeID]ack{}
	}
	before := t.rest.acked[id]
	a := before
	if a.term != args.Term {
		a = ack{term: args.Term}
	}
	if began.After(a.began) {
		a.began = began
	}
	if !heartbeats(args) {
		a.last, a.commit = 0, 0
		if success {
			a.last, a.commit = args.PrevLogEntry+uint64(len(args.Entries)), args.LeaderCommitIndex
		}
	}
	if before.term != a.term || before.last != a.last || before.commit != a.commit {
		t.rest.version.Add(1)
	}
	t.rest.acked[id] = a
}

// heartbeats reports whether an append is one of raft's heartbeats, which say nothing of the log.
func heartbeats(args *raft.AppendEntriesRequest) bool {
	return len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0
}

// spare answers an append without a call, if the follower needs none, and reports whether it did. An empty append has
// nothing to say while the follower rests. So it waits until there is something to say, or the follower must be asked.
func (t *Transport) spare(id fsm.NodeID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) bool {
	if t.cfg.BeatEvery == 0 || len(args.Entries) > 0 {
		return false
	}
	beat := heartbeats(args)
	if beat {
		t.rest.heartbeats.Add(1)
	}
	s := t.replica.Standing()
	if !s.Leads || s.Term != args.Term || t.replica.Silent() || t.abdicated.Load() == args.Term {
		return false
	}
	switch {
	case beat && !t.lately(id, args.Term) && !t.Rests(id, args.Term, s.Last):
		return false
	case !beat && (args.PrevLogEntry != s.Last || args.LeaderCommitIndex != s.Last || !t.park(id, args.Term, s.Last)):
		return false
	}
	*resp = raft.AppendEntriesResponse{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id)},
		Term:      args.Term, LastLog: s.Last, Success: true,
	}
	return true
}

// park waits while a follower rests and nothing is written. It reports whether the follower rests still.
func (t *Transport) park(id fsm.NodeID, term, last uint64) bool {
	t.rest.parked.Add(1)
	defer t.rest.parked.Add(-1)
	t.rest.mu.Lock()
	if !t.restsLocked(id, term, last) { // whoever forgot it has stirred nobody: nobody waited yet
		t.rest.mu.Unlock()
		return false
	}
	if t.rest.stirred == nil {
		t.rest.stirred = make(chan struct{})
	}
	stirred := t.rest.stirred
	t.rest.mu.Unlock()
	// Writing notes the index before it looks whether somebody is parked. So either it wakes this one, or this one sees the
	// index here.
	if t.rest.written.Load() != last {
		return true
	}
	select {
	case <-stirred:
	case <-t.ctx.Done():
		return false
	}
	s := t.replica.Standing()
	return s.Leads && s.Term == term && t.Rests(id, term, last)
}
