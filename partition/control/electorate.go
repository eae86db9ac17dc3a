package control

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

const (
	// awayPatience is for how long a voter of the catalog may be silent before another node votes in its place. A restart
	// takes seconds.
	awayPatience = time.Minute
	// leastVoters is the number of voters below which the catalog does not shrink because nodes are away. Two voters bear
	// no loss, and neither do three of which one is away.
	leastVoters = 3
)

// electorate is what is known about the nodes of the catalog when its voters are chosen. Its methods are pure.
type electorate struct {
	self    fsm.NodeID // leads the catalog
	most    int        // so many nodes may vote
	servers map[fsm.NodeID]raft.ServerSuffrage
	ready   map[fsm.NodeID]bool // answers, works and has caught up
	placed  map[fsm.NodeID]bool // holds a replica of a data partition
	// lost are nodes that are away for so long that others take their places; left said goodbye and do not answer, late
	// are away for longer than awayPatience.
	lost, left, late map[fsm.NodeID]bool
	zone             map[fsm.NodeID]string // "" if it is not known
}

// odd is the largest odd number that is not above n; 0 if n is not positive.
func odd(n int) int { return max(0, n-(n+1)%2) }

// CatalogVotes returns how many of the nodes that have a place in the cluster vote in the catalog: an odd number.
func CatalogVotes(placed, most int) int { return odd(min(placed, most)) }

// size is how many nodes should vote. Two voters stay two: one alone would hold what the catalog has answered. So if two
// nodes have a place, both vote as soon as any two do. Else a voter without a place could never be replaced.
func (e *electorate) size() int {
	placed, there, left, voters := 0, 0, 0, 0
	for n := range e.servers { // order-free: only counts
		if e.servers[n] == raft.Voter {
			voters++
		}
		switch {
		case !e.placed[n]:
			continue
		case e.left[n] && !e.late[n]:
			left++
		case !e.left[n] && !e.lost[n]:
			there++
		}
		placed++
	}
	// One node that left a moment ago is most likely a restart: without it the rest bear as many losses as with it.
	there += min(left, 1)
	size := max(CatalogVotes(there, e.most), CatalogVotes(placed, min(leastVoters, e.most)))
	if voters >= 2 && placed == 2 {
		size = max(size, 2)
	}
	return size
}

// rank orders nodes by how much their vote is worth: small is better. A node without a vote counts only when it could
// have one at once.
func (e *electorate) rank(n fsm.NodeID) (rank int, candidate bool) {
	voter := e.servers[n] == raft.Voter
	switch {
	case !e.placed[n] || !voter && !e.ready[n]:
		return 0, false
	case e.ready[n] || !e.left[n] && !e.late[n]:
		return 0, true
	case !e.lost[n] && !e.left[n]:
		return 1, true
	case !e.lost[n]:
		return 2, true
	}
	return 3, true
}

// chosen returns the nodes that should vote, best first. Of equal ones it takes a node whose zone has fewest of the
// voters, then one that votes already, then the lower id.
func (e *electorate) chosen() []fsm.NodeID {
	var left, out []fsm.NodeID
	rank := map[fsm.NodeID]int{}
	for n := range e.servers { // order-free: sorted below
		if r, ok := e.rank(n); ok {
			rank[n] = r
			left = append(left, n)
		}
	}
	used := map[string]int{}
	crowd := func(n fsm.NodeID) int {
		if e.zone[n] == "" {
			return 0
		}
		return used[e.zone[n]]
	}
	class := func(n fsm.NodeID) int {
		switch {
		case n == e.self:
			return 0
		case e.servers[n] == raft.Voter:
			return 1
		}
		return 2
	}
	for size := e.size(); len(out) < size && len(left) > 0; {
		best := slices.MinFunc(left, func(a, b fsm.NodeID) int {
			return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(crowd(a), crowd(b)),
				cmp.Compare(class(a), class(b)), cmp.Compare(a, b))
		})
		left = slices.DeleteFunc(left, func(n fsm.NodeID) bool { return n == best })
		used[e.zone[best]]++
		out = append(out, best)
	}
	return out
}

// The changes that next asks for.
const (
	giveVote = iota + 1
	takeVote
	handOver
)

// next decides the next change of the voters, 0 for none. g tells whether the voters that are ready stay a majority.
func (e *electorate) next(g *repairGroup) (what int, n fsm.NodeID) {
	want := e.chosen()
	if len(want) == 0 {
		return 0, ""
	}
	voters := 0
	var extra, lacking []fsm.NodeID
	for _, n := range g.existing {
		in := slices.Contains(want, n)
		switch voter := e.servers[n] == raft.Voter; {
		case voter:
			voters++
			if !in {
				extra = append(extra, n)
			}
		case in && e.ready[n]:
			lacking = append(lacking, n)
		}
	}
	for _, n := range extra {
		if !e.ready[n] && (voters > len(want) || len(lacking) > 0) && g.survives(n, 0) {
			return takeVote, n
		}
	}
	if len(lacking) > 0 && (voters < len(want) || len(extra) > 0 && voters == len(want)) && g.survives("", 1) {
		return giveVote, lacking[0]
	}
	if voters <= len(want) {
		return 0, ""
	}
	for _, n := range extra {
		switch {
		case n == e.self:
			return handOver, n
		case g.survives(n, 0):
			return takeVote, n
		}
	}
	return 0, ""
}

// elect returns the next step towards the voters that the catalog should have, nil if there is none.
func (m *repairer) elect(g *repairGroup, v *catalog.View, states map[fsm.NodeID]nodeState) *repairStep {
	e := &electorate{self: g.self, most: m.s.cfg.CatalogVoters, servers: g.servers, ready: g.ready,
		placed: Placed(v), lost: map[fsm.NodeID]bool{}, left: map[fsm.NodeID]bool{}, late: map[fsm.NodeID]bool{},
		zone: map[fsm.NodeID]string{}}
	for _, n := range v.Nodes() {
		e.zone[n.ID] = n.Zone
	}
	for n, away := range m.gone(v, states) { // order-free: fills maps
		e.lost[n] = m.overdue(v, n, away, states)
		e.left[n] = m.s.cfg.Left != nil && m.s.cfg.Left(n)
		e.late[n] = away >= awayPatience
	}
	what, n := e.next(g)
	var step *repairStep
	switch what {
	case giveVote:
		step = g.change("give a vote in the catalog", n, (*replica.Replica).AddVoter)
	case takeVote:
		step = g.change("take the vote in the catalog", n, (*replica.Replica).Demote)
	case handOver:
		step = &repairStep{what: "hand over the catalog, losing the vote", node: n,
			do: func(ctx context.Context, s *Supervisor, r *replica.Replica) error {
				ctx, cancel := context.WithTimeout(ctx, admitTimeout)
				defer cancel()
				return s.host.HandOver(ctx, r.ID())
			}}
	default:
		return nil
	}
	step.usual = true
	return step
}

// Placed returns the nodes that the catalog gives a replica of a data partition.
func Placed(v *catalog.View) map[fsm.NodeID]bool {
	placed := map[fsm.NodeID]bool{}
	for _, g := range v.Groups() {
		for _, n := range g.Members {
			placed[n] = true
		}
	}
	return placed
}
