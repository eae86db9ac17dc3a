package partition

import (
	"context"
	"fmt"
	"slices"
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

	// The places of its last beat, which these replicas were told of, and the pulse that these places share. The mutex is
	// taken before the one of beats.
	told     sync.Mutex
	replicas *[]*replica.Replica
	leads    []raftnet.Place
	rests    []raftnet.Place
	pulse    *raftnet.Pulse // nil when nothing that it said counts
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
		looks := now.Sub(looked) > lookEvery-b.every/2
		if looks {
			looked, called = now, b.called(rs)
		}
		beats := b.begin(called)
		for _, r := range rs {
			r.Beat(now, beats)
			if looks {
				r.Look()
			}
		}
		if looks {
			b.looks.fire()
		}
		for i := range beats {
			to, request := beats[i].To, b.encode(&beats[i], now)
			calls.Go(func() { b.call(ctx, to, request) })
		}
	}
}

// next returns a beat for a peer that is empty yet. It echoes the last beat of the peer that came before the look.
func (p *beatPeer) next(id fsm.NodeID) raftnet.Addressed {
	return raftnet.Addressed{To: id, Beat: raftnet.Beat{Heard: p.heard}}
}

// called returns the nodes that this one calls: the members of its groups with a higher id.
func (b *beats) called(rs []*replica.Replica) (ids []fsm.NodeID) {
	for _, r := range rs {
		for _, id := range r.Others() {
			if id > b.h.cfg.Node && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// begin returns beats for those of some nodes whose last call has ended.
func (b *beats) begin(called []fsm.NodeID) (beats raftnet.Beats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, to := range called {
		if p := b.peerLocked(to); !p.calling {
			p.calling = true
			beats = append(beats, p.next(to))
		}
	}
	return beats
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
func (b *beats) call(ctx context.Context, to fsm.NodeID, beat []byte) {
	defer func() {
		b.mu.Lock()
		b.peers[to].calling = false
		b.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(ctx, 4*b.every)
	defer cancel()
	answer, err := b.h.deps.Caller.Call(ctx, to, KindBeat, beat)
	if err != nil {
		return
	}
	other, err := raftnet.ParseBeat(answer)
	if err != nil {
		b.h.deps.Log.Warn("the answer to a beat is not one", "peer", to, "error", err)
		return
	}
	b.take(to, other)
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

// make returns the bytes of the next beat for a node, from a look at all groups.
func (b *beats) make(to fsm.NodeID) []byte {
	now := time.Now() // before the replicas are looked at
	b.mu.Lock()
	beats := raftnet.Beats{b.peerLocked(to).next(to)}
	b.mu.Unlock()
	for _, r := range b.h.list() {
		r.Say(beats)
	}
	return b.encode(&beats[0], now)
}

// encode gives a beat the next number. The look at the replicas began at a time.
func (b *beats) encode(beat *raftnet.Addressed, began time.Time) []byte {
	b.mu.Lock()
	p := b.peerLocked(beat.To)
	p.sent++
	p.sentAt = began
	beat.Life, beat.Number = b.h.cfg.Incarnation, p.sent
	b.mu.Unlock()
	return raftnet.AppendBeat(nil, &beat.Beat)
}

// take tells the replicas what a node says. A beat that was overtaken by a later one says nothing any more. The words of
// a beat were true when the last beat to its sender was made, if the sender has heard that one.
func (b *beats) take(from fsm.NodeID, beat *raftnet.Beat) {
	b.mu.Lock()
	p := b.peerLocked(from)
	b.mu.Unlock()
	p.told.Lock()
	defer p.told.Unlock()
	b.mu.Lock()
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
	b.tell(from, p, beat, since)
}

// tell tells the replicas what a beat says that the last one did not say. The pulse alone renews what both say. So a beat
// costs little for a group to which nothing happens.
func (b *beats) tell(from fsm.NodeID, p *beatPeer, beat *raftnet.Beat, since time.Time) {
	if rs := b.h.listed(); p.replicas != rs || p.pulse == nil {
		p.replicas, p.pulse, p.leads, p.rests = rs, &raftnet.Pulse{}, nil, nil
		for _, r := range *rs {
			r.Transport().Miss(from)
		}
	}
	p.each(changed(p.leads, beat.Leads), func(t *raftnet.Transport, _ raftnet.Place) { t.Miss(from) })
	p.each(changed(p.rests, beat.Rests), func(t *raftnet.Transport, _ raftnet.Place) { t.Miss(from) })
	p.pulse.Renew(time.Now(), since)
	p.each(changed(beat.Leads, p.leads), func(t *raftnet.Transport, place raftnet.Place) { t.HearLeader(from, place, p.pulse) })
	p.each(changed(beat.Rests, p.rests), func(t *raftnet.Transport, place raftnet.Place) { t.HearFollower(from, place, p.pulse) })
	p.leads, p.rests = beat.Leads, beat.Rests
}

// changed returns the places of one list that another one does not have. Both are in the order of their groups.
func changed(of, from []raftnet.Place) (all []raftnet.Place) {
	for _, p := range of {
		for len(from) > 0 && from[0].Group < p.Group {
			from = from[1:]
		}
		if len(from) == 0 || from[0] != p {
			all = append(all, p)
		}
	}
	return all
}

// each calls f for the replicas of places.
func (p *beatPeer) each(places []raftnet.Place, f func(*raftnet.Transport, raftnet.Place)) {
	for _, place := range places {
		i, here := slices.BinarySearchFunc(*p.replicas, place.Group, func(r *replica.Replica, g fsm.PartitionID) int { return int(r.ID()) - int(g) })
		if here {
			f((*p.replicas)[i].Transport(), place)
		}
	}
}

// forget drops what a node has said: it was lost.
func (b *beats) forget(n fsm.NodeID) {
	b.mu.Lock()
	p := b.peerLocked(n)
	b.mu.Unlock()
	p.told.Lock()
	defer p.told.Unlock()
	p.pulse = nil // so that its next beat is all news
	for _, r := range b.h.list() {
		r.Transport().Forget(n)
	}
}
