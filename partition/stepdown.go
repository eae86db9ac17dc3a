package partition

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
)

// stepDownNotifier tells the followers of a leader that gives up: its disk stalls (R1), or its replica failed.
// Either answers nobody any more, and raft's heartbeats end with it; without a word the survivors would
// wait out time-outs of 2 to 4 s, one after the other's refusal.
//
// It is a hint as the loss of a process is (A17). A survivor believes it of the leader and the term that it follows
// and of nothing else. The best of the survivors stands; the votes keep it safe. The leader itself needs no word: it
// has stopped answering before it says so.
type stepDownNotifier struct {
	h    *Host
	told map[fsm.PartitionID]uint64 // term of the last leadership that was given up
}

// stepDownBytes is the length of one leadership in a call: partition and term.
const stepDownBytes = 2 + 8

// run looks at every change until the host closes.
func (g *stepDownNotifier) run() {
	for {
		changed := g.h.Changed()
		g.look()
		select {
		case <-g.h.stop:
			return
		case <-changed:
		}
	}
}

// look tells each peer once of the leaderships that ended here without a word.
func (g *stepDownNotifier) look() {
	tell := map[fsm.NodeID][]byte{}
	for _, r := range g.h.list() {
		if r.Failure() == nil && !r.Stalled() {
			delete(g.told, r.ID()) // a disk may stall again in the same term
			continue
		}
		leader, term := r.Leader()
		if leader != g.h.cfg.Node || g.told[r.ID()] == term {
			continue
		}
		g.told[r.ID()] = term
		for _, n := range r.Peers() {
			tell[n] = appendStepDown(tell[n], r.ID(), term)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), targetTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for n, b := range tell { // order-free: each is told by itself
		wg.Go(func() {
			if _, err := g.h.deps.Caller.Call(ctx, n, KindStepDown, b); err != nil {
				g.h.deps.Log.Debug("peer was not told that a leader gives up", "peer", n, "error", err)
			}
		})
	}
	wg.Wait()
}

func appendStepDown(b []byte, p fsm.PartitionID, term uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(b, uint16(p)), term)
}

// serveStepDown hears of leaderships that a node gave up.
func (h *Host) serveStepDown(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	if len(b) == 0 || len(b)%stepDownBytes != 0 || len(b)/stepDownBytes > maxStatusReplicas {
		return nil, fmt.Errorf("leaderships given up in %d bytes: %w", len(b), fsm.ErrFormat)
	}
	if !h.allowed(from) {
		return nil, fmt.Errorf("node %s: %w", from, raftnet.ErrSilent)
	}
	terms := map[fsm.PartitionID]uint64{}
	for ; len(b) > 0; b = b[stepDownBytes:] {
		terms[fsm.PartitionID(binary.BigEndian.Uint16(b))] = binary.BigEndian.Uint64(b[2:])
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fsm.ErrClosed
	}
	h.wg.Go(func() { // the leader waits for no election
		h.succeed(context.Background(), from, func(s *replica.Status) bool {
			term, ok := terms[s.Partition]
			return ok && (s.Leader == from && s.Term == term || s.Leader == "" && s.Term > term)
		})
	})
	return nil, nil
}
