package raftnet

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/wire"
)

// The kinds of calls that a Transport makes of its Caller.
const (
	KindRaft     uint8 = 1 // AppendEntries, RequestVote, RequestPreVote, TimeoutNow
	KindSnapshot uint8 = 2 // InstallSnapshot, a stream
)

// Caller sends bytes to other nodes and gets bytes back.
type Caller interface {
	// Call sends one request. Cancelling ctx cancels the handler's context.
	Call(ctx context.Context, to fsm.NodeID, kind uint8, request []byte) ([]byte, error)
	// CallStream sends a header and a body of any length.
	CallStream(ctx context.Context, to fsm.NodeID, kind uint8, header []byte, body io.Reader) ([]byte, error)
}

// Config is what one group's transport is told when it is made.
type Config struct {
	Group  fsm.PartitionID
	Self   fsm.NodeID
	Caller Caller

	// BeatEvery is the time between two beats of the node; 0 if it has none. Groups do not rest then.
	BeatEvery time.Duration

	HeartbeatTimeout time.Duration // bounds the pause between two tries of an append: a quarter of it
	ElectionTimeout  time.Duration // bounds every call but appends and snapshots
	RPCTimeout       time.Duration // bounds an append
	MaxAppendBytes   int           // bounds the entries of one append; one entry always fits
	Rate             *Rate         // of snapshots to nodes without a vote; nil for no bound
}

// Replica is what a Transport asks of the replica that it belongs to, and what it tells it. The methods are called from
// raft's goroutines and from those that serve peers.
type Replica interface {
	// Silent reports whether the replica neither asks nor answers now: its disk stalls, it has failed, or nobody has
	// verified its data yet.
	Silent() bool
	// Blank reports whether the replica has no configuration. It does not vote then (R8).
	Blank() bool
	// Allowed reports whether a node is a member of the cluster.
	Allowed(fsm.NodeID) bool
	// Learner reports whether a node is a member without a vote.
	Learner(raft.ServerID) bool
	// Voter returns a member with a vote by the configuration of the replica, "" if there is none.
	Voter() raft.ServerID
	// Term returns raft's term.
	Term() uint64
	// Standing returns where raft stands. It waits for nothing.
	Standing() Standing
	// Defers reports whether the replica leaves an election to others.
	Defers() bool
	// Given is called when another node tells the replica to take over.
	Given()
	// Behind shortens an append of a leader that believes the replica to have less of the log than it has.
	Behind(*raft.AppendEntriesRequest)
	// Holds reports whether the replica has everything that a snapshot, or a log, up to an entry has.
	Holds(index, term uint64) bool
	// Unreadable is told of a snapshot that cannot be read.
	Unreadable(error)
}

// Transport is the raft.Transport of one group over the node's Caller.
//
// It has no heartbeat fast path, because raft's handler changes term and state off its main loop (R2). It has no
// pipeline, because raft's deadlocks after a rejected append (R5). Addresses are node ids: an IP never enters a
// configuration or a vote.
type Transport struct {
	cfg     Config
	replica Replica
	gate    *gate
	// received counts the bytes of snapshots that raft has read.
	received atomic.Uint64
	sendings sendings
	heard    heard // from leaders, and from peers that follow this replica
	rest     rest
	rpc      chan raft.RPC
	ctx      context.Context // ends with Close; raft's own calls carry none
	cancel   context.CancelFunc
	// calls ends with the leadership that gives up; endCalls guards it.
	calls       context.Context
	cancelCalls context.CancelFunc
	endCalls    sync.Mutex
	abdicated   atomic.Uint64              // the term that this replica leads no more
	handing     atomic.Pointer[fsm.NodeID] // who is to lead instead; nil or "" if nobody
	// requests holds *[]byte: raft sends one request to a peer at a time, of up to an entry each.
	requests sync.Pool
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// ErrSilent is the answer of a group that stalls or closes, or is not on this node.
var ErrSilent = errors.New("group is not served here now")

// ErrBlank is the answer to a candidate from a replica that waits to be taken in.
var ErrBlank = errors.New("replica has no configuration: it does not vote")

// New returns the transport of one group. Snapshots is where the replica keeps them; raft is to be given
// [Transport.Snapshots] in its place.
func New(cfg Config, r Replica, snapshots raft.SnapshotStore) *Transport {
	ctx, cancel := context.WithCancel(context.Background())
	calls, cancelCalls := context.WithCancel(ctx)
	return &Transport{
		calls: calls, cancelCalls: cancelCalls,
		cfg: cfg, replica: r, gate: newGate(snapshots, r.Holds, r.Unreadable),
		rpc: make(chan raft.RPC), ctx: ctx, cancel: cancel,
		requests: sync.Pool{New: func() any { return new([]byte) }},
	}
}

// Snapshots returns the store that raft is to use: it takes no snapshot that the replica does not need.
func (t *Transport) Snapshots() raft.SnapshotStore { return t.gate }

// SnapshotTrouble returns why the last snapshot could not be opened, nil if it was.
func (t *Transport) SnapshotTrouble() error { return t.gate.trouble() }

// Received returns how many bytes of snapshots raft has read from peers.
func (t *Transport) Received() uint64 { return t.received.Load() }

// CurrentAt returns until when a state that has applied up to index held everything that the group had committed; zero
// if no leader said (S-305).
func (t *Transport) CurrentAt(index uint64) time.Time {
	at, s := t.heard.current(index), t.replica.Standing()
	p, since, follows := t.toldBy(s)
	if !follows || p.last > index || !since.After(at) || !t.heard.counts(p.term, p.last) {
		return at
	}
	return since
}

// LedAt returns when a majority of the voters last took this replica for their leader in a term, at most now; zero if
// not all that it takes have yet (S-305).
func (t *Transport) LedAt(term uint64, voters []raft.Server, now time.Time) time.Time {
	return t.heard.led(term, t.cfg.Self, voters, now, func(id raft.ServerID) time.Time {
		t.rest.mu.Lock()
		defer t.rest.mu.Unlock()
		if p := t.rest.resting[fsm.NodeID(id)]; p.term == term {
			return p.Since()
		}
		return time.Time{}
	})
}

// Consumer implements raft.Transport.
func (t *Transport) Consumer() <-chan raft.RPC { return t.rpc }

// LocalAddr implements raft.Transport: the node's id.
func (t *Transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.cfg.Self) }

