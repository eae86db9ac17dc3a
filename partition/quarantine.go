package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/partition/wire"
)

// diverged compares the newest digest of the leader with those of the same entry elsewhere, and returns
// the step against a replica that differs. It is what the majority says that counts: a leader that is
// alone with its state fails by itself.
func (m *repairer) diverged(r *replica.Replica, g *repairGroup, states map[fsm.NodeID]nodeState) *repairStep {
	own := r.Digests()
	for i := len(own) - 1; i >= 0; i-- {
		sums := map[fsm.NodeID]string{}
		voters := 0
		for n, s := range g.servers { // order-free: the sums go into a map
			if s != raft.Voter {
				continue
			}
			voters++
			if sum := sumAt(states[n][r.ID()].Digests, own[i]); n != g.self && sum != "" {
				sums[n] = sum
			}
		}
		sums[g.self] = own[i].Sum
		bad, agreed, unclear := compare(sums, voters)
		if unclear {
			r.Dispute(own[i].Index, sums)
			continue
		}
		for _, n := range bad {
			if n == g.self {
				m.s.host.diverge(r, own[i], agreed)
				return nil
			}
			return m.quarantine(g, n, own[i].Index, agreed)
		}
	}
	return nil
}

// sumAt returns the digest that can be compared with another one, "" if there is none.
func sumAt(all []replica.Digest, with replica.Digest) string {
	for _, d := range all {
		if d.Index == with.Index && d.Form == with.Form {
			return d.Sum
		}
	}
	return ""
}

// diverge fails a replica because its state is not that of its group. The rebuild is noted on its disk first. A
// process that ended before the rebuild would open the replica again. Until the next checkpoint it would serve, and
// vote for, what is wrong. Other failures are not noted: they are met again, or have passed, and a replica without peers
// would be shut out by them for ever.
func (h *Host) diverge(r *replica.Replica, own replica.Digest, agreed string) {
	err := fmt.Errorf("digest %s behind entry %d, a majority has %s: %w", own.Sum, own.Index, agreed,
		errDiverged)
	if h.deps.Quarantine != nil {
		if noted := h.deps.Quarantine(r.ID(), err.Error()); noted != nil {
			r.Log().Error("quarantine lasts only as long as the process", "error", noted)
		}
	}
	r.Fail(err)
}

func (m *repairer) quarantine(g *repairGroup, n fsm.NodeID, index uint64, agreed string) *repairStep {
	return &repairStep{"quarantine what differs", n, func(ctx context.Context, s *Supervisor, r *replica.Replica) error {
		ctx, cancel := context.WithTimeout(ctx, admitTimeout)
		defer cancel()
		b := binary.BigEndian.AppendUint16(nil, uint16(g.id))
		b = binary.BigEndian.AppendUint64(b, index)
		_, err := s.host.deps.Caller.Call(ctx, n, KindQuarantine, wire.AppendBytes(b, []byte(agreed)))
		return err
	}}
}

// serveQuarantine fails a replica whose digest is not the one that its leader tells. The replica looks
// for itself: one that agrees is left alone.
func (h *Host) serveQuarantine(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	const head = 2 + 8
	if len(b) < head {
		return nil, fmt.Errorf("call to quarantine of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	in := wire.NewReader(b[head:])
	agreed := string(in.Bytes(2 * replica.SumBytes))
	if err := in.Done(); err != nil {
		return nil, err
	}
	r := h.Replica(fsm.PartitionID(binary.BigEndian.Uint16(b)))
	if !h.allowed(from) || r == nil {
		return nil, fmt.Errorf("node %s: %w", from, raftnet.ErrSilent)
	}
	if leader, _ := r.Leader(); leader != from {
		return nil, fmt.Errorf("node %s does not lead here: %w", from, fsm.ErrNotLeader)
	}
	own, ok := r.DigestAt(binary.BigEndian.Uint64(b[2:]))
	if !ok || own.Sum == agreed {
		return nil, fmt.Errorf("replica of partition %d does not differ", r.ID())
	}
	h.diverge(r, own, agreed)
	return nil, nil
}

// compare judges a group's digests. sums maps voters to their digests of one index and form; voters is
// how many there are. diverged are those who differ from what a majority of all voters agrees upon;
// unclear says that some differ and no majority agrees, so that nobody knows who is right.
func compare(sums map[fsm.NodeID]string, voters int) (diverged []fsm.NodeID, agreed string, unclear bool) {
	count := map[string]int{}
	for _, s := range sums { // order-free: only counts
		count[s]++
	}
	for s, n := range count { // order-free: at most one has a majority
		if n > voters/2 {
			agreed = s
		}
	}
	for n, s := range sums { // sorted below
		if agreed != "" && s != agreed {
			diverged = append(diverged, n)
		}
	}
	slices.Sort(diverged)
	return diverged, agreed, agreed == "" && len(count) > 1
}

var errDiverged = errors.New("state differs from that of a majority of the group")
