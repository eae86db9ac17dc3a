package partition

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/cluster/tick"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
)

// beats has all groups of this node looked at several times a second, by one goroutine. It exchanges a beat with every
// other node that has replicas of the same groups (decision 0102). Of two nodes the one with the lower id calls, and the
// other one answers with a beat of its own.
type beats struct {
	h     *Host
	every time.Duration
	looks broadcast // fires every lookEvery

	mu    sync.Mutex
	peers map[fsm.NodeID]*beatPeer
}

// beatPeer is what is known of the beats of another node.
type beatPeer struct {
	calling bool
	sent    uint64    // the number of the last beat to it
	sentAt  time.Time // when that was made
	life    fsm.Incarnation
	heard   uint64 // the number of the last beat from it, in that life
}

// lookEvery is the time between two looks at what comes without notice. The replicas look then, the loops of the
// supervisor, and the beats for their peers.
const lookEvery = time.Second

// beatEvery returns the time between two beats: four fit into the lease of a leader, so that one may be lost.
func beatEvery(c *replica.Config) time.Duration {
	return min(250*time.Millisecond, c.HeartbeatTimeout/8, c.LeaderLease/4)
}

func (b *beats) init(h *Host) {
	b.h, b.every, b.peers = h, beatEvery(&h.cfg.Config), map[fsm.NodeID]*beatPeer{}
}

// run beats until ctx ends. The replicas need the beats until they are closed.
func (b *beats) run(ctx context.Context) {
	t := tick.Every(b.every)
	defer t.Stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	var called []fsm.NodeID
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Next()
		}
		rs, now := b.h.list(), time.Now()
		for _, r := range rs {
			r.Beat(now)
		}
		if now.Sub(looked) > lookEvery-b.every/2 {
			looked, called = now, b.called(rs)
			for _, r := range rs {
				r.Look()
			}
			b.looks.fire()
		}
		for _, to := range called {
			if b.begin(to) {
				calls.Go(func() { b.call(ctx, to) })
			}
		}
	}
}

// called returns the nodes that this one calls: the members of its groups with a higher id.
func (b *beats) called(rs []*replica.Replica) (ids []fsm.NodeID) {
	seen := map[fsm.NodeID]bool{}
	for _, r := range rs {
		for _, s := range r.Servers() {
			if id := fsm.NodeID(s.ID); id > b.h.cfg.Node && !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// begin reports whether a node may be called: the last call has ended.
func (b *beats) begin(to fsm.NodeID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peerLocked(to)
	if p.calling {
		return false
	}
	p.calling = true
	return true
}

func (b *beats) peerLocked(n fsm.NodeID) *beatPeer {
	p := b.peers[n]
	if p == nil {
		p = &beatPeer{}
		b.peers[n] = p
	}
	return p
}

// call exchanges a beat with a node. A call that fails costs heartbeats of the groups, and nothing else.
func (b *beats) call(ctx context.Context, to fsm.NodeID) {
	defer func() {
		b.mu.Lock()
		b.peers[to].calling = false
		b.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(ctx, 4*b.every)
	defer cancel()
	answer, err := b.h.deps.Caller.Call(ctx, to, KindBeat, b.make(to))
	if err != nil {
		return
	}
	beat, err := raftnet.ParseBeat(answer)
	if err != nil {
		b.h.deps.Log.Warn("the answer to a beat is not one", "peer", to, "error", err)
		return
	}
	b.take(to, beat)
}

// serve answers the beat of a node with the one for it.
func (b *beats) serve(_ context.Context, from fsm.NodeID, request []byte) ([]byte, error) {
	if !b.h.allowed(from) {
		return nil, fmt.Errorf("node %s is no member of the cluster", from)
	}
	beat, err := raftnet.ParseBeat(request)
	if err != nil {
		return nil, err
	}
	b.take(from, beat)
	return b.make(from), nil
}

// make returns the next beat for a node.
func (b *beats) make(to fsm.NodeID) []byte {
	b.mu.Lock()
	p := b.peerLocked(to)
	p.sent++
	p.sentAt = time.Now() // before the replicas are looked at
	beat := raftnet.Beat{Life: b.h.cfg.Incarnation, Number: p.sent, Heard: p.heard}
	b.mu.Unlock()
	for _, r := range b.h.list() {
		r.Transport().Say(to, &beat)
	}
	return raftnet.AppendBeat(nil, &beat)
}

// take tells the replicas what a node says. A beat that was overtaken by a later one says nothing any more. The words of
// a beat were true when the last beat to its sender was made, if the sender has heard that one.
func (b *beats) take(from fsm.NodeID, beat *raftnet.Beat) {
	b.mu.Lock()
	p := b.peerLocked(from)
	if p.life == beat.Life && beat.Number <= p.heard {
		b.mu.Unlock()
		return
	}
	p.life, p.heard = beat.Life, beat.Number
	var since time.Time
	if beat.Heard == p.sent {
		since = p.sentAt
	}
	b.mu.Unlock()
	b.h.lost.heard(from)
	for _, place := range beat.Leads {
		if r := b.h.Replica(place.Group); r != nil {
			r.Transport().HearLeader(from, place, since)
		}
	}
	for _, place := range beat.Rests {
		if r := b.h.Replica(place.Group); r != nil {
			r.Transport().HearFollower(from, place, since)
		}
	}
}

// forget drops what a node has said: it was lost.
func (b *beats) forget(n fsm.NodeID) {
	for _, r := range b.h.list() {
		r.Transport().Forget(n)
	}
}