// EncodePeer implements raft.Transport: the id's bytes, which votes are stored by.
func (t *Transport) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte { return []byte(id) }

// DecodePeer implements raft.Transport.
func (t *Transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport and ignores the handler (R2).
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline implements raft.Transport and refuses (R5).
func (t *Transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// Close ends every call under way and refuses further ones.
func (t *Transport) Close() error { t.cancel(); return nil }

// AppendEntries implements raft.Transport. It may shorten args.Entries to MaxAppendBytes: raft takes
// the last entry of args as what was replicated, and sends the rest next.
//
// The commit index told is at most the last entry told. Raft follows min(commit, own last index),
// which would commit a stale tail that this call says nothing about.
func (t *Transport) AppendEntries(id raft.ServerID, _ raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if t.spare(fsm.NodeID(id), args, resp) || t.gaveUp(args, resp) {
		return nil
	}
	bound := 0
	for i, e := range args.Entries {
		bound += len(e.Data) + len(e.Extensions) + EntryOverhead
		if i > 0 && bound > t.cfg.MaxAppendBytes {
			args.Entries = args.Entries[:i]
			break
		}
	}
	if last := args.PrevLogEntry + uint64(len(args.Entries)); args.LeaderCommitIndex > last {
		args.LeaderCommitIndex = last
	}
	buf := t.requests.Get().(*[]byte)
	b := appendAppend(t.appendHead(slices.Grow((*buf)[:0], bound+256), Append), args)
	var began time.Time
	err := t.insist(fsm.NodeID(id), args.Term, func() error {
		began = time.Now()
		return t.call(id, b, Append, func(r *wire.Reader) { readAppendAnswer(r, resp) })
	})
	if err == nil && resp.Term == args.Term {
		t.heard.answered(args.Term, string(id), began)
		t.acknowledged(fsm.NodeID(id), args, resp.Success, began)
	}
	if err != nil && t.gaveUp(args, resp) {
		err = nil
	}
	// The caller has kept nothing of the request, however the calls ended.
	if *buf = b; cap(b) <= maxSpareRequest {
		t.requests.Put(buf)
	}
	return err
}

// maxSpareRequest is the largest request buffer that is kept for the next: two entries.
const maxSpareRequest = 512 << 10

const (
	// insistFor is how long one append is tried before raft hears that it failed, insistFirst the
	// pause after the first failure; pauses grow up to a quarter of the heartbeat time-out.
	insistFor   = 2 * time.Minute
	insistFirst = 10 * time.Millisecond
)

// insist repeats an append until it is answered, for as long as the leadership lasts that it is of. Raft itself would
// pause twice as long after each failure, up to ten seconds, and sleep them out. A follower that was away for a while
// and came back would be missing for as long. If another one goes meanwhile, the majority would be missing with it.
// Doing an append twice is the same as once.
func (t *Transport) insist(to fsm.NodeID, term uint64, call func() error) error {
	until := time.Now().Add(insistFor)
	for pause := insistFirst; ; pause = min(2*pause, t.cfg.HeartbeatTimeout/4) {
		err := call()
		if err == nil || time.Now().After(until) || t.handsTo(to) {
			return err
		}
		wait := time.NewTimer(pause/2 + rand.N(pause/2))
		ended := t.underWay()
		select {
		case <-wait.C:
		case <-ended.Done():
			wait.Stop()
			return err
		}
		if t.replica.Term() != term || t.abdicated.Load() == term {
			return err
		}
	}
}

// RequestVote implements raft.Transport.
func (t *Transport) RequestVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	b := appendVote(t.head(Vote, 256), args)
	return t.call(id, b, Vote, func(r *wire.Reader) { readVoteAnswer(r, resp) })
}

// RequestPreVote implements raft.WithPreVote.
func (t *Transport) RequestPreVote(id raft.ServerID, _ raft.ServerAddress,
	args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if t.replica.Defers() {
		return errPreVote
	}
	b := appendPreVote(t.head(PreVote, 256), args)
	err := t.call(id, b, PreVote, func(r *wire.Reader) { readPreVoteAnswer(r, resp) })
	if err != nil {
		// Raft takes an error whose text says "unexpected command" for a granted pre-vote of an
		// older version. Every node of ours knows pre-votes, so no text of a peer may count as one.
		return errPreVote
	}
	return nil
}

var errPreVote = errors.New("pre-vote was not answered")

// TimeoutNow implements raft.Transport.
func (t *Transport) TimeoutNow(id raft.ServerID, _ raft.ServerAddress, args *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse) error {
	b := appendHeader(t.head(TimeoutNow, 128), &args.RPCHeader)
	return t.call(id, b, TimeoutNow, func(r *wire.Reader) { readHeader(r, &resp.RPCHeader) })
}

// minSnapshotRate is the slowest snapshot stream that is not given up, in bytes per second. Pauses for a Rate do not
// count.
const minSnapshotRate = 1 << 20

// InstallSnapshot implements raft.Transport: one stream, header first. A replica that votes is missed by its group, so
// that nothing slows its snapshot; a new one has time.
func (t *Transport) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress,
	args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if t.replica.Silent() {
		return ErrSilent
	}
	o, end := t.sendings.begin(fsm.NodeID(id), args.LastLogIndex, uint64(args.Size))
	defer end()
	ctx, cancel := context.WithCancel(t.ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		o.await(ctx, t.cfg.RPCTimeout+time.Duration(args.Size/minSnapshotRate)*time.Second)
		cancel()
	})
	body := &pacedReader{from: data, o: o, done: ctx.Done()}
	if t.replica.Learner(id) {
		body.rate = t.cfg.Rate
	}
	header := appendInstall(t.head(Install, 512), args)
	b, err := t.cfg.Caller.CallStream(ctx, fsm.NodeID(id), KindSnapshot, header, body)
	if err != nil {
		return err
	}
	r := openAnswer(b, Install)
	readInstallAnswer(r, resp)
	return r.Done()
}

