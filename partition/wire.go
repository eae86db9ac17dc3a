package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// wire is the raft.Transport of one group over the node's Caller.
//
// It has no heartbeat fast path, because raft's handler changes term and state off its main loop
// (R2), and no pipeline, because raft's deadlocks after a rejected append (R5). Addresses are node
// ids: an IP never enters a configuration or a vote.
type wire struct {
	group   fsm.PartitionID
	self    fsm.NodeID
	caller  Caller
	cfg     *Config
	silent  func() bool           // the watchdog's: neither ask nor answer
	allowed func(fsm.NodeID) bool // is the node a member of the cluster
	told    func()                // another node tells this replica to take over
	blank   func() bool           // this replica has no configuration
	term    func() uint64         // raft's
	defers  func() bool           // this replica leaves an election to others
	gate    *installGate
	// behind shortens an append of a leader that takes this replica for further back than it is.
	behind func(*raft.AppendEntriesRequest)
	// received counts the bytes of snapshots that raft has read.
	received atomic.Uint64
	heard    tidings // of leaders, and of peers that follow this one
	rpc      chan raft.RPC
	ctx      context.Context // ends with Close; raft's own calls carry none
	cancel   context.CancelFunc
	// requests holds *[]byte: raft sends one request to a peer at a time, of up to an entry each.
	requests sync.Pool
}

var (
	_ raft.Transport   = (*wire)(nil)
	_ raft.WithPreVote = (*wire)(nil)
	_ raft.WithClose   = (*wire)(nil)
)

// errSilent is what a stalled or closing group's wire answers.
var errSilent = errors.New("group is not served here now")

// errBlank is what a replica that waits to be taken in says to candidates.
var errBlank = errors.New("replica has no configuration: it does not vote")

func newWire(group fsm.PartitionID, cfg *Config, caller Caller, silent func() bool,
	allowed func(fsm.NodeID) bool) *wire {
	ctx, cancel := context.WithCancel(context.Background())
	return &wire{
		group: group, self: cfg.Node, caller: caller, cfg: cfg, silent: silent, allowed: allowed,
		behind: func(*raft.AppendEntriesRequest) {},
		told:   func() {}, blank: func() bool { return false }, defers: func() bool { return false }, rpc: make(chan raft.RPC), ctx: ctx, cancel: cancel,
		requests: sync.Pool{New: func() any { return new([]byte) }},
	}
}

// Consumer implements raft.Transport.
func (w *wire) Consumer() <-chan raft.RPC { return w.rpc }

// LocalAddr implements raft.Transport: the node's id.
func (w *wire) LocalAddr() raft.ServerAddress { return raft.ServerAddress(w.self) }

// EncodePeer implements raft.Transport: the id's bytes, which votes are stored by.
func (w *wire) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte { return []byte(id) }

// DecodePeer implements raft.Transport.
func (w *wire) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport and ignores the handler (R2).
func (w *wire) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline implements raft.Transport and refuses (R5).
func (w *wire) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// Close ends every call under way and refuses further ones.
func (w *wire) Close() error { w.cancel(); return nil }

// AppendEntries implements raft.Transport. It may shorten args.Entries to MaxAppendBytes: raft takes
// the last entry of args as what was replicated, and sends the rest next.
//
// The commit index told is at most the last entry told. Raft follows min(commit, own last index),
// which would commit a stale tail that this call says nothing about.
func (w *wire) AppendEntries(id raft.ServerID, _ raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	bound := 0
	for i, e := range args.Entries {
		bound += len(e.Data) + len(e.Extensions) + logOverhead
		if i > 0 && bound > w.cfg.MaxAppendBytes {
			args.Entries = args.Entries[:i]
			break
		}
	}
	if last := args.PrevLogEntry + uint64(len(args.Entries)); args.LeaderCommitIndex > last {
		args.LeaderCommitIndex = last
	}
	buf := w.requests.Get().(*[]byte)
	b := appendAppend(w.appendHead(slices.Grow((*buf)[:0], bound+256), rpcAppend), args)
	var began time.Time
	err := w.insist(args.Term, func() error {
		began = time.Now()
		return w.call(id, b, rpcAppend, func(r *wireReader) { r.appendResponse(resp) })
	})
	if err == nil && resp.Term == args.Term {
		w.heard.answered(args.Term, string(id), began)
	}
	// The caller has kept nothing of the request, however the calls ended.
	if *buf = b; cap(b) <= maxSpareRequest {
		w.requests.Put(buf)
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

// insist repeats an append until it is answered, for as long as the leadership lasts that it is of.
// Raft itself would pause twice as long after each failure, up to ten seconds, and sleep them out: a
// follower that was away for a while and came back would be missing for as long, and with it the
// majority, if another one goes meanwhile. Doing an append twice is the same as once.
func (w *wire) insist(term uint64, call func() error) error {
	until := time.Now().Add(insistFor)
	for pause := insistFirst; ; pause = min(2*pause, w.cfg.HeartbeatTimeout/4) {
		err := call()
		if err == nil || time.Now().After(until) {
			return err
		}
		t := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-t.C:
		case <-w.ctx.Done():
			t.Stop()
			return err
		}
		if w.term() != term {
			return err
		}
	}
}

// RequestVote implements raft.Transport.
func (w *wire) RequestVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	b := appendVote(w.head(rpcVote, 256), args)
	return w.call(id, b, rpcVote, func(r *wireReader) { r.voteResponse(resp) })
}

