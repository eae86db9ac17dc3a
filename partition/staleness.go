package partition

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
)

// stalenessCheck finds out whether this node's data is an old copy, before its replicas take part in anything. Peers
// remember the highest life of this node that they heard of, and a directory that was put back counts fewer
// (docs/decisions/0026-old-copies.md). Until a replica is verified, it neither votes, nor acknowledges, nor
// stands.
type stalenessCheck struct {
	h    *Host
	wake chan struct{} // a replica was opened; capacity 1

	mu    sync.Mutex
	told  map[fsm.NodeID]bool // peers that know of this life
	found time.Time           // when the data was marked as an old copy; zero if it is none
}

const (
	stalenessBytes   = 8 + 8
	stalenessEvery   = 100 * time.Millisecond // while a replica waits
	stalenessIdle    = time.Second            // while only a peer that is away was not told
	stalenessDone    = 10 * time.Second       // while every peer was told; a group may get another one
	stalenessTimeout = 500 * time.Millisecond
)

func (w *stalenessCheck) init(h *Host) {
	w.h, w.wake, w.told = h, make(chan struct{}, 1), map[fsm.NodeID]bool{}
}

// opened has a new replica judged at once.
func (w *stalenessCheck) opened() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// alwaysVerified says whether a replica that is opened now needs no questions.
func (w *stalenessCheck) alwaysVerified() bool { return w.h.deps.Lives == nil }

// serve answers a peer that tells of its life with what was known of it before.
func (w *stalenessCheck) serve(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	if len(b) != stalenessBytes {
		return nil, fmt.Errorf("call of a witness of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	if w.h.deps.Lives == nil || !w.h.allowed(from) {
		return nil, fmt.Errorf("node %s: %w", from, raftnet.ErrSilent)
	}
	life, i, err := w.h.deps.Lives.Witness(from, binary.BigEndian.Uint64(b),
		fsm.Incarnation(binary.BigEndian.Uint64(b[8:])))
	if err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, life), uint64(i)), nil
}

// run asks until every replica is verified and every peer told.
func (w *stalenessCheck) run() {
	if w.h.deps.Lives == nil {
		return
	}
	for {
		pause := stalenessDone
		switch waits, away := w.look(); {
		case waits:
			pause = stalenessEvery
		case away:
			pause = stalenessIdle
		}
		t := time.NewTimer(pause)
		select {
		case <-w.h.stop:
			t.Stop()
			return
		case <-w.wake:
			t.Stop()
		case <-t.C:
		}
	}
}

// look asks the peers that were not asked yet. It reports whether a replica still waits, and whether peers were asked.
func (w *stalenessCheck) look() (waits, asked bool) {
	rs := w.h.list()
	ask := map[fsm.NodeID]bool{}
	w.mu.Lock()
	for _, r := range rs {
		for _, n := range r.Peers() {
			if !w.told[n] {
				ask[n] = true
			}
		}
	}
	w.mu.Unlock()
	w.ask(ask)
	for _, r := range rs {
		if r.Unverified() && !w.judge(r) {
			waits = true
		}
	}
	return waits, len(ask) > 0
}

func (w *stalenessCheck) ask(nodes map[fsm.NodeID]bool) {
	var wg sync.WaitGroup
	for n := range nodes { // order-free: every answer is judged by itself
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := w.tell(n); err != nil {
				w.h.deps.Log.Debug("peer was not told of this life", "peer", n, "error", err)
			}
		}()
	}
	wg.Wait()
}

// tell tells one peer of this life and compares what it knew.
func (w *stalenessCheck) tell(n fsm.NodeID) error {
	life, inc := w.h.deps.Lives.Life(), w.h.cfg.Incarnation
	b := binary.BigEndian.AppendUint64(make([]byte, 0, stalenessBytes), life)
	b = binary.BigEndian.AppendUint64(b, uint64(inc))
	ctx, cancel := context.WithTimeout(context.Background(), stalenessTimeout)
	defer cancel()
	answer, err := w.h.deps.Caller.Call(ctx, n, KindStaleness, b)
	if err != nil {
		return err
	}
	if len(answer) != stalenessBytes {
		return fmt.Errorf("answer of %d bytes: %w", len(answer), fsm.ErrFormat)
	}
	before := binary.BigEndian.Uint64(answer)
	known := fsm.Incarnation(binary.BigEndian.Uint64(answer[8:]))
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := before > life || before == life && known != inc; old && w.found.IsZero() {
		return w.oldLocked(n, life, before)
	}
	w.told[n] = true
	return nil
}

// oldLocked fails every replica: a peer knows of a life that this directory does not.
func (w *stalenessCheck) oldLocked(n fsm.NodeID, life, before uint64) error {
	reason := fmt.Sprintf("the data directory is an old copy: it counts %d starts of this node, and "+
		"node %s knows of %d", life-1, n, before)
	if err := w.h.deps.Lives.Distrust(reason, before); err != nil {
		return err // nothing is verified, so this is tried again
	}
	w.found = time.Now()
	for _, r := range w.h.list() {
		if r.Unverified() {
			r.Fail(fmt.Errorf("%s", reason))
		}
	}
	return nil
}

// judge verifies a replica when all other voters have answered, or, after a while, one of them. A voter that does
// not answer then is most likely down. A group of one has nobody to ask.
//
// Data that was marked as an old copy is not opened again. So what was opened behind the mark is what the group has given
// since.
func (w *stalenessCheck) judge(r *replica.Replica) bool {
	w.mu.Lock()
	found := w.found
	answered := 0
	peers := r.Peers()
	for _, n := range peers {
		if w.told[n] {
			answered++
		}
	}
	w.mu.Unlock()
	if !found.IsZero() && r.Failure() == nil && !r.Blank() && !r.OpenedAt().After(found) {
		return false // it was opened meanwhile, and Distrust has marked it
	}
	patient := time.Since(r.OpenedAt()) < w.h.cfg.VerifyPatience
	if answered < len(peers) && (answered == 0 || patient) {
		return false
	}
	r.Verify()
	w.h.note(r)
	return true
}
