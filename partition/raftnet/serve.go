package raftnet

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// Serve handles a call of a peer, other than a snapshot, and returns the bytes of the answer. The bytes of the call
// belong to the Transport from now on: entries that raft takes are views into them.
func (t *Transport) Serve(ctx context.Context, from fsm.NodeID, c Call) ([]byte, error) {
	if c.Kind == Install {
		return nil, fmt.Errorf("snapshot outside of a stream: %w", fsm.ErrFormat)
	}
	command, header, err := c.Command()
	if err != nil {
		return nil, err
	}
	if c.Kind != Append && t.replica.Blank() {
		return nil, ErrBlank
	}
	switch a := command.(type) {
	case *raft.TimeoutNowRequest:
		t.replica.Given()
	case *raft.AppendEntriesRequest:
		t.replica.Behind(a)
	}
	return t.deliver(ctx, from, c.Kind, command, header, nil)
}

// ServeSnapshot handles the stream of a snapshot: c is its head, body what follows.
func (t *Transport) ServeSnapshot(ctx context.Context, from fsm.NodeID, c Call, body io.Reader) ([]byte, error) {
	command, header, err := c.Command()
	if err != nil {
		return nil, err
	}
	a, ok := command.(*raft.InstallSnapshotRequest)
	if !ok {
		return nil, fmt.Errorf("stream of kind %d: %w", c.Kind, fsm.ErrFormat)
	}
	b, err := t.deliver(ctx, from, Install, a, header, &countingReader{io.LimitReader(body, a.Size), &t.received})
	if err != nil && t.held(a) {
		// The replica has what the leader wants it to have; the leader goes on from there.
		return encodeAnswer(Install, &raft.InstallSnapshotResponse{Term: a.Term, Success: true})
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
func (t *Transport) held(c *raft.InstallSnapshotRequest) bool {
	return !t.replica.Silent() && t.replica.Term() == c.Term && t.gate.holds(c.LastLogIndex, c.LastLogTerm)
}

// deliver hands a command to raft's main loop and encodes its answer.
func (t *Transport) deliver(ctx context.Context, from fsm.NodeID, kind Kind, command any,
	header *raft.RPCHeader, body io.Reader) ([]byte, error) {
	// The mesh has authenticated from; a peer may speak for itself only.
	if string(header.ID) != string(from) || string(header.Addr) != string(from) {
		return nil, fmt.Errorf("node %s sent a raft call of %q", from, header.ID)
	}
	if !t.replica.Allowed(from) {
		return nil, fmt.Errorf("node %s is no member of the cluster", from)
	}
	if t.replica.Silent() {
		return nil, ErrSilent
	}
	t.judge(command)
	arrived := time.Now()
	answers := make(chan raft.RPCResponse, 1)
	answered := func() {}
	if c, ok := command.(*raft.InstallSnapshotRequest); ok {
		answered = t.gate.expect(c.LastLogIndex)
	}
	select {
	case t.rpc <- raft.RPC{Command: command, Reader: body, RespChan: answers}:
	case <-ctx.Done():
		answered()
		return nil, ctx.Err()
	case <-t.ctx.Done():
		answered()
		return nil, ErrSilent
	}
	select {
	case a := <-answers:
		answered()
		if a.Error != nil {
			return nil, a.Error
		}
		if t.replica.Silent() {
			return nil, ErrSilent
		}
		if c, ok := command.(*raft.AppendEntriesRequest); ok && a.Response.(*raft.AppendEntriesResponse).Success {
			t.heard.append(c, arrived)
		}
		return encodeAnswer(kind, a.Response)
	case <-t.ctx.Done():
		return nil, ErrSilent
	case <-ctx.Done():
		// Raft still reads the stream if it is an install. The stream ends with the call, so waiting here keeps the
		// reader alive no longer than the mesh does.
		go func() {
			select {
			case <-answers:
			case <-t.ctx.Done():
			}
			answered()
		}()
		return nil, ctx.Err()
	}
}

// judge has raft judge a candidate by its log alone, where that log goes beyond the one here. The configuration of the
// candidate may then be one that this replica has not heard of. Raft would refuse a candidate without a vote by the
// configuration here. If a leader was lost for good behind a change of the configuration, nobody could be elected any more.
// The votes keep it safe, decision 0107.
func (t *Transport) judge(command any) {
	switch a := command.(type) {
	case *raft.RequestPreVoteRequest:
		if !t.replica.Holds(a.LastLogIndex, a.LastLogTerm) {
			a.ID = []byte(t.replica.Voter()) // raft looks up in the configuration who asks, and does nothing else with it
		}
	case *raft.RequestVoteRequest:
		if !t.replica.Holds(a.LastLogIndex, a.LastLogTerm) {
			a.ID = nil // as from a raft of before ids, which is not looked up
		}
	}
}

// CampaignNow makes this replica campaign at once, without pre-vote (A17). The votes keep
// it safe.
func (t *Transport) CampaignNow(ctx context.Context) error {
	h := raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.cfg.Self), Addr: []byte(t.cfg.Self),
	}
	_, err := t.deliver(ctx, t.cfg.Self, TimeoutNow, &raft.TimeoutNowRequest{RPCHeader: h}, &h, nil)
	return err
}

// Pulse returns when raft's main loop has answered a call of a leader of term 0. Every replica that has a term
// refuses that without a look at it.
func (t *Transport) Pulse() {
	h := raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.cfg.Self), Addr: []byte(t.cfg.Self),
	}
	// An error is an answer, too: the group is silent, or closes.
	_, _ = t.deliver(t.ctx, t.cfg.Self, Append, &raft.AppendEntriesRequest{RPCHeader: h}, &h, nil)
}