// RequestPreVote implements raft.WithPreVote.
func (w *wire) RequestPreVote(id raft.ServerID, _ raft.ServerAddress,
	args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if w.defers() {
		return errPreVote
	}
	b := appendPreVote(w.head(rpcPreVote, 256), args)
	err := w.call(id, b, rpcPreVote, func(r *wireReader) { r.preVoteResponse(resp) })
	if err != nil {
		// Raft takes an error whose text says "unexpected command" for a granted pre-vote of an
		// older version. Every node of ours knows pre-votes, so no text of a peer may count as one.
		return errPreVote
	}
	return nil
}

var errPreVote = errors.New("pre-vote was not answered")

// TimeoutNow implements raft.Transport.
func (w *wire) TimeoutNow(id raft.ServerID, _ raft.ServerAddress, args *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse) error {
	b := appendHeader(w.head(rpcTimeoutNow, 128), &args.RPCHeader)
	return w.call(id, b, rpcTimeoutNow, func(r *wireReader) { r.header(&resp.RPCHeader) })
}

// minSnapshotRate is the slowest snapshot stream that is not given up, in bytes per second.
const minSnapshotRate = 1 << 20

// InstallSnapshot implements raft.Transport: one stream, header first.
func (w *wire) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress,
	args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if w.silent() {
		return errSilent
	}
	limit := w.cfg.RPCTimeout + time.Duration(args.Size/minSnapshotRate)*time.Second
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	header := appendInstall(w.head(rpcInstall, 512), args)
	b, err := w.caller.CallStream(ctx, fsm.NodeID(id), KindSnapshot, header, data)
	if err != nil {
		return err
	}
	r := openAnswer(b, rpcInstall)
	r.installResponse(resp)
	return r.done()
}

// call sends one raft request and lets read decode the answer.
func (w *wire) call(to raft.ServerID, b []byte, kind byte, read func(*wireReader)) error {
	if w.silent() {
		return errSilent
	}
	limit := w.cfg.RPCTimeout
	if kind != rpcAppend {
		// A candidate or a transfer that waits longer than its own timer waits for nothing (R10).
		limit = min(limit, w.cfg.ElectionTimeout)
	}
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	answer, err := w.caller.Call(ctx, fsm.NodeID(to), KindRaft, b)
	if err != nil {
		return err
	}
	r := openAnswer(answer, kind)
	read(r)
	return r.done()
}

func (w *wire) head(kind byte, size int) []byte {
	return w.appendHead(make([]byte, 0, size), kind)
}

func (w *wire) appendHead(b []byte, kind byte) []byte {
	b = append(b, wireVersion, kind)
	return binary.BigEndian.AppendUint16(b, uint16(w.group))
}

// serve handles one decoded-to-group raft request of a peer; body follows the group.
func (w *wire) serve(ctx context.Context, from fsm.NodeID, kind byte, body []byte) ([]byte, error) {
	// Entries are views into body, which is ours: they live on in the log cache.
	r := &wireReader{b: body}
	var command any
	var header *raft.RPCHeader
	switch kind {
	case rpcAppend:
		c := new(raft.AppendEntriesRequest)
		r.appendRequest(c)
		command, header = c, &c.RPCHeader
	case rpcVote:
		c := new(raft.RequestVoteRequest)
		r.voteRequest(c)
		command, header = c, &c.RPCHeader
	case rpcPreVote:
		c := new(raft.RequestPreVoteRequest)
		r.preVoteRequest(c)
		command, header = c, &c.RPCHeader
	case rpcTimeoutNow:
		c := new(raft.TimeoutNowRequest)
		r.header(&c.RPCHeader)
		command, header = c, &c.RPCHeader
	default:
		return nil, fmt.Errorf("raft call of kind %d: %w", kind, fsm.ErrFormat)
	}
	if err := r.done(); err != nil {
		return nil, err
	}
	if kind != rpcAppend && w.blank() {
		return nil, errBlank
	}
	switch c := command.(type) {
	case *raft.TimeoutNowRequest:
		w.told()
	case *raft.AppendEntriesRequest:
		w.behind(c)
	}
	return w.deliver(ctx, from, kind, command, header, nil)
}