// call sends one raft request and lets read decode the answer.
func (t *Transport) call(to raft.ServerID, b []byte, kind Kind, read func(*wire.Reader)) error {
	if t.replica.Silent() {
		return ErrSilent
	}
	limit := t.cfg.RPCTimeout
	if kind != Append {
		// A candidate or a transfer that waits longer than its own timer waits for nothing (R10).
		limit = min(limit, t.cfg.ElectionTimeout)
	}
	ctx, cancel := context.WithTimeout(t.underWay(), limit)
	defer cancel()
	answer, err := t.cfg.Caller.Call(ctx, fsm.NodeID(to), KindRaft, b)
	if err != nil {
		return err
	}
	r := openAnswer(answer, kind)
	read(r)
	return r.Done()
}

// underWay is the context of calls. It ends with the transport, or with a leadership that gives up.
func (t *Transport) underWay() context.Context {
	t.endCalls.Lock()
	defer t.endCalls.Unlock()
	return t.calls
}

func (t *Transport) head(kind Kind, size int) []byte {
	return t.appendHead(make([]byte, 0, size), kind)
}

func (t *Transport) appendHead(b []byte, kind Kind) []byte {
	b = append(b, version, byte(kind))
	return binary.BigEndian.AppendUint16(b, uint16(t.cfg.Group))
}