// serveInstall handles an InstallSnapshot stream.
func (w *wire) serveInstall(ctx context.Context, from fsm.NodeID, head []byte,
	body io.Reader) ([]byte, error) {
	r := &wireReader{b: head}
	c := new(raft.InstallSnapshotRequest)
	r.installRequest(c)
	if err := r.done(); err != nil {
		return nil, err
	}
	b, err := w.deliver(ctx, from, rpcInstall, c, &c.RPCHeader,
		&countingReader{io.LimitReader(body, c.Size), &w.received})
	if err != nil && w.held(c) {
		// What the leader wants is the case; it goes on from there.
		return encodeAnswer(rpcInstall, &raft.InstallSnapshotResponse{Term: c.Term, Success: true})
	}
	return b, err
}

// countingReader counts what is read.
type countingReader struct {
	io.Reader
	n *atomic.Uint64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(uint64(n))
	return n, err
}

// held reports whether a snapshot of the present leader ends in the log that is here.
func (w *wire) held(c *raft.InstallSnapshotRequest) bool {
	return w.gate != nil && !w.silent() && w.term() == c.Term && w.gate.holds(c.LastLogIndex, c.LastLogTerm)
}

// deliver hands a command to raft's main loop and encodes its answer.
func (w *wire) deliver(ctx context.Context, from fsm.NodeID, kind byte, command any,
	header *raft.RPCHeader, body io.Reader) ([]byte, error) {
	// The mesh has authenticated from; a peer may speak for itself only.
	if string(header.ID) != string(from) || string(header.Addr) != string(from) {
		return nil, fmt.Errorf("node %s sent a raft call of %q", from, header.ID)
	}
	if !w.allowed(from) {
		return nil, fmt.Errorf("node %s is no member of the cluster", from)
	}
	if w.silent() {
		return nil, errSilent
	}
	arrived := time.Now()
	answers := make(chan raft.RPCResponse, 1)
	answered := func() {}
	if c, ok := command.(*raft.InstallSnapshotRequest); ok && w.gate != nil {
		answered = w.gate.expect(c.LastLogIndex)
	}
	select {
	case w.rpc <- raft.RPC{Command: command, Reader: body, RespChan: answers}:
	case <-ctx.Done():
		answered()
		return nil, ctx.Err()
	case <-w.ctx.Done():
		answered()
		return nil, errSilent
	}
	select {
	case a := <-answers:
		answered()
		if a.Error != nil {
			return nil, a.Error
		}
		if w.silent() {
			return nil, errSilent
		}
		if c, ok := command.(*raft.AppendEntriesRequest); ok && a.Response.(*raft.AppendEntriesResponse).Success {
			w.heard.append(c, arrived)
		}
		return encodeAnswer(kind, a.Response)
	case <-w.ctx.Done():
		return nil, errSilent
	case <-ctx.Done():
		// Raft still reads the stream if it is an install: the stream ends with the call, so
		// waiting here keeps the reader alive no longer than the mesh does.
		go func() {
			select {
			case <-answers:
			case <-w.ctx.Done():
			}
			answered()
		}()
		return nil, ctx.Err()
	}
}

// standNow makes this replica stand for election at once, without pre-vote (A17). The votes keep
// it safe.
func (w *wire) standNow(ctx context.Context) error {
	h := raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(w.self), Addr: []byte(w.self),
	}
	_, err := w.deliver(ctx, w.self, rpcTimeoutNow, &raft.TimeoutNowRequest{RPCHeader: h}, &h, nil)
	return err
}

// pulse returns when raft's main loop has answered a call: one of a leader of term 0, which every
// replica that has a term refuses without a look at it.
func (w *wire) pulse() {
	h := raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(w.self), Addr: []byte(w.self),
	}
	// An error is an answer, too: the group is silent, or closes.
	_, _ = w.deliver(w.ctx, w.self, rpcAppend, &raft.AppendEntriesRequest{RPCHeader: h}, &h, nil)
}
